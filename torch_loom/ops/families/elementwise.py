"""Ops on each element, reductions along dimensions, running sums."""

from __future__ import annotations

from torch_loom.ops.model import Family

FAMILIES = (
    Family(
        "arithmetic",
        "elementwise",
        "add sub mul div rsub neg abs reciprocal sqrt rsqrt square maximum minimum fmax fmin clamp clamp_min "
        "clamp_max floor ceil round trunc frac sign sgn remainder fmod floor_divide copysign heaviside hypot "
        "nan_to_num absolute conj_physical ldexp logaddexp logaddexp2 xlogy special_xlog1py signbit relu "
        "relu6 true_divide nextafter gcd lcm float_power pow _conj_physical threshold hardtanh positive "
        "polar complex frexp _amp_foreach_non_finite_check_and_unscale _amp_update_scale",
        facts={
            "unboxed": "add.Tensor add_.Tensor sub.Tensor mul.Tensor mul_.Tensor div.Tensor div_.Tensor neg "
            "sqrt rsqrt relu relu_ pow.Tensor_Scalar threshold_backward _foreach_add_.List "
            "_foreach_add_.Scalar _foreach_mul_.Scalar _foreach_mul_.ScalarList _foreach_mul_.List "
            "_foreach_div_.ScalarList _foreach_sqrt",
            "engine_checks": "complex.out polar.out",
            "divides_integers": "div.Tensor_mode div_.Tensor_mode div.out_mode remainder.Tensor "
            "remainder_.Tensor remainder.Tensor_out fmod.Tensor fmod_.Tensor fmod.Tensor_out floor_divide "
            "floor_divide_.Tensor floor_divide.out remainder.Scalar_Tensor remainder.Scalar_Tensor_out",
            "borrows_whole": "add.Scalar add_.Scalar sub.Scalar sub_.Scalar mul.Scalar mul_.Scalar "
            "div.Scalar div_.Scalar rsub.Scalar conj_physical_ nan_to_num frexp.Tensor",
        },
    ),
    Family(
        "multiply and add",
        "elementwise",
        "addcmul addcdiv lerp dist _add_relu _foobar",
        facts={
            "unboxed": "addcmul_ addcdiv_ _foreach_addcmul_.Scalar _foreach_addcdiv_.ScalarList "
            "_foreach_lerp_.Scalar",
            "borrows_whole": "dist",
        },
    ),
    Family(
        "elementary functions",
        "elementwise",
        "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh "
        "atanh sigmoid erf erfc erfinv lgamma digamma polygamma mvlgamma i0 sinc special_* igamma igammac "
        "angle logit",
        facts={"unboxed": "exp tanh sigmoid tanh_backward sigmoid_backward"},
    ),
    Family(
        "activations",
        "elementwise",
        "gelu silu mish elu selu celu leaky_relu prelu _prelu_kernel softplus softshrink hardshrink "
        "hardsigmoid hardswish log_sigmoid_forward log_sigmoid glu glu_jvp glu_backward_jvp "
        "rrelu_with_noise _transform_bias_rescale_qkv",
        facts={"unboxed": "gelu gelu_backward silu", "engine_checks": "gelu gelu.out"},
    ),
    Family(
        "comparisons and choice",
        "elementwise",
        "eq ne lt le gt ge isnan isinf isfinite isneginf isposinf isclose logical_and logical_or logical_xor "
        "logical_not bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift "
        "__and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__ "
        "where masked_fill _masked_scale tril triu isreal",
        facts={"unboxed": "where.self eq.Tensor ne.Scalar eq.Scalar", "borrows_whole": "masked_fill.Scalar"},
    ),
    Family(
        "fake quantization",
        "elementwise",
        "_fake_quantize_* fake_quantize_* _fused_moving_avg_obs_fq_helper dequantize quantize_per_channel "
        "quantize_per_tensor quantize_per_tensor_dynamic _choose_qparams_per_tensor",
        facts={
            "engine_infers": "quantize_per_tensor quantize_per_tensor.tensor_qparams "
            "quantize_per_tensor_dynamic quantize_per_channel"
        },
    ),
    Family(
        "sums and means",
        "reduction",
        "sum mean nansum prod trace count_nonzero linalg_vector_norm norm linalg__powsum powsum "
        "native_norm hash_tensor _pdist_forward",
        facts={
            "unboxed": "sum sum.dim_IntList mean mean.dim",
            "borrows_whole": "count_nonzero",
            # Which norm none is of no elements.
            "engine_checks": "linalg_vector_norm linalg_vector_norm.out",
        },
    ),
    Family(
        "variances",
        "reduction",
        "var std var_mean std_mean _weight_norm_interface _weight_norm renorm embedding_renorm",
    ),
    Family(
        "extremes",
        "reduction",
        "max min amax amin aminmax _aminmax argmax argmin all any _is_all_true _is_any_true",
        facts={"unboxed": "argmax"},
    ),
    Family("log sum exp", "reduction", "logsumexp special_logsumexp", facts={"borrows_whole": "logsumexp"}),
    Family(
        "running sums",
        "scan",
        "cumsum cumprod cummax cummin logcumsumexp _logcumsumexp _cummax_helper _cummin_helper "
        "segment_reduce _segment_reduce",
        facts={
            "borrows_whole": "cummax cummin",
            "host_checks": "segment_reduce.*",
            "host_waits": "segment_reduce",
        },
    ),
    Family(
        "distances",
        "reduction",
        "_cdist_forward _cdist cdist _euclidean_dist pdist _pdist",
        facts={"borrows_whole": "_euclidean_dist"},
    ),
    Family(
        "losses",
        "loss",
        "mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits l1_loss "
        "soft_margin_loss multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward kl_div "
        "cosine_embedding_loss margin_ranking_loss triplet_margin_loss",
        bytes_only="they read their operands once",
        facts={
            "borrows_whole": "binary_cross_entropy_with_logits",
            "engine_infers": "multilabel_margin_loss_forward",
        },
    ),
    Family(
        "losses by class",
        "loss",
        "nll_loss nll_loss_forward nll_loss2d nll_loss2d_forward nll_loss_nd _ctc_loss _use_cudnn_ctc_loss "
        "_cudnn_ctc_loss ctc_loss",
        bytes_only="they read their operands once",
        facts={
            "unboxed": "nll_loss_forward nll_loss_backward",
            # Lengths that the host reads.
            "host_tensors": "_ctc_loss.Tensor _ctc_loss_backward.Tensor _use_cudnn_ctc_loss.Tensor",
        },
    ),
)
