"""cuRAND's Philox in a kernel of the program's own, and torch's numbers of the same seed."""

from pathlib import Path

import torch

source = (Path(__file__).parent / "random.cu").read_text(encoding="utf-8")
kernel = torch.cuda._compile_kernel(source, "philox")
uniform, normal = torch.zeros(2, 4 * 64, device="cuda")
kernel((1, 1, 1), (64, 1, 1), (uniform, normal, 12))
torch.manual_seed(12)
assert torch.equal(uniform[::4], torch.rand(64, device="cuda"))
torch.manual_seed(12)
assert torch.allclose(normal[::4], torch.randn(64, device="cuda"), rtol=1e-6, atol=1e-7)
