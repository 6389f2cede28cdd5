"""Classes of kernels: by the names that profilers show, and by the cost model's families."""

from __future__ import annotations

import pytest

from benchmarks import clock_truth, kernel_names, memory_error
from benchmarks.clock_error import read_steps
from torch_loom.chips.cost import sweep
from torch_loom.chips.cost.families import FAMILIES


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128>", "batch_norm"),
        ("void at::native::batch_norm_backward_kernel<c10::BFloat16>", "batch_norm_backward"),
        ("void cudnn::engines_precompiled::nchwToNhwcKernel<float>", "layout"),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", "products"),
        ("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT", "products"),
        ("void at::native::conv_depthwise2d_grad_weight_kernel<float>", "depthwise_wgrad"),
        ("dgrad2d_c1_k1_nhwc_specialized", "depthwise_dgrad"),
        ("conv2d_c1_k1_nhwc", "depthwise"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention"),
        ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<float>", "attention_backward"),
        ("void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>>", "foreach"),
        ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add>", "elementwise"),
        ("Memcpy DtoH (Device -> Pageable)", "link"),
    ],
)
def test_classes_of_names(name: str, expected: str) -> None:
    assert kernel_names.class_of(name) == expected


def test_every_family_has_a_class_that_names_have() -> None:
    known = {kernel_names.class_of_family(family) for family in FAMILIES}
    assert known <= {name for name, _ in kernel_names._NAMES}
    assert kernel_names.class_of_family("batch_norm_backward_own") == "batch_norm_backward"
    assert kernel_names.class_of_family("depthwise_last_wgrad") == "depthwise_wgrad"
    assert kernel_names.class_of_family("convolution_dgrad_tf32") == "products"
    assert kernel_names.class_of_family("elementwise_heavy") == "elementwise"


def test_launches_and_times_of_a_class_add_up() -> None:
    kernels = [("nvjet_a", 2, 3.0), ("nvjet_b", 1, 4.5), ("void softmax_warp_forward", 1, 1.0)]
    assert kernel_names.by_class(kernels) == {"products": [3, 7.5], "softmax": [1, 1.0]}


def test_own_measurements_can_be_read_and_name_their_card() -> None:
    kinds = {}
    for path in sorted(clock_truth.MEASURED.glob("*.json")):
        kinds[path.stem] = clock_truth.kind_of(path)
        assert clock_truth.chip_of(sweep.device_of(path)) in ("h100", "h200")
        if kinds[path.stem] == "sweep":
            assert len(sweep.read(path)) > 250
        elif kinds[path.stem] == "steps":
            for row in read_steps(path):
                launches, took_us = map(sum, zip(*row["by_class"].values(), strict=True))
                # The copies from and to the host are kernels of no class but their own.
                assert launches == row["kernels"]
                assert took_us == pytest.approx(row["kernel_ms"] * 1e3, rel=2e-3)
        else:
            assert len(memory_error.read(path)) > 100
    assert sorted(kinds.values()) == ["other", "steps", "steps", "sweep", "sweep"]
