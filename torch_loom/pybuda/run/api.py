"""PyBuda's run functions."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torch_loom.config.keywords import names_near_keywords
from torch_loom.errors import PyBudaError
from torch_loom.pybuda.chips import chip_name, num_chips_available
from torch_loom.pybuda.device import Device, program
from torch_loom.pybuda.enums import BackendDevice, DeviceMode
from torch_loom.pybuda.execution.generation import position, set_position
from torch_loom.pybuda.module import Module
from torch_loom.pybuda.run.ready import (
    check_session,
    inference_session,
    place_alone,
    replace_session,
    require_pushed,
    require_targets,
    running_session,
    verify,
)
from torch_loom.pybuda.run.session import running
from torch_loom.pybuda.tensor import Tensor, to_torch
from torch_loom.pybuda.wanted import check_count

_ENDLESS = "no end"


@names_near_keywords
def run_inference(
    module: Module | None = None,
    inputs: Sequence[Any] = [],
    input_count: int = 1,
    output_queue: Any = None,
    _sequential: bool = False,
    _perf_trace: bool = False,
    _verify_cfg: Any = None,
) -> Any:
    """Run inference, and return the queue of the results once the devices are set up.

    An item of the queue is a list of tensors: the outputs of one input. A call with the same modules goes on
    where the last call ended, with the queue given now or else the last queue.

    Args:
        module: placed on a TT device, in place of what is placed. None: what is placed.
        inputs: tuples (or single tensors), or dicts by name; pushed to the first device.
        input_count: how many inputs to run; 0 goes on until shutdown or the next call.
        output_queue: where the results go; one is made otherwise.
        _perf_trace: write a trace of the predicted run at the set-up, as ``performance_trace``.
        _verify_cfg: compares the devices with PyTorch on the first input before they run.

    Raises:
        VerificationError: with ``_verify_cfg``, a value differs.
        PyBudaError: inputs without a device, a count that does not fit the inputs, or nothing pushed.
    """
    check_count("run_inference", "input_count", input_count, 0, _ENDLESS)
    if not isinstance(inputs, Sequence):
        raise PyBudaError(
            f"run_inference: inputs is a {type(inputs).__name__}; it is a list with the tensors of each input"
        )
    if inputs and input_count not in (1, len(inputs)):
        raise PyBudaError(
            f"run_inference: input_count is {input_count} for {len(inputs)} inputs; leave it out, or push "
            "the inputs with push_to_inputs"
        )
    if _sequential and input_count == 0:
        raise PyBudaError("run_inference: input_count=0 (no end) and _sequential exclude one another")
    check_session()
    if module is not None:
        place_alone(module)
    if not program.placed:
        if inputs:
            raise PyBudaError("run_inference: inputs were given, and no module is placed to take them")
        warnings.warn("Nothing to do: no module is placed on a device", stacklevel=3)
        return output_queue
    for each in inputs:
        program.placed[0].push_to_inputs(each)
    verify(_verify_cfg)
    session = inference_session(output_queue, _perf_trace)
    if output_queue is not None:
        session.output_queue = output_queue
    pipeline = session.require()
    pipeline.end_endless()
    count = len(inputs) or input_count
    pipeline.forward(count, inline=_sequential, outputs=session.output_queue)
    return session.output_queue


@names_near_keywords
def run_generative_inference(
    module: Module | None = None,
    inputs: Sequence[Any] = [],
    input_count: int = 1,
    output_queue: Any = None,
    _sequential: bool = False,
    _perf_trace: bool = False,
    _verify_cfg: Any = None,
) -> Any:
    """Run inference of a generative model whose caches are its own, as ``run_inference``."""
    return run_inference(module, inputs, input_count, output_queue, _sequential, _perf_trace, _verify_cfg)


@names_near_keywords
def run_training(
    epochs: int = 1,
    steps: int = 1,
    accumulation_steps: int = 1,
    microbatch_count: int = 1,
    checkpoint_queue: Any = None,
    loss_queue: Any = None,
    checkpoint_interval: int = 0,
    _sequential: bool = False,
    _perf_trace: bool = False,
    _verify_cfg: Any = None,
) -> Any:
    """Train, and return the queue of the checkpoints once the devices are set up.

    A step is ``accumulation_steps`` times ``microbatch_count`` forwards and then as many backwards. An
    item of the checkpoint queue is a list with a dict (name to tensor) for each device; the last item is the
    last state.

    Args:
        epochs: schedulers step after each.
        steps: optimizer steps an epoch.
        accumulation_steps: mini-batches a step.
        microbatch_count: inputs (and targets) of a mini-batch.
        checkpoint_queue: where checkpoints go; one is made otherwise.
        loss_queue: where the losses of each micro-batch go.
        checkpoint_interval: steps between checkpoints; 0: only the last state.
        _perf_trace: write a trace of the predicted forward, as ``performance_trace``.

    Raises:
        PyBudaError: a count below 1, a loss that is not on the last device, or nothing pushed.
    """
    counts = {
        "epochs": epochs,
        "steps": steps,
        "accumulation_steps": accumulation_steps,
        "microbatch_count": microbatch_count,
    }
    for name, value in counts.items():
        check_count("run_training", name, value)
    check_count("run_training", "checkpoint_interval", checkpoint_interval, 0, "never")
    check_session()
    require_pushed(training=True)
    verify(_verify_cfg)
    session = replace_session(
        training=True,
        checkpoint_queue=checkpoint_queue,
        loss_queue=loss_queue,
        total=epochs * steps * accumulation_steps * microbatch_count,
        perf_trace=_perf_trace,
    )
    pipeline = session.require()
    pipeline.train(
        epochs=epochs,
        steps=steps,
        accumulation_steps=accumulation_steps,
        microbatches=microbatch_count,
        checkpoint_interval=checkpoint_interval,
        schedule="all_forward",
    )
    if _sequential:
        pipeline.sync()
    return session.checkpoint_queue


@names_near_keywords
def initialize_pipeline(
    training: bool,
    output_queue: Any = None,
    checkpoint_queue: Any = None,
    sample_inputs: Any = (),
    sample_targets: Any = (),
    microbatch_count: int = 1,
    d2d_fwd_queues: Sequence[Any] = [],
    d2d_bwd_queues: Sequence[Any] = [],
    _sequential: bool = False,
    _verify_cfg: Any = None,
    _device_mode: DeviceMode = DeviceMode.CompileAndRun,
) -> Any:
    """Make the pipeline ready for run_forward, run_backward and run_optimizer; return its queue.

    Args:
        training: whether backwards will follow; then the queue of checkpoints is returned.
        output_queue: for the results; in training for the losses, of which ``get_loss_queue()`` else returns
            one. It keeps them until they are read.
        checkpoint_queue: for checkpoints, in training.
        sample_inputs, sample_targets: representative tensors, in place of those that were pushed.
        microbatch_count: how many micro-batches go forward before their backwards.
        d2d_fwd_queues: get what passes from device to device, from the first device on; the last has none.
        d2d_bwd_queues: get the gradients that go back, from the second device on; the first has none.

    Raises:
        PyBudaError: nothing placed or pushed, targets or checkpoints in inference, more queues than links.
    """
    if not training and len(sample_targets):
        raise PyBudaError("initialize_pipeline: sample_targets are for training=True only")
    if not training and checkpoint_queue is not None:
        raise PyBudaError("initialize_pipeline: checkpoint_queue is for training=True only")
    check_count("initialize_pipeline", "microbatch_count", microbatch_count)
    samples = sample_inputs.values() if isinstance(sample_inputs, dict) else sample_inputs
    samples = [to_torch(value) for value in samples]
    for value in sample_targets:
        to_torch(value)
    check_session()
    if not len(sample_inputs):
        require_pushed(training=False)
    if training and not len(sample_targets):
        require_targets()
    verify(_verify_cfg, samples or None)
    session = replace_session(
        training=training,
        output_queue=output_queue,
        checkpoint_queue=checkpoint_queue,
        forward_taps=d2d_fwd_queues,
        backward_taps=d2d_bwd_queues,
        compile_only=_device_mode is DeviceMode.CompileOnly,
        samples=samples or None,
    )
    for device in session.devices:
        device.microbatch_count = microbatch_count
    return session.checkpoint_queue if training else session.output_queue


@names_near_keywords
def run_forward(input_count: int = 1, _sequential: bool = False) -> None:
    """Run inputs forward on the initialized pipeline; 0 goes on until shutdown or the next run_inference.

    In training the losses go to the output queue, if there is one.

    Raises:
        PyBudaError: a count below 0, or no pipeline is initialized.
    """
    check_count("run_forward", "input_count", input_count, 0, _ENDLESS)
    running_session("run_forward").pipeline.forward(input_count, inline=_sequential)


@names_near_keywords
def run_backward(input_count: int = 1, zero_grad: bool = False, _sequential: bool = False) -> None:
    """Run backwards on the initialized pipeline, of the forwards that came first.

    Args:
        input_count: how many; 0 goes on until shutdown or the next run_inference.
        zero_grad: zero accumulated gradients first; set it for the first call of a batch.

    Raises:
        PyBudaError: no pipeline is initialized.
        PipelineError: it does not train, or there were fewer forwards.
    """
    check_count("run_backward", "input_count", input_count, 0, _ENDLESS)
    running_session("run_backward").pipeline.backward(input_count, zero_grad=zero_grad, inline=_sequential)


def run_optimizer(checkpoint: bool = False, _sequential: bool = False) -> None:
    """Step the optimizers of all devices; with ``checkpoint`` the parameters go to the checkpoint queue.

    Raises:
        PyBudaError: no pipeline is initialized.
    """
    running_session("run_optimizer").pipeline.step(checkpoint=checkpoint, inline=_sequential)


def run_schedulers(_sequential: bool = False) -> None:
    """Step the learning-rate schedulers of all devices.

    Raises:
        PyBudaError: no pipeline is initialized.
    """
    running_session("run_schedulers").pipeline.step_schedulers(inline=_sequential)


@names_near_keywords
def run_generate(
    input_count: int = 1,
    write_index: int = -1,
    tokens_per_iter: int = -1,
    token_id: int = -1,
    _sequential: bool = False,
) -> None:
    """Run inputs forward in generation: the place to write to in the caches is given, or worked out.

    Args:
        input_count: how many inputs.
        write_index: where the caches are written, in tiles of 32 tokens. Default: the tile of ``token_id``.
        tokens_per_iter: tokens of this step (32 fills the caches, 1 decodes). Default: 1.
        token_id: index of the first of these tokens. Default: the first of the tile ``write_index``.

    Raises:
        PyBudaError: neither write_index nor both of the others, a token_id of another tile than write_index,
            or no pipeline is initialized.
    """
    check_count("run_generate", "input_count", input_count, 0, _ENDLESS)
    start, num_tokens = position("run_generate", write_index, tokens_per_iter, token_id)
    session = running_session("run_generate")
    pipeline = session.pipeline
    for device in session.devices:
        set_position(pipeline, session.place_of(device), start, num_tokens)
    pipeline.forward(input_count, inline=_sequential)


def get_parameter_checkpoint(
    device: Device | None = None, _sequential: bool = False
) -> list[dict[str, Tensor]]:
    """Return the parameters' values by name: a list with a dict for each device, or for the given one."""
    return _of_devices(device, "checkpoint", "get_parameter_checkpoint")


