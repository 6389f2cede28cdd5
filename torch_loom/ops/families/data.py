"""Ops that move data, look it up, order it, make it or read it."""

from __future__ import annotations

from torch_loom.ops.model import Family

FAMILIES = (
    Family(
        "lookups",
        "gather_scatter",
        "index _unsafe_index index_select gather embedding take take_along_dim",
        lowering="data.embedding",
        facts={
            "unboxed": "index_select gather embedding",
            "engine_checks": "take take.out",
            "host_lists": "index.Tensor index.Tensor_out _unsafe_index.Tensor",
            "mask_counted": "index.Tensor index.Tensor_out _unsafe_index.Tensor",
        },
    ),
    Family(
        "choices",
        "gather_scatter",
        "masked_select nonzero nonzero_static nonzero_numpy where.ScalarOther repeat_interleave argwhere "
        "_unsafe_masked_index",
        bytes_only="all that they choose from is read",
        facts={"engine_infers": "nonzero_static"},
    ),
    Family(
        "sums of lookups",
        "gather_scatter",
        "_embedding_bag _embedding_bag_forward_only embedding_bag _embedding_bag_dense_backward "
        "_embedding_bag_per_sample_weights_backward _embedding_bag_sparse_backward",
        bytes_only="as if the whole table were read",
        # Which of its four results have elements depends on how the engine sums.
        facts={"engine_infers": "_embedding_bag _embedding_bag_forward_only"},
    ),
    Family(
        "scatters",
        "gather_scatter",
        "index_put _index_put_impl _unsafe_index_put index_copy scatter",
        lowering="data.scatter",
        facts={
            "borrows_whole": "index_put_",
            "engine_checks": "index_put_ index_put _index_put_impl_ _unsafe_index_put",
            "host_lists": "_index_put_impl_ index_put index_put_",
            "mask_counted": "_index_put_impl_ index_put index_put_",
        },
    ),
    Family(
        "writes to parts",
        "gather_scatter",
        "index_fill put masked_scatter diagonal_scatter select_scatter slice_scatter max_unpool2d "
        "max_unpool3d select_backward slice_backward diagonal_backward unfold_backward as_strided_scatter "
        "_unsafe_masked_index_put_accumulate",
        bytes_only="all of a tensor is written",
        facts={"engine_checks": "masked_scatter_ put_", "engine_infers": "max_unpool2d"},
    ),
    Family(
        "scattered sums",
        "gather_scatter",
        "index_add scatter_add scatter_reduce index_reduce gather_backward index_select_backward",
        lowering="data.scatter",
    ),
    Family(
        "gradients of embeddings",
        "gather_scatter",
        "embedding_dense_backward embedding_backward",
        lowering="data.embedding_backward",
        facts={"unboxed": "embedding_dense_backward"},
    ),
    Family(
        "histograms",
        "gather_scatter",
        "bincount histc histogram _histogramdd_from_bin_cts _histogramdd_from_bin_tensors "
        "_histogramdd_bin_edges",
        bytes_only="they read their operands once",
        facts={"host_checks": "bincount.* histc.* histogram.*", "host_waits": "histc histc.out"},
    ),
    Family(
        "orders",
        "sort",
        "sort argsort topk kthvalue median nanmedian mode msort unique_dim _unique _unique2",
        facts={
            "borrows_whole": "sort kthvalue median.dim nanmedian.dim mode.values",
            "engine_checks": "median.dim median.dim_values nanmedian.dim nanmedian.dim_values",
        },
    ),
    Family(
        "searches",
        "sort",
        "searchsorted bucketize isin unique_consecutive unique_dim_consecutive",
        bytes_only="nothing is ordered",
        facts={
            "engine_checks": "bucketize.Tensor bucketize.Tensor_out",
            "python_infers": "isin.Scalar_Tensor",
        },
    ),
    Family(
        "copies",
        "copy",
        "copy clone contiguous lift_fresh_copy to _to_copy",
        facts={
            "unboxed": "clone",
            "moves_data": "copy_.* clone.* _foreach_copy_.* contiguous.* lift_fresh.* lift.* _to_copy.*",
        },
    ),
    Family(
        "copies between devices",
        "copy",
        "_copy_from _copy_from_and_resize",
        facts={"moves_data": "_copy_from.* _copy_from_and_resize.*"},
    ),
    Family(
        "concatenations",
        "copy",
        "cat stack _stack _chunk_cat",
        lowering="data.concatenate",
        facts={"unboxed": "cat", "borrows_whole": "stack"},
    ),
    Family(
        "rearrangements",
        "copy",
        "flip roll repeat constant_pad_nd reflection_pad1d reflection_pad2d "
        "reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pad _pad_circular "
        "channel_shuffle native_channel_shuffle pixel_shuffle pixel_unshuffle im2col col2im rot90 "
        "narrow_copy tile kron combinations block_diag _lazy_clone split_with_sizes_copy "
        "unbind_copy view_copy permute_copy expand_copy slice_copy select_copy as_strided_copy "
        "transpose_copy t_copy squeeze_copy unsqueeze_copy _padded_dense_to_jagged_forward "
        "_jagged_to_padded_dense_forward _nested_* _pack_padded_sequence _pad_packed_sequence",
        bytes_only="each element is read and written once",
        facts={
            "borrows_whole": "constant_pad_nd repeat",
            # Lengths that the host reads.
            "host_tensors": "_pack_padded_sequence _pack_padded_sequence_backward _nested_from_padded",
        },
    ),
    Family(
        "fills",
        "factory",
        "fill zero full ones zeros eye arange range linspace logspace tril_indices triu_indices "
        "kaiser_window _efficientzerotensor zeros_like ones_like full_like new_zeros new_ones new_full "
        "scalar_tensor",
        facts={
            "unboxed": "_foreach_zero_",
            "moves_data": "fill_.* zero_.* _foreach_zero_.* fill.* zero.* _efficientzerotensor.*",
            "makes_contents": "arange.start_out range.out linspace.out logspace.out eye.out eye.m_out "
            "tril_indices triu_indices fill_.Tensor",
            "sized_by_numbers": "arange.* range.*",
        },
    ),
    Family(
        "memory without contents",
        "factory",
        "empty empty_strided empty_like empty_permuted new_empty new_empty_strided resize set record_stream "
        "from_file _empty_affine_quantized _empty_per_channel_affine_quantized empty_quantized "
        "_make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor _make_dep_token resize_as "
        "_resize_output",
        lowering="data.nothing",
        facts={"not_borrowed": "from_file"},
    ),
    Family(
        "random numbers",
        "random",
        "rand randn randint rand_like randn_like randint_like randperm normal uniform random bernoulli "
        "exponential cauchy log_normal geometric poisson binomial multinomial _standard_gamma "
        "_standard_gamma_grad _sample_dirichlet _dirichlet_grad rrelu _fill_mem_eff_dropout_mask_",
        facts={
            "makes_contents": "randperm.generator_out normal_ uniform_ random_ random_.from random_.to "
            "bernoulli_.float exponential_ cauchy_ log_normal_ geometric_",
            "draws": "uniform_ normal_ log_normal_ exponential_ geometric_ cauchy_ bernoulli_.float "
            "bernoulli_.Tensor bernoulli.out normal.Tensor_float normal.Tensor_float_out normal.float_Tensor "
            "normal.float_Tensor_out normal.Tensor_Tensor normal.Tensor_Tensor_out random_ random_.from "
            "random_.to randperm.generator_out rrelu_with_noise rrelu_with_noise.out rrelu_with_noise_ "
            "poisson _standard_gamma _sample_dirichlet binomial multinomial multinomial.out",
            "host_checks": "normal.*",
            "host_waits": "normal.float_Tensor normal.Tensor_Tensor",
            # Bounds, rates and numbers of samples: no shape function looks at them.
            "engine_checks": "uniform_ random_.from random_.to bernoulli_.float bernoulli_.Tensor "
            "bernoulli.out cauchy_ exponential_ geometric_ log_normal_ multinomial multinomial.out",
        },
    ),
    Family(
        "dropout",
        "random",
        "native_dropout dropout _fused_dropout alpha_dropout feature_dropout",
        lowering="data.dropout",
        facts={"draws": "native_dropout"},
    ),
    Family("gradients of dropout", "elementwise", "native_dropout_backward"),
    Family(
        "resampling",
        "resampling",
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
        "_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d "
        "upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
        "_upsample_lanczos2d_aa grid_sampler_2d grid_sampler_3d grid_sampler affine_grid_generator "
        "torchvision::roi_align torchvision::deform_conv2d",
        bytes_only="a few products for each element that is written",
        facts={
            # Dtypes.
            "engine_checks": "upsample_nearest1d upsample_nearest2d upsample_nearest3d "
            "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d "
            "upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa "
            "_upsample_bicubic2d_aa"
        },
    ),
    Family(
        "views",
        "view",
        "view as_strided expand permute transpose t reshape select slice unsqueeze squeeze split "
        "split_with_sizes chunk unbind diagonal unfold detach alias view_as_real view_as_complex "
        "_reshape_alias movedim narrow _conj _neg_view real imag lift_fresh lift _unsafe_view is_set_to "
        "_indices _values indices values",
        facts={"moves_data": "is_set_to.*"},
    ),
    Family("values for the host", "host_read", "_local_scalar_dense item"),
    Family(
        "checks by the host",
        "host_read",
        "equal is_nonzero _assert_async _functional_assert_async allclose "
        "_has_compatible_shallow_copy_type _fused_sdp_choice _validate_compressed_sparse_indices "
        "_linalg_check_errors _nnz _cslt_sparse_mm_search",
        bytes_only="the host reads the answer by an op of its own",
    ),
    Family(
        "conversions to sparse layouts",
        "bytes_moved",
        "_to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc to_mkldnn _to_dense "
        "to_dense sparse_mask _sparse_mask_projection _coalesce coalesce _convert_indices_from_coo_to_csr "
        "_convert_indices_from_csr_to_coo mkldnn_reorder_* _convert_weight_to_int4pack "
        "_convert_weight_to_int4pack_for_cpu _dyn_quant_pack_4bit_weight _to_sparse_semi_structured "
        "_sparse_semi_structured_tile _sparse_semi_structured_apply _sparse_semi_structured_apply_dense "
        "_cslt_compress",
        facts={"not_borrowed": "to_mkldnn mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight"},
    ),
)
