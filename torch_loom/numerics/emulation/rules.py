"""Which functions of PyTorch are what on a chip: products, movements of data, functions computed wider.

By name, as PyTorch hands functions to a function mode: ``torch.add``, ``Tensor.add`` and ``Tensor.add_`` are
all ``add`` here but for the underscore.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Metadata, views, movements that keep values in their blocks, the program's own copies: values stay as they
# are.
PASSES = _names(
    """
    __get__ __set__ __delete__ __len__ __repr__ __format__ __str__ __bool__ __int__ __float__ __index__
    __hash__ __contains__ __deepcopy__ __reduce_ex__ __setstate__ __dlpack__ __dlpack_device__ __array__
    __iter__ size dim ndimension numel nelement stride storage_offset element_size data_ptr is_contiguous
    is_floating_point is_complex is_signed is_pinned is_shared is_set_to is_same_size is_inference
    is_nonzero is_tensor get_device storage untyped_storage type type_as result_type can_cast
    promote_types item tolist numpy backward register_hook register_post_accumulate_grad_hook retain_grad
    requires_grad_ detach detach_ clone contiguous to cpu cuda float double half bfloat16 int long short
    char byte bool pin_memory share_memory_ view view_as reshape reshape_as transpose swapaxes swapdims
    movedim moveaxis t mT permute unsqueeze squeeze expand expand_as broadcast_to broadcast_tensors
    flatten unflatten ravel chunk split tensor_split hsplit vsplit dsplit split_with_sizes narrow select
    unbind diagonal unfold_copy as_strided real imag __getitem__ unsafe_chunk unsafe_split atleast_1d
    atleast_2d atleast_3d align_as align_to rename refine_names copy_ set_ resize_ resize_as_ zero_ fill_
    __setitem__ normal_ uniform_ trunc_normal_ bernoulli_ random_ exponential_ geometric_ log_normal_
    cauchy_ kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ constant_ ones_ zeros_ eye_
    dirac_ orthogonal_ sparse_ tensor as_tensor asarray from_numpy empty zeros ones full eye arange range
    linspace logspace rand randn randint randperm empty_like zeros_like ones_like full_like rand_like
    randn_like randint_like new_tensor new_empty new_zeros new_ones new_full new_empty_strided
    empty_strided empty_permuted tril_indices triu_indices complex save manual_seed get_rng_state
    set_rng_state equal allclose isclose is_grad_enabled assert_async grad _is_view _version is_conj
    is_neg resolve_conj resolve_neg has_names record_stream one_hot
    """
)

# Ops that put the program's or random values into a tensor.
WRITES = _names(
    """
    __set__ __setitem__ __setstate__ copy_ set_ resize_ resize_as_ fill_ normal_ uniform_ trunc_normal_
    bernoulli_ random_ exponential_ geometric_ log_normal_ cauchy_ kaiming_uniform_ kaiming_normal_
    xavier_uniform_ xavier_normal_ constant_ eye_ dirac_ orthogonal_ sparse_
    """
)

# Those whose results are no values of their first operand.
NEW_VALUES = _names(
    """
    grad empty_like full_like rand_like randn_like randint_like new_tensor new_empty new_full
    new_empty_strided
    """
)

# A chip computes these in wider formats, and so keeps their results in 16 bits.
WIDE = _names(
    """
    softmax log_softmax softmin gumbel_softmax logsumexp layer_norm batch_norm instance_norm group_norm
    rms_norm local_response_norm normalize norm vector_norm native_layer_norm native_batch_norm
    native_group_norm var std var_mean std_mean cumsum cumprod
    """
)

# Their results, the program's measure of itself, stay float32.
LOSSES = _names(
    """
    cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
    binary_cross_entropy_with_logits kl_div ctc_loss cosine_embedding_loss hinge_embedding_loss
    margin_ranking_loss multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss
    soft_margin_loss triplet_margin_loss triplet_margin_with_distance_loss gaussian_nll_loss
    poisson_nll_loss linear_cross_entropy
    """
)

# Functions whose other operands are written, so that they must be the program's own: running statistics.
WITH_STATISTICS = frozenset(("batch_norm", "instance_norm", "native_batch_norm"))

MULTIPLICATIONS = frozenset(("mul", "multiply", "__mul__", "__rmul__"))
# Linear in each of two operands, so that masking both is all that fidelity needs: the operands' places.
BILINEAR = {
    "tensordot": (0, 1),
    "inner": (0, 1),
    "outer": (0, 1),
    "ger": (0, 1),
    "vdot": (0, 1),
    "vecdot": (0, 1),
    "kron": (0, 1),
    "__rmatmul__": (1, 0),
}


def passes(name: str) -> bool:
    """Whether values stay as they are: for the functions above and the in-place forms of views."""
    return name in PASSES or (name.endswith("_") and name[:-1] in PASSES)


def base_name(name: str) -> tuple[str, bool]:
    """The name of a function and whether it is the in-place form of it."""
    if (
        name.startswith("__i")
        and name.endswith("__")
        and name not in ("__index__", "__int__", "__invert__", "__iter__")
    ):
        return f"__{name[3:]}", True
    if name.endswith("_") and not name.endswith("__"):
        return name[:-1], True
    return name, False
