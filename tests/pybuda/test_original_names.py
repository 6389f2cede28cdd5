"""Names that programs for PyBuda import beside the documented ones, and what they do."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from torch_loom import pybuda
from torch_loom.errors import PyBudaError, VerificationError
from torch_loom.pybuda import op, utils
from torch_loom.pybuda.config import (
    CompilerConfig,
    _clear_global_compiler_config,
    _get_global_compiler_config,
)
from torch_loom.pybuda.op.eval import calculate_pcc, compare_tensor_to_golden
from torch_loom.pybuda.op_repo import pybuda_operator_repository, pytorch_operator_repository
from torch_loom.pybuda.tensor import to_pt_tensors
from torch_loom.pybuda.verify import TestKind, VerifyConfig
from torch_loom.pybuda.verify.stages import verify_device


class Product(pybuda.PyBudaModule):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.by = pybuda.Parameter(torch.rand(32, 32))

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return op.Matmul("product", x, self.by)


def test_modules_of_the_original_are_found() -> None:
    for name in (
        "_C.balancer",
        "_C.graph",
        "_C.placer",
        "op.eval.common",
        "op_repo.datatypes",
        "verify.backend",
    ):
        importlib.import_module(f"torch_loom.pybuda.{name}")
    assert pybuda.pybuda is pybuda
    assert pybuda._C.backend_api.detect_available_silicon_devices() == pybuda.detect_available_devices()
    assert not pybuda.is_silicon(pybuda.BackendType.Golden)
    assert op.Softmax is op.nn.Softmax
    assert op.LogSoftmax is op.nn.LogSoftmax
    assert op.Layernorm is op.nn.Layernorm
    assert op.Batchnorm is op.nn.Batchnorm
    assert op.MaxPool2dModule is op.nn.MaxPool2dModule


def test_kinds_of_tests_say_what_they_do() -> None:
    kinds = [TestKind.get(False), TestKind.get(True), TestKind.get(True, recompute=True)]
    assert kinds == [TestKind.INFERENCE, TestKind.TRAINING, TestKind.TRAINING_RECOMPUTE]
    assert [kind.is_training() for kind in kinds] == [False, True, True]
    assert [kind.is_recompute() for kind in kinds] == [False, False, True]


def test_operators_of_a_repository_exist() -> None:
    for operator in pybuda_operator_repository.operators:
        assert callable(getattr(op, operator.full_name.rpartition(".")[2]))
    linear = pytorch_operator_repository.get_by_name("linear")
    assert linear.is_layer
    assert not linear.is_operator
    with pytest.raises(PyBudaError, match="no operator 'linaer'"):
        pytorch_operator_repository.get_by_name("linaer")


def test_arithmetic_of_tiles() -> None:
    assert (utils.align_up_tile(33), utils.align_up(9, 4), utils.round_up_div(9, 4)) == (64, 12, 3)
    assert (utils.clamp(5, 1, 3), utils.clamp(0, 1), utils.clamp(2)) == (3, 1, 2)
    weight = torch.rand(3, 2).t().requires_grad_()
    [value] = utils.detach_tensors([weight], fix_non_contiguos=True)
    assert value.is_contiguous()
    assert value.requires_grad
    made = utils.get_pybuda_parameters_from_state_dict({"w": weight})
    assert made["w"].requires_grad
    assert to_pt_tensors([pybuda.Tensor.create_from_torch(weight)])[0] is weight
    assert to_pt_tensors(weight)[0] is weight


def test_links_are_replaced_at_once(tmp_path: Path) -> None:
    link = tmp_path / "link"
    for name in ("a", "b"):
        pybuda.ci.create_symlink(str(tmp_path / name), str(link))
        assert link.readlink() == tmp_path / name
    with pytest.raises(FileExistsError, match="link exists"):
        pybuda.ci.create_symlink(str(tmp_path / "a"), str(link), remove_existing=False)


def test_values_are_compared_with_golden_ones() -> None:
    x = torch.rand(4, 4)
    assert compare_tensor_to_golden("x", x, x[None])
    assert calculate_pcc(x, x) == 1.0
    with pytest.raises(VerificationError, match="x differs"):
        compare_tensor_to_golden("x", x, -x)
    with pytest.warns(UserWarning, match="x differs"):
        assert not compare_tensor_to_golden("x", x, -x, warning_only=True)


@pytest.mark.long
def test_pybuda_compile_gives_outputs_graph_and_plan(tmp_path: Path) -> None:
    tt0 = pybuda.TTDevice("tt0", module=Product("m"), devtype=pybuda.BackendType.Golden)
    x = pybuda.Tensor.create_from_torch(torch.rand(1, 32, 32))
    config = CompilerConfig(enable_training=True, backend_output_dir=str(tmp_path))
    made = pybuda.pybuda_compile(
        tt0, "named", x, compiler_cfg=config, verify_cfg=VerifyConfig(), losses=[torch.ones(1, 32, 32)]
    )
    assert torch.equal(made.outputs[0].value(), x.value() @ tt0.modules[0].by.value())  # type: ignore[attr-defined]
    assert made.netlist_filename == str(tmp_path / "named_netlist.yaml")
    assert "product" in Path(made.netlist_filename).read_text(encoding="utf-8")
    assert made.pass_specific_output_kwargs["plan"]["epochs"]
    assert _get_global_compiler_config() is not config
    config.compile_depth = pybuda.CompileDepth.PRE_LOWERING_PASS
    assert pybuda.pybuda_compile(tt0, "early", x, compiler_cfg=config).lowered_graph is None
    wrong = VerifyConfig(golden_compare_callback=lambda a, b: False)
    with pytest.raises(VerificationError, match="named"):
        pybuda.pybuda_compile(tt0, "named", x, verify_cfg=wrong)


def test_pybuda_compile_takes_one_sample_of_any_size() -> None:
    class Flat(pybuda.PyBudaModule):
        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            return op.Reshape("flat", x, (1, 1, 8, 32))

    tt0 = pybuda.TTDevice("tt0", module=Flat("f"), devtype=pybuda.BackendType.Golden)
    x = pybuda.Tensor.create_from_torch(torch.rand(4, 2, 32))
    made = pybuda.pybuda_compile(tt0, "whole", x, verify_cfg=VerifyConfig())
    assert made.outputs[0].shape == (1, 1, 8, 32)


@pytest.mark.long
def test_pybuda_compile_verifies_in_pytorchs_numbers() -> None:
    chip = pybuda.BackendDevice.Wormhole_B0
    tt0 = pybuda.TTDevice("tt0", module=Product("m"), devtype=pybuda.BackendType.Silicon, arch=chip)
    x, near = torch.rand(1, 32, 32), VerifyConfig(golden_compare_callback=torch.allclose)
    pybuda.pybuda_compile(tt0, "exact", pybuda.Tensor.create_from_torch(x), verify_cfg=near)
    with pytest.raises(VerificationError, match="pass 'consteval'"):  # which computes in the chip's formats
        verify_device(tt0, [x], near)
    near.verify_last = False
    with pytest.raises(VerificationError, match="OUTPUTS"):
        verify_device(tt0, [x], near)


@pytest.mark.long
def test_compile_torch_is_a_backend_of_torch_compile() -> None:
    model, x = torch.nn.Linear(4, 4).to("loom"), torch.rand(2, 4, device="loom")
    assert torch.equal(torch.compile(model, backend=pybuda.compile_torch)(x), model(x))
    importlib.import_module("torch_loom.pybuda.torch_compile").reset_state()


def test_the_configuration_can_be_cleared() -> None:
    pybuda.set_configuration_options(amp_level=1)
    _clear_global_compiler_config()
    assert _get_global_compiler_config().amp_level is None
