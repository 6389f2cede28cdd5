"""Verification of one device: its graph after each pass of the compiler, its outputs, its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from torch_loom.chips import load
from torch_loom.compiler.frontend import exported
from torch_loom.compiler.options import configuration
from torch_loom.compiler.overrides import applied
from torch_loom.compiler.passes import PLAN_PASSES, Context, run
from torch_loom.errors import LoomError, PyBudaError, VerificationError
from torch_loom.pipeline import Stage
from torch_loom.pipeline.transfer import flatten_outputs
from torch_loom.pybuda.device import Device
from torch_loom.pybuda.execution.chip_device import ChipDevice
from torch_loom.pybuda.execution.placing import choices
from torch_loom.pybuda.execution.tracing import InOrder
from torch_loom.pybuda.verify.compare import Comparison, compare_tensors
from torch_loom.pybuda.verify.config import VerifyConfig


@dataclass(frozen=True)
class Checked:
    """One value that was compared: at which stage, and what it is."""

    stage: str
    value: str
    comparison: Comparison


def check(
    stage: str, name: str, reference: torch.Tensor, value: torch.Tensor, config: VerifyConfig
) -> Checked:
    """Compare one value.

    Raises:
        VerificationError: it does not pass.
    """
    compared = compare_tensors(reference, value, config)
    if not compared.passed:
        raise VerificationError(f"{config.graph_name}, {stage}: {name} differs: {compared.reason}")
    return Checked(stage, name, compared)


def verify_device(
    device: Device,
    inputs: Sequence[torch.Tensor],
    config: VerifyConfig,
    losses: Sequence[torch.Tensor] | None = None,
    *,
    outputs: Sequence[torch.Tensor] | None = None,
    is_exact: bool = False,
) -> list[Checked]:
    """Compare a device with PyTorch on the host: compiler passes, outputs and, in training, gradients.

    Args:
        device: a device with modules.
        inputs: of one micro-batch, on the host.
        losses: gradients of the outputs, in training; a ramp otherwise.
        outputs: what PyTorch gives on the host, if it is known.
        is_exact: whether the device computes in PyTorch's numbers, whatever the formats of its chip.

    Raises:
        PyBudaError: there are more outputs than ``outputs``, or fewer.
        VerificationError: a value differs; the message names stage and value.
    """
    if not config.enabled:
        return []
    stage = device.make_stage()
    if not config.test_kind.is_training():
        stage.prepare(training=False)  # in the mode of the runs: without dropout
    golden = device.reference_stage()
    with torch.no_grad():
        expected = golden.compute(tuple(inputs)) if outputs is None else tuple(outputs)
    done: list[Checked] = []
    if isinstance(device, ChipDevice) and (config.verify_all or config.verify_last):
        done += _passes(device, stage, inputs, expected, config, is_exact)
    on_device = tuple(value.to(stage.device) for value in inputs)
    numbers = nullcontext if is_exact else stage.numbers
    with torch.no_grad(), numbers():
        got = stage.compute(on_device)
    if len(got) != len(expected):
        raise PyBudaError(
            f"device {device.name!r} has {len(got)} outputs; {len(expected)} are to be compared"
        )
    pairs = enumerate(zip(expected, got, strict=True))
    done += [check("OUTPUTS", f"output {n}", a, b, config) for n, (a, b) in pairs]
    if config.test_kind.is_training():
        done += _gradients(stage, golden, inputs, config, losses, numbers)
    return done


def verify_devices(
    devices: Sequence[Device], inputs: Sequence[torch.Tensor] | None, config: VerifyConfig | None
) -> None:
    """Verify devices in a row before they run, each on PyTorch's outputs of its predecessor; see above.

    Raises:
        VerificationError: a value differs; the message names stage and value.
    """
    if config is None or not config.enabled or inputs is None:
        return
    values = tuple(inputs)
    for device in devices:
        verify_device(device, values, config)
        with torch.no_grad():
            values = device.reference_stage().compute(values)


def _passes(
    device: ChipDevice,
    stage: Stage,
    inputs: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    config: VerifyConfig,
    is_exact: bool,
) -> list[Checked]:
    """The graph after each pass, or the last, for the device's chip and under the program's options."""
    place = stage.device
    given = tuple(value.to(place) for value in inputs)
    module = InOrder(stage.modules.values()).eval()
    try:
        source = exported(module, given, {}, place)
    except LoomError:
        raise
    except Exception as error:
        text = f"{config.graph_name}: the modules cannot be exported as a graph, so that no pass is verified"
        raise VerificationError(f"{text}: {type(error).__name__}: {error}") from error
    options, overrides = choices(device, len(stage.devices))
    if is_exact:
        options["numerics"] = "exact"
    context = Context(
        chip=load(device.chip),
        options=configuration().but(**options),
        parameters=dict(source.parameters),
        updated=frozenset(source.updates),
    )
    graph = source.graph
    done: list[Checked] = []
    for number, each in enumerate(PLAN_PASSES):
        with applied(overrides):
            graph = run(graph, (each,), context)
        if config.verify_all or number == len(PLAN_PASSES) - 1:
            got = _interpreted(graph, context.parameters, given)
            label = f"pass {each.name!r}"
            pairs = enumerate(zip(expected, got, strict=True))
            done += [check(label, f"output {n}", a, b, config) for n, (a, b) in pairs]
    return done


def _interpreted(
    graph: fx.GraphModule, parameters: dict[str, Any], inputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    left = iter(inputs)
    names = [node.name for node in graph.graph.find_nodes(op="placeholder")]
    values = [parameters[name] if name in parameters else next(left) for name in names]
    with torch.no_grad():
        return flatten_outputs(fx.Interpreter(graph).run(*values))


def _gradients(
    stage: Stage,
    golden: Stage,
    inputs: Sequence[torch.Tensor],
    config: VerifyConfig,
    losses: Sequence[torch.Tensor] | None,
    numbers: Callable[[], AbstractContextManager[object]],
) -> list[Checked]:
    """The gradients of a weighted sum of the outputs, which distinguishes outputs and elements."""
    found = []
    for each, numbers_of_one in ((golden, golden.numbers), (stage, numbers)):
        leaves = [value.detach().to(each.device, copy=True) for value in inputs]
        for leaf in leaves:
            leaf.requires_grad_(leaf.is_floating_point())
        each.zero_grad()
        with numbers_of_one():
            outputs = [out for out in each.compute(tuple(leaves)) if out.requires_grad]
            weights = [
                _weights(out, config.scale_loss) if losses is None else losses[n].to(out)
                for n, out in enumerate(outputs)
            ]
            if outputs:
                torch.autograd.backward(outputs, weights)
        found.append(([leaf.grad for leaf in leaves], each.gradients()))
        each.zero_grad()
    (expected_inputs, expected), (got_inputs, got) = found
    done = []
    if config.enable_input_gradient_checking:
        for number, (a, b) in enumerate(zip(expected_inputs, got_inputs, strict=True)):
            if a is not None:
                done.append(check("GRADIENTS", f"gradient of input {number}", a, or_zeros(b, a), config))
    if config.enable_parameter_gradient_checking:
        for name, value in expected.items():
            if name not in config.waive_gradient_errors:
                made = or_zeros(got.get(name), value)
                done.append(check("GRADIENTS", f"gradient of {name!r}", value, made, config))
    return done


def _weights(output: torch.Tensor, scale: float) -> torch.Tensor:
    steps = torch.arange(1, output.numel() + 1, dtype=torch.float32).reshape(output.shape)
    return (steps * (scale / max(output.numel(), 1))).to(output)


def or_zeros(value: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """Return a gradient; zeros where there is none."""
    return torch.zeros_like(like) if value is None else value
