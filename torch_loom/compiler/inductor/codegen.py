"""Inductor's C++ scheduling and Python wrapper, for kernels that are submitted to a stream of the device."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen

from torch_loom import config

_CPU_BINDING = "async_compile.cpp_pybinding("
_OWN_BINDING = "loom_kernel("
_CPU_BUFFER = "empty_strided_cpu("
_OWN_BUFFER = "loom_buffer("
# The first line of a kernel's source. A graph may have kernels of the host as well, of the same source even.
_MARK = "// submitted to the device\n"


class LoomCppScheduling(CppScheduling):
    """The CPU's scheduling: the same loops, vectors and fusions."""

    def define_kernel(self, src_code: str, nodes: Any, kernel_args: Any = None) -> str:
        name: str = super().define_kernel(_MARK + src_code, nodes, kernel_args)  # type: ignore[no-untyped-call]
        return name


class _OwnKernels:
    """What both wrappers do: allocate on the device, and submit kernels instead of calling them."""

    def write_header(self) -> None:
        super().write_header()  # type: ignore[misc]
        self.imports.splice(  # type: ignore[attr-defined]
            "from torch_loom.compiler.inductor.kernels import compile_kernel as loom_kernel\n"
            "from torch_loom.compiler.inductor.kernels import make_buffer as loom_buffer"
        )

    def define_kernel(
        self,
        kernel_name: str,
        kernel_body: str,
        metadata: str | None = None,
        gpu: bool = True,
        cpp_definition: str | None = None,
    ) -> Any:
        if kernel_body.startswith(_CPU_BINDING) and _MARK in kernel_body:
            kernel_body = f"{_OWN_BINDING}{kernel_name!r}, {kernel_body.removeprefix(_CPU_BINDING)}"
        return super().define_kernel(kernel_name, kernel_body, metadata, gpu, cpp_definition)  # type: ignore[misc]

    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: Any, *, device: Any = None, triton: bool = True, **kwargs: Any
    ) -> None:
        if not triton and device is not None and device.type == config.device_name():
            # The line is that of a Python function on any device.
            device = torch.device("cpu")
        super()._generate_kernel_call_helper(  # type: ignore[misc]
            kernel_name, call_args, device=device, triton=triton, **kwargs
        )

    def make_allocation(
        self,
        name: str,
        device: torch.device,
        dtype: torch.dtype,
        shape: Any,
        stride: Any,
        allocation_shape: Any = None,
        is_pinned: bool = False,
    ) -> str:
        given = (dtype, shape, stride, allocation_shape)
        if device.type == config.device_name() and device.index is not None:
            line: str = super().make_allocation(name, torch.device("cpu"), *given)  # type: ignore[misc]
            own = line.replace(_CPU_BUFFER, f"{_OWN_BUFFER}{device.index}, ", 1)
            if own != line:
                return own
        line = super().make_allocation(name, device, *given, is_pinned)  # type: ignore[misc]
        # Inductor leaves the index out, which then is the current device's.
        return line.replace(f"device='{device.type}'", f"device='{device}'")


class LoomWrapperCodegen(_OwnKernels, PythonWrapperCodegen):
    """The Python code around the kernels of a graph."""

    @staticmethod
    def create(
        is_subgraph: bool, subgraph_name: Any, parent_wrapper: Any, partition_signatures: Any = None
    ) -> PythonWrapperCodegen:
        if is_subgraph:
            return _LoomSubgraphCodegen(subgraph_name, parent_wrapper, partition_signatures)
        return LoomWrapperCodegen()  # type: ignore[no-untyped-call]


class _LoomSubgraphCodegen(_OwnKernels, SubgraphPythonWrapperCodegen):
    pass
