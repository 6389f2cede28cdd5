"""A stage on the host's processor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from torch_loom.config.keywords import names_near_keywords
from torch_loom.errors import PyBudaError
from torch_loom.pipeline import Stage
from torch_loom.pybuda.config import CompilerConfig
from torch_loom.pybuda.device import Device, is_buda
from torch_loom.pybuda.execution.frontends import TFModule
from torch_loom.pybuda.module import Module
from torch_loom.pybuda.tensor import Tensor

_NARROW = (torch.float16, torch.bfloat16)


class CPUDevice(Device):
    """Runs PyTorch modules on the host, as they are.

    Args:
        name: unique in the program.
        optimizer_f: called with the device's parameters (a list with ``parameters()``, so that both
            ``SGD(p)`` and ``SGD(p.parameters())`` work); returns a PyTorch optimizer.
        scheduler_f: called with that optimizer; returns a PyTorch scheduler.
        mp_context: a context of ``multiprocessing`` that spawns; None: the device runs in a thread.
        retain_backward_graph: keep the graph of a forward after its backward.
        module: placed at once.
        input_dtypes: dtypes to cast the inputs to. Without it, 16-bit floats become float32.
    """

    @names_near_keywords
    def __init__(
        self,
        name: str,
        optimizer_f: Callable[..., Any] | None = None,
        scheduler_f: Callable[..., Any] | None = None,
        mp_context: Any = None,
        retain_backward_graph: bool = False,
        module: Module | list[Module] | None = None,
        input_dtypes: list[torch.dtype] | None = None,
    ) -> None:
        super().__init__(name, mp_context)
        self.optimizer_f, self.scheduler_f = optimizer_f, scheduler_f
        self.retain_backward_graph = retain_backward_graph
        self.input_dtypes = list(input_dtypes or [])
        if module is not None:
            self.place_module(module)

    def forward_tf(self, loop_count: int) -> None:
        """Run micro-batches of TensorFlow modules forward, as ``forward``."""
        self._need_tensorflow("forward_tf")
        self.forward(loop_count)

    def compile_for(  # type: ignore[override]
        self,
        inputs: tuple[Tensor, ...],
        compiler_cfg: CompilerConfig | None = None,
        targets: Sequence[Tensor] = [],
        microbatch_size: int = 0,
        microbatch_count: int = 1,
        verify_cfg: Any = None,
    ) -> tuple[Tensor, ...]:
        """Run shapes through the modules and return the outputs, without values where inputs have none.

        Nothing is compiled for the host.
        """
        super().compile_for(False, microbatch_size, microbatch_count)
        reference = self.reference_stage()
        values = tuple(value._value for value in inputs)
        if any(value.is_meta for value in values):
            for module in reference.modules.values():
                module.to("meta")
            values = tuple(value.to("meta") for value in values)
        with torch.no_grad(), self._naming("compile_for"):
            return tuple(Tensor(output) for output in reference.compute(values))

    def compile_for_tf(
        self,
        inputs: tuple[Tensor, ...],
        compiler_cfg: CompilerConfig | None = None,
        targets: Sequence[Tensor] = [],
        microbatch_size: int = 0,
        verify_cfg: Any = None,
    ) -> tuple[Tensor, ...]:
        """Run shapes through TensorFlow modules, as ``compile_for``."""
        self._need_tensorflow("compile_for_tf")
        return self.compile_for(inputs, compiler_cfg, targets, microbatch_size, 1, verify_cfg)

    def cpueval_forward_tf(
        self,
        inputs: list[torch.Tensor],
        parameters: dict[str, torch.Tensor],
        save_for_backward: bool,
        targets: Sequence[torch.Tensor] = [],
    ) -> list[torch.Tensor]:
        """Run TensorFlow modules for verification, as ``cpueval_forward``."""
        self._need_tensorflow("cpueval_forward_tf")
        return self.cpueval_forward(inputs, parameters, save_for_backward, targets)

    # PyTorch's modules run as any others.
    forward_pt = Device.forward
    compile_for_pt = compile_for
    cpueval_forward_pt = Device.cpueval_forward

    def _need_tensorflow(self, name: str) -> None:
        if not any(isinstance(module, TFModule) for module in self.modules):
            raise PyBudaError(
                f"{name}: device {self.name!r} has no TFModule; place one, which needs TensorFlow"
            )

    def _check_module(self, module: Module) -> None:
        if is_buda(module):
            raise PyBudaError(
                f"PyBuda module {module.name!r} cannot run on CPU device {self.name!r}: use a TTDevice"
            )
        if isinstance(module, TFModule) and self.mp_context is not None:
            raise PyBudaError(
                f"TensorFlow module {module.name!r} runs in a thread: make device {self.name!r} without "
                "mp_context"
            )

    def _new_stage(self, modules: dict[str, nn.Module]) -> Stage:
        return self.stage_of(
            modules,
            loss=self._loss(),
            optimizer=self.optimizer_f,
            scheduler=self.scheduler_f,
            keep_modules=True,
            retain_graph=self.retain_backward_graph,
            adapt=functools.partial(_adapted, self.name, self.input_dtypes),
        )


def _adapted(
    name: str, dtypes: Sequence[torch.dtype], inputs: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, ...]:
    """Cast inputs to the dtypes that were asked for, or 16-bit floats to float32."""
    if dtypes:
        if len(dtypes) != len(inputs):
            raise PyBudaError(f"device {name!r} has {len(dtypes)} input_dtypes for {len(inputs)} inputs")
        return tuple(value.to(dtype) for value, dtype in zip(inputs, dtypes, strict=True))
    return tuple(value.float() if value.dtype in _NARROW else value for value in inputs)


class GPUDevice(CPUDevice):
    """Runs PyTorch modules on a GPU.

    Raises:
        PyBudaError: PyTorch sees no GPU.
    """

    def __init__(self, name: str, *args: Any, **kwargs: Any) -> None:
        if not torch.cuda.is_available():
            raise PyBudaError(f"GPUDevice {name!r}: PyTorch sees no GPU; use CPUDevice or TTDevice")
        self.device = "cuda"
        super().__init__(name, *args, **kwargs)

    def torch_device(self) -> torch.device:
        """Return the GPU."""
        return torch.device(self.device)
