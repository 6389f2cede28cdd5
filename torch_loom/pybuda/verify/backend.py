"""verify_module: a module on devices against PyTorch on the host, from random inputs."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from torch_loom.errors import PyBudaError
from torch_loom.numerics import quantize
from torch_loom.pipeline.transfer import flatten_outputs
from torch_loom.pybuda.cpudevice import CPUDevice
from torch_loom.pybuda.device import Device
from torch_loom.pybuda.module import Module, PyBudaModule, PyTorchModule
from torch_loom.pybuda.pybudaglobal import reset_devices
from torch_loom.pybuda.run.api import get_parameter_gradients, initialize_pipeline, run_backward, run_forward
from torch_loom.pybuda.tensor import TensorBase, to_torch
from torch_loom.pybuda.ttdevice import TTDevice
from torch_loom.pybuda.verify.config import VerifyConfig
from torch_loom.pybuda.verify.stages import Checked, check, or_zeros, verify_device

_READ_SECONDS = 600.0
_SAME_DEVICE = "-"


def verify_module(
    module: Module,
    input_shapes: Sequence[tuple[int, ...]],
    verify_cfg: VerifyConfig,
    input_params: Sequence[dict[str, Any]] = (),
    device_type: str = "TTDevice",
    *args: Any,
    **kwargs: Any,
) -> list[Checked]:
    """Run a module on a device of its own and compare it with PyTorch.

    Further arguments are those of ``verify_module_pipeline`` after ``device_types``.
    """
    return verify_module_pipeline(
        [module], input_shapes, verify_cfg, input_params, [device_type], *args, **kwargs
    )


def verify_module_pipeline(
    modules: Sequence[Module],
    input_shapes: Sequence[tuple[int, ...]],
    verify_cfg: VerifyConfig,
    input_params: Sequence[dict[str, Any]] = (),
    device_types: Sequence[str] = ("TTDevice",),
    params_centered_on_zero: bool = False,
    scale_params: float = 1.0,
    inputs: Sequence[Sequence[torch.Tensor]] | None = None,
    loss_module: Module | None = None,
    uniform_inputs: bool = False,
    inputs_centered_on_zero: bool = False,
) -> list[Checked]:
    """Run modules on devices and compare each device, and the whole pipeline, with PyTorch on the host.

    All devices of the program are reset before and, unless ``skip_shutdown``, after; its configuration holds.

    Args:
        modules: in order.
        input_shapes: of one micro-batch.
        input_params: for each input ``dtype`` (a torch dtype), where it is not float32, and
            ``dev_data_format``, the format in which the device stores it.
        device_types: for each module ``"TTDevice"``, ``"CPUDevice"`` or ``"-"`` (as the previous module).
        params_centered_on_zero: values for parameters without one have a mean of 0, not 0.5.
        scale_params: divides these.
        inputs: micro-batches, in place of random ones, taken in turn.
        loss_module: for training; a weighted sum of the outputs otherwise.
        uniform_inputs: random values are uniform, 0 to 1, and not normal with a deviation of 0.1.
        inputs_centered_on_zero: inputs have a mean of 0, not 0.5 and all above 0.

    Returns:
        What was compared: passes of the compiler, outputs, and in training losses and gradients.

    Raises:
        VerificationError: a value differs; the message names stage and value.
        PyBudaError: as many device types as modules are needed, and shapes or inputs.
    """
    if len(device_types) != len(modules) or not modules:
        raise PyBudaError(f"{len(modules)} modules and {len(device_types)} device types: one for each module")
    reset_devices()
    try:
        for module in modules:
            _fill(module, uniform_inputs, params_centered_on_zero, scale_params)
        batches = _batches(input_shapes, input_params, inputs, uniform_inputs, inputs_centered_on_zero)
        devices = _placed(modules, device_types, verify_cfg)
        if not verify_cfg.enabled:
            return []
        values: Sequence[torch.Tensor] = batches[0]
        done: list[Checked] = []
        for device in devices:
            done += verify_device(device, values, verify_cfg)
            with torch.no_grad():
                values = device.reference_stage().compute(tuple(values))
        if verify_cfg.verify_pipeline_result_vs_framework:
            done += _whole(devices, batches, loss_module, verify_cfg)
        return done
    finally:
        if not verify_cfg.skip_shutdown:
            reset_devices()


def _fill(module: Module, uniform: bool, centered: bool, scale: float) -> None:
    if isinstance(module, PyBudaModule):
        for parameter in module.get_parameters():
            if not parameter.has_value():
                parameter.set_value(_random(tuple(parameter.shape), uniform, centered) / scale)


def _random(shape: tuple[int, ...], uniform: bool, centered: bool) -> torch.Tensor:
    """Values that ops are defined for, unless they are to be centered: above zero, as PyBuda has them."""
    if uniform:
        return torch.rand(shape) - (0.5 if centered else 0.0)
    values = torch.randn(shape) * 0.1
    return values if centered else (values + 0.5).abs() + 1e-5


def _batches(
    shapes: Sequence[tuple[int, ...]],
    params: Sequence[dict[str, Any]],
    given: Sequence[Sequence[torch.Tensor]] | None,
    uniform: bool,
    centered: bool,
) -> list[list[torch.Tensor]]:
    if given:
        # A batch of one input may be the input itself.
        batches = [[batch] if isinstance(batch, (torch.Tensor, TensorBase)) else batch for batch in given]
        return [[to_torch(value) for value in batch] for batch in batches]
    if not shapes:
        raise PyBudaError("verify_module needs input_shapes, or inputs")
    # Some programs give them as a list within the list.
    flat = [each for given in params for each in (given if isinstance(given, (list, tuple)) else [given])]
    made = []
    for number, shape in enumerate(shapes):
        own = flat[number] if number < len(flat) else {}
        dtype = own.get("dtype", own.get("data_format", torch.float32))
        if not dtype.is_floating_point:
            value = torch.randint(0, 2, shape, dtype=dtype)
        else:
            value = _random(shape, uniform, centered).to(dtype)
        stored = own.get("dev_data_format")
        if stored is not None and dtype.is_floating_point and not stored.is_integer:
            value = quantize(value, stored)
        made.append(value)
    return [made]


def _placed(modules: Sequence[Module], types: Sequence[str], config: VerifyConfig) -> list[Device]:
    devices: list[Device] = []
    for module, kind in zip(modules, types, strict=True):
        if kind == _SAME_DEVICE and devices:
            devices[-1].place_module(module)
        elif kind == "TTDevice":
            devices.append(
                TTDevice(
                    f"tt{len(devices)}",
                    num_chips=config.num_chips,
                    chip_ids=config.chip_ids,
                    arch=config.arch,
                    devtype=config.devtype,
                    fp32_fallback=config.fp32_fallback,
                    module=module,
                )
            )
        elif kind == "CPUDevice":
            devices.append(CPUDevice(f"cpu{len(devices)}", module=module))
        else:
            raise PyBudaError(f"device type {kind!r}: 'TTDevice', 'CPUDevice', or '-' after the first")
    return devices


class _WeightedSum(nn.Module):
    """A loss for outputs that have none: the sum of outputs times targets."""

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        half = len(values) // 2
        return torch.stack([(a * b).sum() for a, b in zip(values[:half], values[half:], strict=True)]).sum()


def _whole(
    devices: Sequence[Device],
    batches: Sequence[Sequence[torch.Tensor]],
    loss_module: Module | None,
    config: VerifyConfig,
) -> list[Checked]:
    """The pipeline's results, and in training its losses and accumulated gradients."""
    training = config.test_kind.is_training()
    count = config.microbatch_count * config.accumulation_steps
    feeds = [list(batches[number % len(batches)]) for number in range(count)]
    golden = [device.reference_stage() for device in devices]
    loss = loss_module or PyTorchModule("verify_loss", _WeightedSum())
    results: Any = queue.Queue()
    targets: list[tuple[torch.Tensor, ...]] = []
    expected = []
    compute_loss = loss.torch_module()
    for feed in feeds:
        values: Any = tuple(feed)
        for stage in golden:
            values = stage.compute(values)
        if training:
            targets.append(tuple(torch.rand_like(value) for value in values[: 1 if loss_module else None]))
            values = flatten_outputs(compute_loss(*values, *targets[-1]))
            values = [value for value in values if value.requires_grad] or values
            if values[0].requires_grad:  # modules without parameters have nothing to train
                torch.autograd.backward(values, [torch.ones_like(value) for value in values])
        expected.append([value.detach() for value in values])
    if training:
        devices[-1].place_loss_module(loss)
    initialize_pipeline(
        training, results, sample_inputs=tuple(feeds[0]), sample_targets=targets[0] if training else ()
    )
    for number, feed in enumerate(feeds):
        devices[0].push_to_inputs(tuple(feed))
        if training:
            devices[-1].push_to_target_inputs(targets[number])
    run_forward(count, _sequential=config.sequential)
    done = []
    for number, values in enumerate(expected):
        got = [to_torch(value) for value in results.get(timeout=_READ_SECONDS)]
        for place, (a, b) in enumerate(zip(values, got, strict=True)):
            done.append(check("FULL", f"result {place} of micro-batch {number}", a, b, config))
    if training and config.enable_parameter_gradient_checking:
        run_backward(count, zero_grad=True, _sequential=config.sequential)
        for stage, part in zip(golden, get_parameter_gradients(), strict=True):
            for name, value in stage.gradients().items():
                if name not in config.waive_gradient_errors:
                    made = or_zeros(to_torch(part[name]) if name in part else None, value)
                    done.append(check("FULL", f"gradient of {name!r}", value, made, config))
    return done
