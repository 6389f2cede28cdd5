import torch

from tests.cuda.programs.workspaces.setup import MIB, clear, kept, x

encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).cuda().eval()
(x + x).sum().item()
assert kept() == 0
with torch.no_grad():
    before = torch.cuda.memory_allocated()
    y = x @ x
    assert torch.cuda.memory_allocated() - before == 32 * MIB + 512
    torch.nn.functional.linear(x, x, x[0])  # cuBLASLt works in the same memory
    torch.bmm(x[None], x[None])
    assert kept() == 32
    clear()
    assert kept() == 0
    torch.outer(x[0], x[0]), torch.empty(0, 8, device="cuda") @ x  # neither calls the library
    assert kept() == 0
    for product in (
        lambda: torch.addmm(x, x, x),
        lambda: torch.baddbmm(x[None], x[None], x[None]),
        lambda: x @ x[0],
        lambda: torch.dot(x[0], x[0]),
        lambda: torch.addmv(x[0], x, x[0]),
        lambda: torch.einsum("ij,jk", x, x),
        lambda: torch.linalg.solve_triangular(x, x, upper=True),
        lambda: torch.nn.Linear(8, 8).cuda()(x),
        lambda: torch.linalg.lstsq(x + torch.eye(8, device="cuda"), x),
        lambda: torch.matrix_exp(x),
        lambda: encoder(x[None]),
    ):
        clear()
        product()
        assert kept() == 32, product
    clear()
    image, weight = torch.ones(1, 3, 8, 8, device="cuda"), torch.ones(2, 3, 3, 3, device="cuda")
    torch.nn.functional.conv2d(image, weight)  # cuDNN's own memory is given back at once
    assert kept() == 0
    with torch.backends.cudnn.flags(enabled=False):
        torch.nn.functional.conv2d(image, weight)
    assert kept() == 32
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x @ x
    assert kept() == 64
    other = torch.ones(8, 8, device="cuda:1")
    other @ other
    assert (kept(), kept(1)) == (64, 32)
    clear()
    assert (kept(), kept(1)) == (0, 0)
assert torch.cuda.memory_stats()["num_ooms"] == 0
