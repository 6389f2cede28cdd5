"""Products of matrices, convolutions, attention, normalisation: what chips are made for."""

from __future__ import annotations

from torch_loom.ops.costs import factorisation, triangular_solve
from torch_loom.ops.model import Family

_FLASH = "_scaled_dot_product_flash_attention_for_cpu"

FAMILIES = (
    Family(
        "matrix products",
        "matmul",
        "mm bmm addmm addbmm baddbmm addmv mv dot vdot matmul _int_mm _addmm_activation",
        facts={
            "unboxed": "mm bmm addmm baddbmm",
            "calls_blas": "mm.* bmm.* addmm.* addmm_.* addbmm.* addbmm_.* baddbmm.* baddbmm_.* addmv.* "
            "addmv_.* mv.* dot.* vdot.* _int_mm.* _addmm_activation.*",
            "one_dtype": "mm.* bmm.* addmm.* addmm_.* addbmm.* addbmm_.* baddbmm.* baddbmm_.* addmv.* "
            "addmv_.* mv.* dot.* vdot.* _addmm_activation.* _foreach_mm.*",
        },
    ),
    Family(
        "scaled matrix products",
        "matmul",
        "_scaled_mm _scaled_mm_v2",
        lowering="products.scaled_matmul",
        facts={"calls_blas": "_scaled_mm.* _scaled_mm_v2.*"},
    ),
    Family(
        "grouped matrix products",
        "matmul",
        "_grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2",
        lowering="products.grouped_matmul",
    ),
    Family(
        "products with packed and sparse matrices",
        "matmul",
        "_weight_int8pack_mm _weight_int4pack_mm _weight_int4pack_mm_for_cpu _dyn_quant_matmul_4bit sspaddmm "
        "_sparse_mm _sparse_addmm _compute_linear_combination",
        bytes_only="the sizes of such operands do not say how large the product is",
    ),
    Family(
        "products with semi-structured matrices",
        "matmul",
        "_sparse_semi_structured_mm _sparse_semi_structured_addmm _cslt_sparse_mm",
        lowering="products.semi_structured_matmul",
    ),
    Family(
        "linear layers with semi-structured weights",
        "matmul",
        "_sparse_semi_structured_linear",
        lowering="products.semi_structured_linear",
    ),
    Family(
        "outer products",
        "matmul",
        "addr outer ger",
        bytes_only="one multiplication for each element that is written",
    ),
    Family(
        "linear layers",
        "matmul",
        "linear mkldnn_linear",
        lowering="products.linear",
        facts={"calls_blas": "linear.*"},
    ),
    Family(
        "gradients of linear layers",
        "matmul",
        "linear_backward",
        bytes_only="its products are commands of their own",
        facts={"calls_blas": "linear_backward.*"},
    ),
    Family(
        "convolutions",
        "convolution",
        "convolution _convolution convolution_overrideable cudnn_convolution conv1d conv2d conv3d "
        "slow_conv3d slow_conv3d_forward _slow_conv2d_forward slow_conv_dilated2d slow_conv_dilated3d "
        "thnn_conv2d mkldnn_convolution",
        facts={
            "unboxed": "convolution convolution_backward",
            "borrows_whole": "_convolution",
            # Which layout the result has depends on the library that the engine chooses.
            "engine_infers": "convolution convolution_backward",
            "one_dtype": "convolution.* convolution_backward.*",
        },
    ),
    Family(
        "gradients of convolutions",
        "convolution",
        "convolution_backward convolution_backward_overrideable _slow_conv2d_backward",
        lowering="products.convolution_backward",
    ),
    Family(
        "transposed, depthwise and time-first convolutions",
        "convolution",
        "conv_transpose1d slow_conv_transpose2d slow_conv_transpose3d conv_depthwise3d _conv_depthwise2d "
        "conv_tbc",
        bytes_only="their operands are not laid out as a convolution's",
    ),
    Family(
        "attention",
        "attention",
        "scaled_dot_product_attention _scaled_dot_product_flash_attention "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
        f"_scaled_dot_product_fused_attention_overrideable {_FLASH} _scaled_dot_product_attention_math "
        "_scaled_dot_product_attention_math_for_mps _triton_scaled_dot_attention",
        facts={"draws": "_scaled_dot_product_fused_attention_overrideable"},
    ),
    Family(
        "gradients of attention",
        "attention",
        f"_scaled_dot_product_fused_attention_overrideable_backward {_FLASH}_backward "
        "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
        "_scaled_dot_product_cudnn_attention_backward",
        lowering="products.attention_backward",
    ),
    Family(
        "attention with projections",
        "attention",
        "_native_multi_head_attention _transformer_encoder_layer_fwd",
        bytes_only="most of their operands are a layer's parameters",
        facts={
            "engine_infers": "_native_multi_head_attention",
            "calls_blas": "_native_multi_head_attention.* _transformer_encoder_layer_fwd.*",
        },
    ),
    Family(
        "attention of packed sequences",
        "attention",
        "_flash_attention_forward _flash_attention_forward_no_dropout_inplace _efficient_attention_forward",
        bytes_only="how long the sequences are is in no size",
        facts={"draws": "_flash_attention_forward"},
    ),
    Family(
        "gradients of attention of packed sequences",
        "attention",
        "_flash_attention_backward _efficient_attention_backward",
        bytes_only="how long the sequences are is in no size",
    ),
    Family(
        "normalisation",
        "normalisation",
        "native_layer_norm native_group_norm layer_norm group_norm instance_norm rms_norm",
        fused={"rms_norm": "_fused_rms_norm"},
        # The statistics of half precision are of half precision.
        facts={"unboxed": "native_layer_norm", "engine_infers": "native_layer_norm native_group_norm"},
    ),
    Family(
        "gradients of normalisation",
        "normalisation",
        "native_layer_norm_backward native_group_norm_backward",
        lowering="rows.layer_norm_backward",
        fused={"rms_norm": "_fused_rms_norm_backward"},
        facts={"unboxed": "native_layer_norm_backward", "engine_infers": "native_group_norm_backward"},
    ),
    Family(
        "batch normalisation",
        "normalisation",
        "native_batch_norm _native_batch_norm_legit _batch_norm_with_update cudnn_batch_norm "
        "miopen_batch_norm batch_norm",
        lowering="rows.batch_norm",
        facts={
            "unboxed": "native_batch_norm",
            # In evaluation the engine keeps no statistics for a gradient: they have no elements.
            "engine_infers": "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit.no_stats "
            "_batch_norm_with_update _batch_norm_no_update",
        },
    ),
    Family(
        "gradients of batch normalisation",
        "normalisation",
        "native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward batch_norm_backward",
        lowering="rows.batch_norm_backward",
        facts={"unboxed": "native_batch_norm_backward"},
    ),
    Family(
        "parts of batch normalisation",
        "normalisation",
        "_native_batch_norm_legit_no_training _batch_norm_no_update batch_norm_elemt batch_norm_stats "
        "batch_norm_update_stats batch_norm_gather_stats batch_norm_gather_stats_with_counts "
        "batch_norm_backward_elemt batch_norm_backward_reduce",
        bytes_only="each goes through its operands once",
    ),
    Family(
        "softmax",
        "softmax",
        "_softmax _log_softmax softmax log_softmax _safe_softmax _masked_softmax",
        facts={
            "unboxed": "_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data",
            "borrows_whole": "_safe_softmax",
        },
    ),
    Family("gradients of softmax", "softmax", "_softmax_backward_data _log_softmax_backward_data"),
    Family(
        "pooling",
        "pooling",
        "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices "
        "max_pool3d_with_indices adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
        "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
        "adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d mkldnn_max_pool2d "
        "quantized_max_pool2d",
        # No shape function looks at how many random samples there are.
        facts={"engine_checks": "fractional_max_pool2d.* fractional_max_pool3d.*"},
    ),
    Family(
        "recurrent layers",
        "recurrent",
        "mkldnn_rnn_layer lstm gru rnn_tanh rnn_relu quantized_lstm quantized_gru _cudnn_rnn miopen_rnn",
        bytes_only="no measured chip says how layers overlap their steps",
        # Only the engine knows how large a workspace its kernel keeps for the gradient.
        facts={"engine_infers": "mkldnn_rnn_layer"},
    ),
    Family(
        "recurrent cells",
        "elementwise",
        "",
        fused={"rnn_cell": "_thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell"},
    ),
    Family(
        "optimizer steps",
        "optimizer",
        "",
        fused={"optimizer": "_fused_adam _fused_adamw _fused_adagrad _fused_sgd"},
        # Steps of optimizers that are not capturable live on the CPU.
        facts={"host_tensors": "_fused_adam_ _fused_adamw_ _fused_adagrad_"},
    ),
    Family(
        "factorisations",
        "linear_algebra",
        "cholesky linalg_cholesky_ex linalg_cholesky linalg_lu linalg_lu_factor_ex linalg_lu_factor "
        "linalg_ldl_factor_ex linalg_qr geqrf linalg_det _linalg_det _linalg_slogdet linalg_inv_ex "
        "linalg_inv cholesky_inverse linalg_householder_product ormqr orgqr linalg_matrix_exp _spdiags "
        "lu_unpack inverse",
        flops=factorisation(2, 3),
        # Their kernels give a strided `out` other strides.
        facts={
            "engine_infers": "ormqr linalg_householder_product orgqr",
            "calls_blas": "linalg_matrix_exp.*",
            "host_waits": "linalg_cholesky_ex.* linalg_lu_factor_ex.* linalg_ldl_factor_ex.* linalg_inv_ex.*",
        },
    ),
    Family(
        "eigenvalues and singular values",
        "linear_algebra",
        "linalg_eig linalg_eigvals _linalg_eigvals _linalg_eigh linalg_eigh linalg_eigvalsh _linalg_svd "
        "linalg_svd linalg_lstsq linalg_pinv",
        flops=factorisation(9, 1),
        # The strides of the vectors.
        facts={
            "borrows_whole": "linalg_lstsq",
            "calls_blas": "linalg_lstsq.*",
            "engine_infers": "linalg_eig linalg_eigvals",
            "host_waits": "linalg_eig.* linalg_eigvals.* _linalg_eigvals _linalg_eigh.* _linalg_svd.* "
            "linalg_lstsq.*",
        },
    ),
    Family(
        "solves",
        "linear_algebra",
        "linalg_solve_triangular linalg_lu_solve linalg_ldl_solve _linalg_solve_ex linalg_solve_ex",
        flops=triangular_solve,
        facts={
            "calls_blas": "linalg_solve_triangular.*",
            "host_waits": "_linalg_solve_ex.*",
            # What its shape function conjugates from the right, the kernel makes conjugate by a bit.
            "engine_infers": "linalg_lu_solve",
        },
    ),
    Family(
        "solves that take the right side first",
        "linear_algebra",
        "triangular_solve cholesky_solve _cholesky_solve_helper",
        flops=triangular_solve,
        matrix=1,
        facts={"calls_blas": "triangular_solve.*", "borrows_whole": "cholesky_solve"},
    ),
    Family("cross products", "elementwise", "linalg_cross cross"),
    Family(
        "Fourier transforms",
        "fourier",
        "_fft_* fft_* stft istft",
        bytes_only="transforms wait for memory",
        # The strides of transforms over several dimensions.
        facts={"engine_infers": "_fft_r2c _fft_c2c _fft_c2r"},
    ),
)
