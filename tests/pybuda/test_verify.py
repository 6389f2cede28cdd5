"""Verification finds what is wrong, says where, and passes what is right."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from tests.pybuda.models import SIZE, Blend, Echo, Projection
from torch_loom import pybuda
from torch_loom.compiler import passes
from torch_loom.errors import PyBudaError, VerificationError
from torch_loom.numerics import quantize
from torch_loom.pybuda import VerifyConfig
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.enums import BackendDevice, BackendType, TestKind
from torch_loom.pybuda.verify import compare_tensors, correlation, verify_module, verify_module_pipeline
from torch_loom.pybuda.verify import stages as verified_stages

SHAPES = [(2, SIZE, SIZE), (2, SIZE, SIZE)]


def test_close_or_correlated_passes() -> None:
    reference = torch.linspace(-1, 1, 100)
    assert compare_tensors(reference, reference + 0.09).passed, "within a tenth of the largest value"
    shifted = compare_tensors(reference, reference * 2 + 5)
    assert shifted.passed, "correlated"
    assert shifted.pcc == pytest.approx(1)
    assert shifted.max_difference == pytest.approx(6)
    wrong = compare_tensors(reference, reference.flip(0))
    assert not wrong.passed
    assert "correlation -1 below 0.99, largest difference 2 above 0.1" in wrong.reason
    assert not compare_tensors(reference, torch.zeros(100)).passed
    assert not compare_tensors(reference, torch.zeros(99)).passed
    assert compare_tensors(torch.zeros(3), torch.zeros(3)).passed


def test_tolerances() -> None:
    reference, noisy = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1.05, 1.0, 1.0])
    assert not compare_tensors(reference, noisy, VerifyConfig(atol=0.01)).passed
    assert compare_tensors(reference, noisy, VerifyConfig(atol={torch.float32: 0.06})).passed
    assert compare_tensors(reference, noisy, VerifyConfig(atol=0.0, rtol=0.06)).passed
    assert not compare_tensors(reference, noisy, VerifyConfig(relative_atol=0.01)).passed
    assert compare_tensors(reference, -noisy, VerifyConfig(golden_compare_callback=lambda a, b: True)).passed
    low = VerifyConfig(relative_atol=0.0, pcc=0.5)
    assert compare_tensors(torch.tensor([1.0, 2, 3]), torch.tensor([1.0, 3, 2.5]), low).passed
    assert compare_tensors(reference, -noisy, VerifyConfig(pcc=-1)).passed
    wrong: dict[str, list[Any]] = {
        "pcc": [1.5, "x"],
        "atol": [-1.0, "x"],
        "rtol": [{torch.float32: -1.0}, {"float32": 1.0}],
        "steps": [0, 1.5],
        "test_kind": ["INFERENCE"],
        "verify_all": [2],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(PyBudaError, match=f"^VerifyConfig: {name} is .*; it is "):
                VerifyConfig(**{name: value})
            with pytest.raises(PyBudaError, match=f"^VerifyConfig: {name} is .*; it is "):
                setattr(VerifyConfig(), name, value)
    with pytest.raises(
        PyBudaError, match="VerifyConfig has no setting 'verify_al': do you mean 'verify_all'"
    ):
        VerifyConfig().verify_al = True  # type: ignore[attr-defined]
    with pytest.raises(
        TypeError, match=r"VerifyConfig\(\) has no argument 'verify_al': do you mean 'verify_all'"
    ):
        VerifyConfig(verify_al=True)  # type: ignore[call-arg]


WITHOUT_EFFECT: dict[str, Any] = {
    "intermediates": True,
    "run_golden": False,
    "run_net2pipe": True,
    "golden_ignore_df_precision": False,
    "verify_post_autograd_passes": False,
    "verify_post_placer": False,
    "verify_tvm_compile": True,
    "verify_pybuda_codegen_vs_framework": True,
    "devmode": pybuda.DeviceMode.CompileOnly,
    "optimizer": None,
    "scheduler": {"type": "step"},
    "microbatch_size": 2,
    "epoch_breaks": ["a"],
    "tti_path": "a.tti",
    "checkpoint_interval": 2,
}


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_what_has_no_effect_warns_once(name: str) -> None:
    with pytest.warns(UserWarning, match=f"^VerifyConfig: {name} has no effect: ") as told:
        config = VerifyConfig(**{name: WITHOUT_EFFECT[name]})
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert getattr(dataclasses.replace(config), name) == WITHOUT_EFFECT[name]
        VerifyConfig.disabled()


def test_each_setting_without_effect_is_tested() -> None:
    assert {name for name, one in VerifyConfig.declared().items() if "warns" in one.metadata} == {
        *WITHOUT_EFFECT
    }


class Doubled(pybuda.PyBudaModule):
    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Add("twice", x, x)


@pytest.mark.long
def test_passes_are_those_of_the_device() -> None:
    """For its chip and under the program's options: from the pass that rounds on, values are rounded."""
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Bfp4_b)
    chip: dict[str, Any] = {
        "arch": BackendDevice.Wormhole_B0,
        "devtype": BackendType.Silicon,
    }
    config = VerifyConfig(verify_all=True, pcc=0.8, verify_pipeline_result_vs_framework=False, **chip)
    done = verify_module(Projection("m"), [(2, SIZE, SIZE)], config)
    close = {one.stage: one.comparison.pcc > 0.99999 for one in done}
    assert close["pass 'formats'"]
    assert not close["pass 'quantise'"]
    assert _get_global_compiler_config().default_df_override is pybuda.DataFormat.Bfp4_b
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Bfp2_b)
    with pytest.raises(VerificationError, match=r"correlation .* below 0\.8"):
        verify_module(Projection("m"), [(2, SIZE, SIZE)], config)


