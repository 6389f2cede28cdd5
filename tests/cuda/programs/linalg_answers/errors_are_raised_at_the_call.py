import ast
import sys

import torch

import torch_loom  # noqa: F401
from tests.raising import raises

stream_side = ast.literal_eval(sys.argv[1])
stream = torch.cuda.Stream() if stream_side else torch.cuda.default_stream()
lost = torch.full((3, 3), float("nan"), device="cuda")
singular = torch.diag(torch.tensor([1.0, 1.0, 0.0], device="cuda"))
unit = torch.eye(3, device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(stream):
    for kind, call in (
        ("eig", lambda: torch.linalg.eig(lost)),
        ("eigvals", lambda: torch.linalg.eigvals(lost)),
    ):
        torch.cuda._sleep(1_000_000)
        raises("RuntimeError", f"torch.linalg.{kind}: input tensor should not contain", call)
    for call in (
        lambda: torch.linalg.cholesky_ex(singular, check_errors=True),
        lambda: torch.linalg.inv_ex(singular, check_errors=True),
        lambda: torch.linalg.solve_ex(singular, unit, check_errors=True),
        lambda: torch.linalg.eigh(lost),
        lambda: torch.linalg.svd(lost),
    ):
        torch.cuda._sleep(1_000_000)
        raises("_LinAlgError", "", call)
    # Nobody asks what went wrong.
    torch.cuda._sleep(1_000_000)
    assert torch.linalg.cholesky_ex(singular)[1].item() == 3
    raises("RuntimeError", "cannot compute", lambda: torch.linalg.vector_norm(unit[:0], -1))
    raises(
        "RuntimeError",
        "other than `gels` is not supported on CUDA",
        lambda: torch.linalg.lstsq(unit, unit, driver="gelsd"),
    )
torch.cuda.synchronize()
assert unit.sum().item() == 3
