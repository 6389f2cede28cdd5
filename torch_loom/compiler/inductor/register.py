"""Registers the device with Dynamo and Inductor, with each part of them when it is first imported."""

from __future__ import annotations

import torch

from torch_loom import config
from torch_loom.compiler.inductor import trace_rules


def register_with_dynamo() -> None:
    """Give Dynamo the device's interface: under its name and each index, as PyTorch does for its own."""
    from torch._dynamo.device_interface import register_interface_for_device

    from torch_loom.compiler.inductor.interface import interface_of

    name = config.device_name()
    interface = interface_of(name)
    register_interface_for_device(name, interface)
    for index in range(getattr(torch, name).device_count()):
        register_interface_for_device(f"{name}:{index}", interface)


def register_trace_rules() -> None:
    """Let Dynamo trace the functions of the device's module that it traces of ``torch.cuda``."""
    trace_rules.add(config.device_name())


def register_constants() -> None:
    """Let Dynamo evaluate those of them while it traces whose answers do not change."""
    trace_rules.add_constants(config.device_name())


def register_shape_functions() -> None:
    """Let PyTorch's shape functions take the device for its engine where they ask what it is."""
    from torch_loom.compiler.inductor.fakes import lay_out_as_engine

    lay_out_as_engine(config.device_name())


def register_fake_kernels() -> None:
    """Let fake convolutions lie in memory as the engine's do."""
    from torch_loom.compiler.inductor.fakes import lay_out_convolutions_as_engine

    lay_out_convolutions_as_engine(config.device_name())


def register_with_inductor() -> None:
    """Have Inductor generate C++ for the device, by its scheduling of the CPU."""
    from torch._inductor.codegen.common import register_backend_for_device, register_device_op_overrides
    from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen

    from torch_loom.compiler.inductor.cache_key import GeneratedBy
    from torch_loom.compiler.inductor.codegen import LoomCppScheduling, LoomWrapperCodegen
    from torch_loom.compiler.inductor.flex_attention import decompose
    from torch_loom.compiler.inductor.overrides import LoomOpOverrides
    from torch_loom.compiler.patches import captures, rules

    name = config.device_name()
    register_backend_for_device(
        name, LoomCppScheduling, LoomWrapperCodegen, None, WrapperFxCodegen, GeneratedBy()
    )
    register_device_op_overrides(name, LoomOpOverrides(name))
    rules.is_no_gpu(name)
    rules.ask_for_no_triton(name)
    rules.schedule_as_cpp(name)
    rules.lower_as_cpp(name)
    rules.compute_on_device(name)
    rules.fold_on_host(name)
    rules.divide_whole_numbers(name, takes_zeros=config.resolve().asserts == "device")
    rules.generate_as_cpp(name)
    if name == config.CUDA_NAME:
        rules.pad_by_ops()
    rules.multiply_into_wider_dtypes(name)
    captures.capture_as_loom(name)
    decompose(name)


def register_own_backend() -> None:
    """Register the compiler of our own as ``torch.compile(backend=…)``, under the device's name and loom."""
    from torch._dynamo.backends.registry import register_backend

    from torch_loom.compiler.backend import loom_backend

    for name in {config.device_name(), "loom"} - {"cuda"}:
        register_backend(loom_backend, name=name)