def test_losses_and_modules_without_parameters() -> None:
    config = VerifyConfig(test_kind=TestKind.TRAINING, verify_last=False)
    for loss in (None, pybuda.op.loss.L1Loss("l1")):
        done = verify_module(Doubled("m"), [(2, SIZE, SIZE)], config, loss_module=loss)
        assert [one.stage for one in done] == ["OUTPUTS", "GRADIENTS", "FULL"]
    parts = [Doubled("first"), Doubled("second")]
    done = verify_module_pipeline(parts, [(2, SIZE, SIZE)], config, device_types=["TTDevice", "TTDevice"])
    assert len(done) == 5


def test_stored_formats_of_inputs() -> None:
    seen: list[torch.Tensor] = []

    def keep(reference: torch.Tensor, value: torch.Tensor) -> bool:
        seen.append(reference)
        return torch.equal(reference, value)

    config = VerifyConfig(golden_compare_callback=keep, verify_last=False)
    stored = [[{"dev_data_format": pybuda.DataFormat.Bfp8_b}]]
    verify_module(Doubled("m"), [(2, SIZE, SIZE)], config, input_params=stored)  # type: ignore[arg-type]
    for value in seen:
        assert torch.equal(value / 2, quantize(value / 2, pybuda.DataFormat.Bfp8_b))


def test_infinities_and_nans_count_where_they_differ() -> None:
    inf, nan = float("inf"), float("nan")
    both = torch.tensor([1.0, 2.0, inf, nan])
    assert correlation(both, both.clone()) == 1.0
    assert correlation(both, torch.tensor([1.0, 2.0, 3.0, nan])) == 0.0
    assert correlation(both, torch.tensor([1.0, 2.0, -inf, nan])) == 0.0


@pytest.mark.long
def test_a_batch_of_one_input_may_be_the_input() -> None:
    x = torch.rand(2, SIZE, SIZE)
    for given in (x, pybuda.Tensor.create_from_torch(x), (x,)):
        assert verify_module(Doubled("m"), [(2, SIZE, SIZE)], VerifyConfig(), inputs=[given])  # type: ignore[list-item]


@pytest.mark.long
def test_every_pass_and_result_is_compared() -> None:
    done = verify_module(Echo("m"), SHAPES, VerifyConfig(verify_all=True))
    names = [one.stage for one in done]
    assert list(dict.fromkeys(names)) == [
        *(f"pass {one.name!r}" for one in passes.PLAN_PASSES),
        "OUTPUTS",
        "FULL",
    ]
    assert all(one.comparison.pcc > 0.9999 for one in done)
    assert pybuda.pybudaglobal.get_devices() == []
    last = verify_module(Echo("m"), SHAPES, VerifyConfig())
    assert sum(one.stage.startswith("pass") for one in last) == 2, "two outputs after the last pass"
    assert verify_module(Echo("m"), SHAPES, VerifyConfig.disabled()) == []