def get_parameter_gradients(
    device: Device | None = None, _sequential: bool = False
) -> list[dict[str, Tensor]]:
    """Return the accumulated gradients by name: a list with a dict for each device, or for the given one."""
    return _of_devices(device, "gradients", "get_parameter_gradients")


def update_device_parameters(
    device: Device | None = None,
    parameters: Sequence[dict[str, Any]] = [],
    _sequential: bool = False,
) -> None:
    """Push new parameters onto a device, or onto all devices of the pipeline.

    Args:
        device: the device; None: all.
        parameters: a dict (name to tensor) for each of them.

    Raises:
        PyBudaError: no list of dicts, or another number of them than devices.
        PipelineError: a name or shape that a device does not have.
    """
    session = running_session("update_device_parameters")
    pipeline = session.pipeline
    devices = session.devices if device is None else [device]
    if not isinstance(parameters, Sequence) or not all(isinstance(named, Mapping) for named in parameters):
        raise PyBudaError(
            f"update_device_parameters: parameters is {type(parameters).__name__}; it is a list with a dict "
            "(name to tensor) for each device"
        )
    if len(parameters) != len(devices):
        raise PyBudaError(
            f"update_device_parameters: {len(parameters)} dicts of parameters for {len(devices)} devices"
        )
    places = [session.place_of(each) for each in devices]
    values = [{name: to_torch(value) for name, value in named.items()} for named in parameters]
    for place, each in zip(places, values, strict=True):
        pipeline.stages[place].check_update(each)
    for place, each in zip(places, values, strict=True):
        pipeline.update_parameters(place, each)


