"""Tensors, parameters, modules, optimizers, configuration, and a device's own loop."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

import pytest
import torch
from torch import nn

from tests.pybuda.models import SIZE, Blend, Echo, Projection, inputs
from torch_loom import numerics, pybuda
from torch_loom.errors import PyBudaError
from torch_loom.pybuda import op, optimizers, query
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.enums import BackendDevice, BackendType, CompileDepth
from torch_loom.pybuda.run.commands import Command, CommandType


def test_import_pybuda_finds_the_same_modules() -> None:
    import torch_loom.compat.pybuda  # noqa: F401

    assert importlib.import_module("pybuda") is pybuda
    for name in ("op.nn", "_C.backend_api", "run.api", "pybudaglobal", "config", "torch_schedulers"):
        ours = importlib.import_module(f"torch_loom.pybuda.{name}")
        assert importlib.import_module(f"pybuda.{name}") is ours
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pybuda.nothing")
    assert all(
        not name.startswith("pybuda") or sys.modules[name].__name__ != name for name in list(sys.modules)
    )


def test_enums_have_the_documented_values() -> None:
    assert pybuda.DataFormat.Float16_b.value == 5
    assert [member.value for member in pybuda.DeviceMode] == [0, 1, 2]
    assert [member.value for member in CompileDepth] == list(range(15))
    assert BackendDevice.from_string("wormhole_b0") is BackendDevice.Wormhole_B0
    assert BackendDevice.from_string("other") is BackendDevice.Invalid
    assert BackendDevice.Blackhole.to_string() == "Blackhole"
    assert pybuda.DataFormat.from_json(pybuda.DataFormat.Bfp8.to_json()) is pybuda.DataFormat.Bfp8
    with pytest.raises(ValueError, match="Bfp9"):
        pybuda.DataFormat.from_json("Bfp9")


def test_tensors() -> None:
    made = pybuda.Tensor.create_from_torch(torch.ones(2, 40, 3))
    assert (made.shape.r, made.shape.c, made.shape.z, made.shape.w) == (40, 3, 2, 1)
    assert (made.shape.rt, made.shape.ct, made.shape[1], len(made.shape)) == (2, 1, 40, 3)
    assert made.shape.get_pytorch_shape() == (2, 40, 3)
    assert made.data_format is pybuda.DataFormat.Float32
    assert made.to_format(pybuda.DataFormat.Bfp8_b).pt_data_format is torch.bfloat16
    assert made.to_framework("pytorch") is made.value()
    with pytest.raises(RuntimeError, match="no framework"):
        made.to_framework("numpy")
    formats = {
        torch.float16: "Float16", torch.bfloat16: "Float16_b", torch.int8: "Int8",
        torch.bool: "Bfp2_b", torch.int32: "Int32",
    }  # fmt: skip
    for dtype, name in formats.items():
        assert pybuda.Tensor.create_from_torch(torch.ones(1).to(dtype)).data_format.name == name
    with pytest.warns(UserWarning, match="int64"):
        assert pybuda.Tensor.create_from_torch(torch.ones(1).long()).data_format is pybuda.DataFormat.Int8
    with pytest.raises(RuntimeError, match="complex64"):
        pybuda.Tensor.create_from_torch(torch.ones(1, dtype=torch.complex64))
    traced = pybuda.Tensor.create_from_trace("op", (2, 3), pybuda.DataFormat.Float16)
    assert (traced.has_value(), traced.shape, traced.clone().has_value()) == (False, (2, 3), False)


def test_parameters() -> None:
    with pytest.raises(RuntimeError, match="sizes or a tensor"):
        pybuda.Parameter()
    empty = pybuda.Parameter(2, 3, name="p", requires_grad=False)
    assert (empty.shape, empty.has_value(), empty.requires_grad) == ((2, 3), False, False)
    with pytest.raises(PyBudaError, match="value"):
        empty.value()
    with pytest.raises(PyBudaError, match=r"\(2, 3\), not \(3, 2\)"):
        empty.set_value(torch.ones(3, 2))
    empty.set_value(torch.ones(2, 3))
    padded = empty.value(is_buda=True)
    assert (padded.shape, padded.sum().item()) == ((1, 1, 32, 32), 6)
    empty.set_data_format(pybuda.DataFormat.Float16)
    assert empty.value().dtype is torch.float16
    assert empty.get_empty_tensor().shape == (2, 3)
    assert pybuda.Parameter.create_from_torch(torch.ones(2)).shape == (2,)


def test_pybuda_modules_register_what_is_assigned() -> None:
    class Inner(pybuda.PyBudaModule):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.w = pybuda.Parameter(torch.ones(2, 2))

        def forward(self, x: Any) -> Any:
            return op.Matmul(f"{self.name}.mm", x, self.w)

    class Outer(pybuda.PyBudaModule):
        seen: tuple[Any, ...] = ()

        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.one = Inner("ignored")
            self.many = [Inner("a"), Inner("b")]
            self.scale = pybuda.Parameter(torch.full((1,), 2.0))
            self.add_constant("offset", shape=(1,))
            self.set_constant("offset", torch.tensor([0.5]))

        def pre_forward(self, *args: Any, **kwargs: Any) -> None:
            self.seen = (*self.seen, (len(args), sorted(kwargs)))

        def forward(self, x: Any) -> Any:
            for module in (self.one, *self.many):
                x = module(x)
            return x * self.scale + self.get_constant("offset")

    outer = Outer("outer")
    names = [p.get_name() for p in outer.get_parameters()]
    assert names == ["outer.scale", "outer.one.w", "outer.many_0.w", "outer.many_1.w"]
    assert [p.get_name() for p in outer.get_parameters(submodules=False)] == ["outer.scale"]
    assert outer.run(torch.ones(1, 2))[0].value().tolist() == [[16.5, 16.5]]
    assert outer(x=torch.ones(1, 2)).value().tolist() == [[16.5, 16.5]]
    assert outer.forward({"x": torch.ones(1, 2)}).value().tolist() == [[16.5, 16.5]]
    assert outer.seen == ((1, []), (0, ["x"]), (0, ["x"]))
    outer.load_parameter_dict({"outer.one.w": torch.zeros(2, 2), "scale": torch.ones(1)})
    assert outer(torch.ones(1, 2)).value().tolist() == [[0.5, 0.5]]
    for call in (
        lambda: outer.get_parameter("w"),
        lambda: outer.set_parameter("w", torch.ones(1)),
        lambda: outer.get_constant("w"),
        lambda: outer.add_constant("offset"),
        lambda: outer.add_parameter("scale", pybuda.Parameter(1)),
        lambda: outer.set_constant("offset", torch.ones(2)),
        lambda: outer.load_parameter_dict({"nothing": torch.ones(1)}),
    ):
        with pytest.raises(RuntimeError, match=r"outer|offset"):
            call()
    outer.add_parameter("extra", pybuda.Parameter(torch.ones(1)), prepend_name=True)
    assert outer.get_parameter("outer.extra").get_name() == "outer.extra"


def test_pytorch_modules() -> None:
    with pytest.raises(RuntimeError, match=r"takes a torch\.nn\.Module, not function"):
        pybuda.PyTorchModule("f", lambda x: x)  # type: ignore[arg-type]
    module = pybuda.PyTorchModule("sum", Blend(), redirect_forward=False)
    assert [p.get_name() for p in module.get_parameters()] == ["left", "right"]
    module.set_parameters(left=torch.zeros(SIZE, SIZE))
    x, y = inputs()
    out = module.forward(x, pybuda.Tensor.create_from_torch(y))
    assert torch.equal(out, y @ module.module.right)
    module.backward((out, torch.ones_like(out)))
    assert module.module.right.grad is not None
    for wrong in ({"middle": torch.ones(1)}, {"left": torch.ones(1)}):
        with pytest.raises(RuntimeError, match=next(iter(wrong))):
            module.set_parameters(**wrong)
    module.add_parameter("more", pybuda.Parameter(torch.ones(1)), prepend_name=True)
    assert module.get_parameters()[-1].get_name() == "sum.more"
    with pytest.raises(RuntimeError, match="already"):
        module.add_parameter("left", pybuda.Parameter(1))
    for absent in (pybuda.JaxModule, pybuda.MXNetModule, pybuda.TFLiteModule, pybuda.TFGraphDefModule):
        with pytest.raises(PyBudaError, match="ONNX"):
            absent("m")


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_optimizers_are_pytorchs(name: str) -> None:
    made = getattr(optimizers, name)(learning_rate=0.1, device_params=True)
    weight, grad = torch.rand(5), torch.rand(5)
    reference = nn.Parameter(weight.clone())
    reference.grad = grad
    getattr(torch.optim, name)([reference], lr=0.1).step()
    assert torch.equal(made.torch_parameter_update(parameter=weight, gradient=grad), reference.detach())
    assert made.get_type() == name.lower()
    with pytest.raises(RuntimeError, match="either parameters"):
        getattr(optimizers, name)(learning_rate=0.1)


@pytest.mark.parametrize("correction", [False, True])
def test_lamb_over_steps(correction: bool) -> None:
    weight = torch.rand(6) * 20
    made = optimizers.LAMB(0.01, 0.8, 0.9, 1e-3, 0.1, correction, (0.5, 2.0), device_params=True)
    parameter = nn.Parameter(weight.clone())
    stepper = made.get_pytorch_optimizer({"w": parameter})
    p, mean, square = weight.double(), torch.zeros(6).double(), torch.zeros(6).double()
    for step in range(1, 4):
        grad = torch.rand(6)
        parameter.grad = grad.clone()
        stepper.step()
        g = grad.double()
        mean, square = 0.8 * mean + 0.2 * g, 0.9 * square + 0.1 * g * g
        m, v = (mean / (1 - 0.8**step), square / (1 - 0.9**step)) if correction else (mean, square)
        update = m / (v.sqrt() + 1e-3) + 0.1 * p
        p = p - 0.01 * p.norm().clamp(0.5, 2.0) / update.norm() * update
    torch.testing.assert_close(parameter.detach().double(), p, rtol=1e-5, atol=1e-6)
    with pytest.raises(PyBudaError, match="clip_value"):
        optimizers.LAMB(clip_value=(3.0, 1.0), device_params=True)


@pytest.mark.parametrize("nesterov", [False, True])
def test_lars_over_steps(nesterov: bool) -> None:
    made = optimizers.LARS(0.1, 0.5, nesterov, 0.0 if nesterov else 0.25, 0.1, 0.2, device_params=True)
    parameter = nn.Parameter(torch.rand(6))
    stepper = made.get_pytorch_optimizer([parameter])
    p, momentum = parameter.detach().double(), None
    for _ in range(3):
        grad = torch.rand(6)
        parameter.grad = grad.clone()
        stepper.step()
        g = grad.double()
        step = (g + 0.1 * p) * (0.2 * p.norm() / (g.norm() + 0.1 * p.norm()))
        dampening = 0.0 if nesterov else 0.25
        momentum = step if momentum is None else 0.5 * momentum + (1 - dampening) * step
        p = p - 0.1 * (step + 0.5 * momentum if nesterov else momentum)
    torch.testing.assert_close(parameter.detach().double(), p, rtol=1e-5, atol=1e-6)


def test_optimizer_of_chosen_parameters() -> None:
    module = Echo("m")
    tt0 = pybuda.TTDevice("tt0", module=module, optimizer=pybuda.SGD(1.0, parameters=[module.direct]))
    before = tt0.get_parameter_checkpoint()
    tt0.place_loss_module(pybuda.PyTorchModule("loss", First()))
    tt0.push_to_inputs(inputs())
    tt0.push_to_target_inputs(torch.zeros(4, SIZE, SIZE))
    pybuda.run_training(_sequential=True)
    after = tt0.get_parameter_checkpoint()
    changed = [name for name in after if not torch.equal(after[name].value(), before[name].value())]
    assert changed == ["m.direct"]
    assert tt0.pop_parameter_checkpoint().keys() == tt0.get_all_parameters().keys()


class First(nn.Module):
    """The mean of the first output."""

    def forward(self, first: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return first.mean()


def test_configuration() -> None:
    config = _get_global_compiler_config()
    assert (config.backend_opt_level, config.input_queue_entries, config.cpu_fallback_ops) == (
        4,
        1024,
        {"embedding"},
    )
    pybuda.set_configuration_options(
        balancer_policy="Ribbon", math_fidelity=pybuda.MathFidelity.LoFi, harvested_rows=[[1, 2], [7]]
    )
    assert (config.balancer_policy, config.default_math_fidelity) == ("Ribbon", pybuda.MathFidelity.LoFi)
    assert config.harvesting_mask == [0b110, 0b10000000]
    pybuda.set_configuration_options(harvested_rows=[1, 2])
    assert config.harvesting_mask == 0b110  # every chip's
    for wrong in (
        {"balancer_policy": "Best"},
        {"backend_opt_level": 5},
        {"device_config": "wh_n900"},
        {"harvested_rows": [[0]]},
        {"chip_placement_policy": "ANY"},
        {"math_fidelity": "LoFi"},
    ):
        with pytest.raises(RuntimeError, match=next(iter(wrong))):
            pybuda.set_configuration_options(**wrong)  # type: ignore[arg-type]
    pybuda.override_op_size("mm", (2, 3))
    pybuda.config.override_t_stream_dir("mm", "R")
    assert config.balancer_op_overrides == {"mm": {"grid_shape": (2, 3), "t_stream_dir": "r"}}
    with pytest.raises(PyBudaError, match="grid_size"):
        pybuda.override_op_size("mm", (0, 3))
    chosen = query.name_regex("enc.*") & ~query.op_type("matmul") | query.layer_regex("head")
    pybuda.set_epoch_break(["a", chosen])
    pybuda.set_chip_break("b")
    assert [chosen("enc.1", "add"), chosen("enc.1", "matmul"), chosen("x.head.1", "matmul"), chosen("y")] == [
        True, False, True, False,
    ]  # fmt: skip
    with pytest.raises(PyBudaError, match="text or a predicate"):
        pybuda.set_epoch_break(3)  # type: ignore[arg-type]
    pybuda.insert_nop("a", ["b", "c"], nop_count=2)
    assert config.buffering_nops_to_insert[0]["names"] == ["buffer_0_a_b", "buffer_1_a_b"]
    with pytest.raises(PyBudaError, match="needs one of"):
        pybuda.configure_mixed_precision(output_df=pybuda.DataFormat.Bfp8_b)
    with pytest.raises(PyBudaError, match="output_df is 'Bfp8_b'; it is a DataFormat"):
        pybuda.configure_mixed_precision(name_regex="mm", output_df="Bfp8_b")  # type: ignore[arg-type]
    pybuda.configure_mixed_precision(name_regex="mm", output_df=pybuda.DataFormat.Bfp8_b)
    assert config.amp_properties == [{"name_regex": "mm", "output_df": pybuda.DataFormat.Bfp8_b}]
    assert '"balancer_policy": "Ribbon"' in config.to_json()
    pybuda.pybuda_reset()
    assert _get_global_compiler_config().balancer_policy == "default"


@pytest.mark.long
def test_silicon_of_a_tensix_chip_computes_in_its_formats() -> None:
    x = torch.rand(4, SIZE)
    module = Projection("m")
    exact = x @ module.basis.value()
    results = {}
    for devtype, arch in (
        (BackendType.Golden, BackendDevice.Wormhole_B0),
        (BackendType.Silicon, None),
        (BackendType.Silicon, BackendDevice.Wormhole_B0),
    ):
        pybuda.TTDevice("tt0", devtype=devtype, arch=arch)
        results[devtype, arch] = pybuda.run_inference(module, inputs=[(x,)]).get(timeout=60)[0].value()
        pybuda.pybuda_reset()
    assert torch.equal(results[BackendType.Golden, BackendDevice.Wormhole_B0], exact)
    assert torch.equal(results[BackendType.Silicon, None], exact), "loom1 is exact"
    config = _get_global_compiler_config()
    with numerics.emulate(pybuda.DataFormat.Float16_b, fidelity=config.default_math_fidelity):
        emulated = torch.matmul(x, module.basis.value())
    assert torch.equal(results[BackendType.Silicon, BackendDevice.Wormhole_B0], emulated)
    assert not torch.equal(emulated, exact)


def test_the_devices_own_loop() -> None:
    tt0 = pybuda.TTDevice("tt0", module=Projection("m"))
    x = torch.rand(2, SIZE)
    results = pybuda.initialize_pipeline(training=False, sample_inputs=(x,))
    # While the pipeline runs the device's worker takes the commands.
    tt0.push_to_inputs(x)
    tt0.push_to_command_queue(Command.run_forward(1))
    assert results.get(timeout=60)[0].shape == (2, SIZE)
    tt0.push_to_command_queue(Command.get_parameter_checkpoint())
    answer = tt0.get_command_queue_response()
    assert answer is not None
    assert list(answer["checkpoint"]) == ["m.basis"]
    tt0.sync()
    # In the calling thread.
    tt0.push_to_inputs(x)
    tt0.forward(1)
    assert len(results.get(timeout=60)) == 1
    assert tt0.run_next_command(Command.quit())
    assert not tt0.run_next_command(Command.sync())
    assert tt0.get_command_queue_response() == {"sync": True}
    pybuda.shutdown()
    with pytest.raises(PyBudaError, match="initialize_pipeline"):
        tt0.forward(1)
    with pytest.raises(PyBudaError, match="direction 'up'"):
        tt0.dc_transfer("up")
    # A loop of its own, without a pipeline.
    for command in (Command.dc_transfer("forward"), Command.sync(), Command.quit(), Command.sync()):
        tt0.push_to_command_queue(command)
    tt0.run("")
    assert tt0.get_command_queue_response() == {"sync": True}
    assert tt0.command_queue.qsize() == 1
    waiting = threading.Thread(target=tt0.dc_transfer_thread, args=("forward", tt0.command_queue))
    waiting.start()
    tt0.push_to_command_queue(Command(CommandType.QUIT))
    waiting.join(60)
    assert not waiting.is_alive()
    tt0.shutdown_device()
    assert tt0.get_next_command(tt0.command_queue) is None
    assert tt0.get_command_queue_response() is None


def test_cpueval() -> None:
    module = Echo("m")
    tt0 = pybuda.TTDevice("tt0", module=module)
    dry, wet = inputs()
    other = torch.rand(SIZE, SIZE)
    out = tt0.cpueval_forward([dry, wet], {"m.delayed": other}, save_for_backward=True)
    assert torch.equal(out[1], wet @ other)
    in_grads, grads = tt0.cpueval_backward([torch.ones_like(o) for o in out], {})
    a, b = dry.clone().requires_grad_(), other.clone().requires_grad_()
    second = wet @ b
    (a @ module.direct.value() * second + second).sum().backward()
    torch.testing.assert_close(in_grads[0], a.grad)
    torch.testing.assert_close(grads["m.delayed"], b.grad)
    with pytest.raises(PyBudaError, match="save_for_backward"):
        tt0.cpueval_backward([], {})
    cpu0 = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("s", Blend()))
    assert cpu0.cpueval_forward_pt([dry, wet], {}, False)[0].shape == dry.shape
    for call in (cpu0.forward_tf, cpu0.compile_for_tf):
        with pytest.raises(PyBudaError, match="TensorFlow"):
            call(1)  # type: ignore[operator]


def test_compile_for_gives_shapes() -> None:
    tt0 = pybuda.TTDevice("tt0", module=Echo("m"))
    traced = tuple(
        pybuda.Tensor.create_from_trace("x", (4, SIZE, SIZE), pybuda.DataFormat.Float32) for _ in "ab"
    )
    for device in (tt0, pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("s", Blend()))):
        outputs = device.compile_for(traced, _get_global_compiler_config(), microbatch_size=4)
        assert all(out.shape == (4, SIZE, SIZE) and not out.has_value() for out in outputs)
        assert device.microbatch_size == 4
        for name, wrong in (("microbatch_size", -5), ("microbatch_count", 0)):
            with pytest.raises(PyBudaError, match=f"compile_for: {name} is {wrong}; it is a whole number"):
                device.compile_for(traced, **{name: wrong})
    with pytest.raises(PyBudaError, match=r"is none of the 1 sub-graphs: CompilerConfig\.compile_subgraphs"):
        tt0.set_active_subgraph(1)
    tt0.set_active_subgraph(0)
    assert tt0.get_active_subgraph() == 0
    assert [p.get_name() for p in tt0.get_parameters()] == ["m.direct", "m.delayed"]


def test_debug_gradients() -> None:
    import queue

    seen: queue.Queue[Any] = queue.Queue()
    tt0 = pybuda.TTDevice("tt0", module=Projection("m"))
    tt0.place_loss_module(op.loss.L1Loss("l1"))
    tt0.set_debug_gradient_trace_queue(seen)
    tt0.push_to_inputs(torch.rand(2, SIZE))
    tt0.push_to_target_inputs(torch.rand(2, SIZE))
    pybuda.run_training(_sequential=True)
    assert seen.get(timeout=60)[0].value().tolist() == [[1.0], [1.0]]
