"""``pybuda_compile``: a device's modules through the compiler, for tests that look at what it makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from torch_loom.image.executable import Executable
from torch_loom.pybuda.compiler_config import CompilerConfig
from torch_loom.pybuda.config import _get_global_compiler_config, used_configuration
from torch_loom.pybuda.enums import CompileDepth, TestKind
from torch_loom.pybuda.execution import trace
from torch_loom.pybuda.execution.device_loop import value_of_tensor
from torch_loom.pybuda.execution.placing import compiled
from torch_loom.pybuda.tensor import Tensor
from torch_loom.pybuda.ttdevice import TTDevice
from torch_loom.pybuda.verify.config import VerifyConfig
from torch_loom.pybuda.verify.stages import verify_device
from torch_loom.pybuda.wanted import check_count, check_name

LAST_SUCCESSFUL_STAGE: str | None = None


@dataclass
class CompileResults:
    """What a compilation gave.

    Attributes:
        outputs: of the modules on the host; shapes alone where inputs have no values.
        golden_outputs: their values.
        initial_graph: the modules' graph, before any pass.
        lowered_graph: what the device runs; None where ``compile_depth`` ends before the balancer.
        netlist_filename: of the netlist, if ``backend_output_dir`` says where it goes.
        pass_specific_output_kwargs: ``plan``, what was placed where.
    """

    outputs: list[Tensor]
    golden_outputs: list[torch.Tensor]
    initial_graph: fx.Graph
    lowered_graph: Executable | None
    netlist_filename: str | None = None
    pass_specific_output_kwargs: dict[str, Any] = field(default_factory=dict)


def pybuda_compile(
    dev: TTDevice,
    graph_name: str,
    *inputs: Any,
    targets: Sequence[Tensor] = (),
    compiler_cfg: CompilerConfig | None = None,
    verify_cfg: VerifyConfig | None = None,
    losses: Sequence[Any] | None = None,
    microbatch_size: int = 1,
    microbatch_count: int = 1,
) -> CompileResults:
    """Compile what a TTDevice runs and, with ``verify_cfg``, compare it with PyTorch.

    What its ops compute is compared in PyTorch's numbers; ``verify_module`` compares runs in formats.

    Args:
        inputs: of one sample, as its modules take it; shapes are enough where nothing is verified.
        targets: of the device's loss module.
        compiler_cfg: in place of the global configuration.
        losses: gradients that come in for the outputs, in training; a ramp otherwise.
        microbatch_size, microbatch_count: kept by the device.

    Raises:
        PyBudaError: a name that is a path, or a count below 1.
        LoomError: the compiler refuses modules or options.
        VerificationError: a value differs.
    """
    check_name("a graph", graph_name)
    check_count("pybuda_compile", "microbatch_size", microbatch_size)
    check_count("pybuda_compile", "microbatch_count", microbatch_count)
    given = [value if isinstance(value, Tensor) else Tensor(value) for value in tree_leaves(list(inputs))]
    with used_configuration(compiler_cfg or _get_global_compiler_config()) as config, trace.whole_inputs():
        dev.microbatch_size, dev.microbatch_count = microbatch_size, microbatch_count
        graph, outputs, *_ = dev.generate_graph(
            *given, target_tensors=list(targets), graph_name=graph_name, trace_only=True
        )
        executable, netlist = None, None
        if config.compile_depth.value >= CompileDepth.BALANCER_PASS.value:
            values = [value._value for value in given]
            executable = compiled(dev, values)
            if config.backend_output_dir:
                netlist = Path(config.backend_output_dir) / f"{graph_name}_netlist.yaml"
                netlist.parent.mkdir(parents=True, exist_ok=True)
                netlist.write_text(executable.netlist(), encoding="utf-8")
        if verify_cfg is not None and verify_cfg.enabled and all(value.has_value() for value in given):
            kind = TestKind.get(config.enable_training, verify_cfg.test_kind.is_recompute())
            verify_device(
                dev,
                [value.value() for value in given],
                dataclasses.replace(verify_cfg, graph_name=graph_name, test_kind=kind),
                None if losses is None else [value_of_tensor(loss) for loss in losses],
                is_exact=True,  # a compilation is compared, and no run
            )
    return CompileResults(
        outputs=list(outputs),
        golden_outputs=[value.value() for value in outputs if value.has_value()],
        initial_graph=graph,
        lowered_graph=executable,
        netlist_filename=None if netlist is None else str(netlist),
        pass_specific_output_kwargs={} if executable is None else {"plan": executable.plan},
    )
