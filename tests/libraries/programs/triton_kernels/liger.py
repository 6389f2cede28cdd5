import torch
from liger_kernel.transformers import LigerCrossEntropyLoss, LigerRMSNorm

norm, x = LigerRMSNorm(64).to("cuda"), torch.randn(2, 8, 64, device="cuda", requires_grad=True)
torch.testing.assert_close(norm(x), torch.nn.functional.rms_norm(x, (64,), norm.weight, 1e-6))
scores = torch.randn(8, 100, device="cuda", requires_grad=True)
labels = torch.randint(100, (8,), device="cuda")
expected = torch.nn.functional.cross_entropy(scores.detach(), labels)
torch.testing.assert_close(LigerCrossEntropyLoss()(scores, labels), expected)
