import torch
import torch.nn.functional as F

from tests.raising import raises
from torch_loom.torch_version import minor_of


def t(*sizes, dtype=torch.float32):
    return torch.zeros(sizes, dtype=dtype, device="cuda")


def lacks(kernel, dtype="Long"):
    return f"\"{kernel}\" not implemented for '{dtype}'"


def polar_of_halves():
    return torch.polar(t(3, dtype=torch.half), t(3, dtype=torch.half))


whole, short = torch.long, torch.uint16
types = "to have one of the following scalar types: Long, Int; but got "
cases = (
    (lambda: F.embedding(t(3), t(5, 2)), types + "torch.cuda.FloatTensor instead"),
    (
        lambda: F.embedding_bag(t(3, 2, dtype=whole), t(5, 2, dtype=torch.bool)),
        "but got CUDABoolType instead",
    ),
    (
        lambda: F.embedding_bag(
            t(3, 2, dtype=whole), t(5, 2).double(), per_sample_weights=t(3, 2), mode="sum"
        ),
        "torch.cuda.DoubleTensor",
    ),
    (lambda: t(3, dtype=whole).logcumsumexp(0), lacks("logcumsumexp_cuda")),
    (lambda: torch._sparse_csr_sum(torch.eye(3, device="cuda").bool().to_sparse_csr(), [1]), "_csr_sum_cuda"),
    (lambda: F.silu(t(3, dtype=whole)), lacks("silu_cuda")),
    (lambda: F.mse_loss(t(3, dtype=whole), t(3, dtype=whole)), lacks("mse_cuda")),
    (lambda: t(3, dtype=short) < t(3, dtype=short), lacks("compare_cuda", "UInt16")),
    (lambda: t(3, dtype=torch.bool).floor(), lacks("floor_cuda", "Bool")),
    (lambda: t(3).clamp(0).to(torch.float8_e4m3fn).relu(), lacks("clamp_scalar_cuda", "Float8_e4m3fn")),
    (lambda: t(3, dtype=torch.cfloat).sort(), "on CUDA"),
    (lambda: t(3).bitwise_and(t(3)), lacks("bitwise_and_cuda", "Float")),
    # Until 2.13.
    *([(polar_of_halves, lacks("polar_cuda", "Half"))] if minor_of(torch.__version__) < (2, 14) else []),
)
for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
    with torch.cuda.stream(stream):
        for call, text in cases:
            try:
                call()
            except (RuntimeError, NotImplementedError, TypeError) as error:
                said = str(error)
                assert text in said and "cpu" not in said and "CPU" not in said, (text, said)
            else:
                raise AssertionError(text)
with torch.loom.dry_run(devices=1):
    raises("RuntimeError", types + "torch.cuda.FloatTensor instead", lambda: F.embedding(t(3), t(5, 2)))
    raises("NotImplementedError", lacks("silu_cuda"), lambda: F.silu(t(3, dtype=whole)))
# Of the host's tensors these are the words.
raises(
    "RuntimeError", types + "torch.FloatTensor instead", lambda: F.embedding(torch.ones(3), torch.ones(5, 2))
)
