"""Registers the device with Dynamo and Inductor, with each part of them when it is first imported."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import torch

from torch_loom import config, late
from torch_loom.errors import NotApplicableError

lowerings = late.lazily("torch_loom.compiler.inductor.lowerings")
trace_rules = late.lazily("torch_loom.compiler.inductor.trace_rules")


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
    from torch_loom.patches import shape_functions

    shape_functions.engine_hinted.apply()


def register_fake_kernels() -> None:
    """Let fake convolutions lie in memory as the engine's do."""
    from torch_loom.compiler.inductor.fakes import lay_out_convolutions_as_engine

    lay_out_convolutions_as_engine(config.device_name())


def register_timing() -> None:
    """Let Inductor time a kernel by one run, where it takes the device for a GPU."""
    from torch_loom.patches import inductor_for_gpu

    if config.device_name() == config.CUDA_NAME:
        inductor_for_gpu.timed_once.apply()


def register_with_inductor() -> None:
    """Have Inductor generate C++ for the device, by its scheduling of the CPU.

    Under ``TORCH_LOOM_INDUCTOR=triton`` nothing is registered: it generates what it does for a GPU.
    """
    from torch_loom.patches import inductor_for_gpu

    inductor_for_gpu.no_wrapper_in_cpp.apply(NotApplicableError)
    if config.generates_triton():
        _generate_as_for_gpu()
        return
    from torch._inductor.codegen.common import register_backend_for_device, register_device_op_overrides
    from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen

    from torch_loom.compiler.inductor.cache_key import GeneratedBy
    from torch_loom.compiler.inductor.codegen import LoomCppScheduling, LoomWrapperCodegen
    from torch_loom.compiler.inductor.flex_attention import decompose
    from torch_loom.compiler.inductor.graphs import capture
    from torch_loom.compiler.inductor.overrides import LoomOpOverrides
    from torch_loom.patches import inductor_captures, inductor_random, inductor_rules

    name = config.device_name()
    register_backend_for_device(
        name, LoomCppScheduling, LoomWrapperCodegen, None, WrapperFxCodegen, GeneratedBy()
    )
    register_device_op_overrides(name, LoomOpOverrides(name))
    if name == config.CUDA_NAME:
        inductor_rules.no_gpu.apply()
        lowerings.pad_by_ops()
        lowerings.convert_to_whole_numbers_as_cuda()
    inductor_random.draw_as_triton()
    inductor_rules.no_triton.apply()
    inductor_rules.scheduled_as_cpp.apply()
    inductor_rules.lowered_as_cpp.apply()
    inductor_rules.variances_in_two_steps.apply()
    inductor_rules.padded_in_place.apply()
    inductor_rules.computed_on_device.apply()
    inductor_rules.folded_on_host.apply()
    inductor_rules.divided_whole_numbers.apply()
    inductor_rules.generated_as_cpp.apply()
    lowerings.copy_together(name)
    lowerings.multiply_into_wider_dtypes(name)
    if config.resolve().asserts == "device":
        lowerings.divide_by_zeros(name)
    inductor_captures.cut_graphs.apply()
    if name != config.CUDA_NAME:
        inductor_captures.captured.apply(capture)
        inductor_captures.allowed_captures.apply()
        inductor_captures.backward_without_trees.apply()
    decompose(name)


def _generate_as_for_gpu() -> None:
    from torch_loom.patches import inductor_for_gpu

    inductor_for_gpu.buffers_of_device.apply()
    inductor_for_gpu.launched_by_triton.apply()
    inductor_for_gpu.no_barriers_of_grids.apply()


def register_own_backend() -> None:
    """Register the compiler of our own as ``torch.compile(backend=…)``, under the device's name and loom.

    As an entry point, which Dynamo loads when a program names it: every optimizer imports Dynamo.
    """
    from torch._dynamo.backends import registry

    for name in {config.device_name(), "loom"} - {"cuda"}:
        registry._BACKENDS[name] = EntryPoint(
            name, "torch_loom.compiler.backend:loom_backend", "torch_dynamo_backends"
        )
