"""What the run functions do before they run: placement, checks, the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.device import program
from torch_loom.pybuda.module import Module
from torch_loom.pybuda.run.session import Session, check_training, has_inputs, running
from torch_loom.pybuda.ttdevice import TTDevice
from torch_loom.pybuda.verify.stages import verify_devices

AUTO_DEVICE = "auto_tt0"


def place_alone(module: Module) -> None:
    """Let a module be all that is placed; nothing changes if it is already."""
    if not isinstance(module, Module):
        raise PyBudaError(f"run_inference takes a module of PyBuda, not {type(module).__name__}: wrap it")
    placed = [each for device in program.devices for each in device.modules]
    if placed == [module]:
        return
    for device in program.devices:
        device.remove_modules()
        device.remove_loss_module()
    if not program.devices:
        TTDevice(AUTO_DEVICE)
    program.devices[0].place_module(module)


def verify(verify_cfg: Any, inputs: Sequence[Any] | None = None) -> None:
    """Compare the placed devices with PyTorch, on these inputs or the first that were pushed."""
    if verify_cfg is None:
        return
    devices = program.placed or nothing_placed()
    if inputs is None:
        inputs = [value.value() for value in devices[0].get_first_inputs(peek=True)[1]]
    verify_devices(devices, inputs, verify_cfg)


def inference_session(output_queue: Any, perf_trace: bool = False) -> Session:
    """Return the running pipeline for inference, or start one."""
    with running.lock:
        session = running.session
        if session is not None and not session.training and not session.ended and not session.compile_only:
            return session
        require_pushed(training=False)
        return replace_session(training=False, output_queue=output_queue, perf_trace=perf_trace)


def replace_session(*, training: bool, **options: Any) -> Session:
    """End the running pipeline, keeping what was pushed for the next, and start one."""
    if training:
        check_training(program.placed or nothing_placed())
    with running.lock:
        if running.session is not None:
            running.session.pipeline.shutdown(keep_queued=True)
            running.session.leave()
        session = running.session = Session(training, **options)
    return session


def nothing_placed() -> NoReturn:
    """Refuse to go on: nothing is placed."""
    raise PyBudaError("nothing is placed: place_module() on a device first")


def check_session() -> None:
    """Raise the error of a pipeline that failed; shutdown() clears it."""
    if running.session is not None and running.session.error is not None:
        raise running.session.error


def require_pushed(training: bool) -> None:
    """Refuse to go on where nothing is placed or pushed."""
    if not program.placed:
        nothing_placed()
    if training:
        check_training(program.placed)
    if not has_inputs():
        first = program.placed[0].name
        raise PyBudaError(
            "Inputs must be pushed into the first device before trying to compile the model. The first is "
            f"{first!r}; pybuda_reset() forgets the devices of an earlier program"
        )
    if training:
        require_targets()


def require_targets() -> None:
    """Refuse to go on without targets on the last device."""
    devices = program.placed or nothing_placed()
    check_training(devices)
    if not len(devices[-1].target_channel()):
        raise PyBudaError("Targets must be pushed into the last device before trying to compile the model.")


def running_session(what: str) -> Session:
    """Return the session that was initialized."""
    check_session()
    if running.session is None:
        raise PyBudaError(f"{what} needs an initialized pipeline: initialize_pipeline() first")
    running.session.require()
    return running.session