def get_loss_queue() -> Any:
    """Return the queue of losses of the running pipeline, or None."""
    return running.session.loss_queue if running.session is not None else None


def get_checkpoint_queue() -> Any:
    """Return the queue of checkpoints of the running pipeline, or None."""
    return running.session.checkpoint_queue if running.session is not None else None


def get_intermediates_queue() -> Any:
    """Return the queue of the ops in ``op_intermediates_to_save``, or None."""
    return running.session.intermediates_queue if running.session is not None else None


def error_raised() -> bool:
    """Whether a device of the running pipeline has failed; queues and calls raise its error."""
    return running.session is not None and running.session.error is not None


def sync() -> None:
    """Wait until the devices have executed all commands.

    Raises:
        StageError: a device failed.
    """
    if running.session is not None:
        running.session.pipeline.sync()


def shutdown() -> None:
    """End the running pipeline and drop what is queued. Returns within 10 s, from any state, twice too."""
    if running.session is not None:
        running.session.close()
    for device in program.devices:
        device.drop_queued()


def detect_available_devices() -> list[Any]:
    """Return the virtual chips: BackendDevice members, and names for chips that are not Tenstorrent's."""
    known = {member.name.lower(): member for member in BackendDevice if member is not BackendDevice.Invalid}
    names = [chip_name(index) for index in range(num_chips_available())]
    return [known.get(name.lower(), name) for name in names]


def _of_devices(device: Device | None, what: str, name: str) -> list[dict[str, Tensor]]:
    session = running_session(name)
    place = None if device is None else session.place_of(device)
    found: list[dict[str, Any]] = getattr(session.pipeline, what)()
    wrapped = [{key: Tensor(value) for key, value in each.items()} for each in found]
    return wrapped if place is None else [wrapped[place]]


def _run_alone(module: Module, args: tuple[Any, ...]) -> list[Tensor]:
    others = [other.name for device in program.devices for other in device.modules if other is not module]
    if others:
        raise PyBudaError(
            f"module {module.name!r} cannot run by itself while others are placed ({', '.join(others)}): "
            "push to the first device and call run_inference(), or remove_modules() first"
        )
    outputs: list[Tensor] = run_inference(module, inputs=[args]).get()
    return outputs


Module.run_alone = _run_alone
atexit.register(shutdown)