@pytest.mark.parametrize("devtype", [BackendType.Golden, BackendType.Silicon])
def test_gradients_are_compared(devtype: BackendType) -> None:
    config = VerifyConfig(
        test_kind=TestKind.TRAINING, devtype=devtype, arch=BackendDevice.Wormhole_B0, microbatch_count=2
    )
    done = verify_module(pybuda.PyTorchModule("b", Blend()), SHAPES, config)
    compared = [one.value for one in done if one.stage == "GRADIENTS"]
    assert compared == [
        "gradient of input 0", "gradient of input 1", "gradient of 'left'", "gradient of 'right'",
    ]  # fmt: skip
    assert [one.value for one in done if one.stage == "FULL"] == [
        "result 0 of micro-batch 0", "result 0 of micro-batch 1", "gradient of 'left'", "gradient of 'right'",
    ]  # fmt: skip
    exact = all(one.comparison.max_difference < 1e-4 for one in done)
    assert exact is (devtype is BackendType.Golden)


class WrongGradient(nn.Module):
    """Its backward on a chip is not its backward on the host."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
            return 2 * x * grad if x.device.type == "cpu" else grad

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.Square.apply(self.linear(x))
        return out


def test_a_wrong_gradient_is_found_and_named() -> None:
    config = VerifyConfig(test_kind=TestKind.TRAINING, verify_last=False, graph_name="wrong")
    module = pybuda.PyTorchModule("w", WrongGradient())
    with pytest.raises(VerificationError, match="wrong, GRADIENTS: gradient of input 0 differs: corr"):
        verify_module(module, [(4, SIZE)], config)
    config.enable_input_gradient_checking = False
    with pytest.raises(VerificationError, match=r"gradient of 'linear\.weight' differs"):
        verify_module(module, [(4, SIZE)], config)
    config.waive_gradient_errors = {"linear.weight", "linear.bias"}
    verify_module(module, [(4, SIZE)], config)


@pytest.mark.long
def test_a_wrong_pass_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(graph: torch.fx.GraphModule, context: passes.Context) -> torch.fx.GraphModule:
        [output] = graph.graph.find_nodes(op="output")
        with graph.graph.inserting_before(output):
            results = [graph.graph.call_function(torch.neg, (one,)) for one in output.args[0]]
        output.args = (tuple(results),)
        graph.recompile()
        return graph

    several = (passes.PLAN_PASSES[0], passes.Pass("breaks", breaks), *passes.PLAN_PASSES[1:])
    monkeypatch.setattr(verified_stages, "PLAN_PASSES", several)
    with pytest.raises(VerificationError, match=r"pass 'breaks': output 0 differs"):
        verify_module(Echo("m"), SHAPES, VerifyConfig(verify_all=True))


@pytest.mark.long
def test_a_pipeline_is_verified_device_by_device() -> None:
    modules = [Echo("e"), pybuda.PyTorchModule("b", Blend()), pybuda.PyTorchModule("r", nn.ReLU())]
    done = verify_module_pipeline(
        modules, SHAPES, VerifyConfig(), device_types=["TTDevice", "CPUDevice", "-"]
    )
    # Two outputs of the first device; the other two modules are one device's.
    assert [one.stage for one in done].count("OUTPUTS") == 3
    assert done[-1].stage == "FULL"
    with pytest.raises(PyBudaError, match="one for each module"):
        verify_module_pipeline(modules, SHAPES, VerifyConfig())
    with pytest.raises(PyBudaError, match="device type 'FPGA'"):
        verify_module(modules[0], SHAPES, VerifyConfig(), device_type="FPGA")
    with pytest.raises(PyBudaError, match="input_shapes"):
        verify_module(modules[0], [], VerifyConfig())


def test_modules_are_verified_in_the_mode_of_runs() -> None:
    """In inference without dropout, whatever mode the program left a module in."""
    net = nn.Sequential(nn.Linear(SIZE, SIZE), nn.Dropout(0.5))
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("net", net))
    device.push_to_inputs(torch.rand(2, SIZE))
    output = pybuda.run_inference(_verify_cfg=VerifyConfig(), _sequential=True).get(timeout=60)[0].value()
    assert bool(output.all())


@pytest.mark.long
def test_parameters_without_value_are_filled() -> None:
    class Scaled(pybuda.PyBudaModule):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.factor = pybuda.Parameter(SIZE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return pybuda.op.Multiply("scaled", x, self.factor)

    module = Scaled("s")
    verify_module(module, [(1, SIZE)], VerifyConfig(), scale_params=4.0, uniform_inputs=True)
    assert 0 < module.factor.value().max() <= 0.25
    other = Scaled("other")
    verify_module(other, [(1, SIZE)], VerifyConfig())
    assert other.factor.value().min() > 0
