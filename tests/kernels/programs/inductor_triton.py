# Under TORCH_LOOM_INDUCTOR=triton torch.compile generates what it generates on a GPU, and runs it.
import torch
from torch._inductor.utils import run_and_get_code

torch.manual_seed(0)


def function(x, y):
    return torch.softmax(x.sin() + y, -1).sum(0)


x, y = torch.rand(64, 100, device="cuda"), torch.rand(64, 100, device="cuda")
result, (code,) = run_and_get_code(torch.compile(function), x, y)
torch.testing.assert_close(result, function(x, y))
assert "@triton.jit" in code
assert "def triton_per_fused__softmax_add_sin" in code, code

model = torch.nn.LayerNorm(100).cuda()
torch.compile(model)(x).square().sum().backward()
gradient, model.weight.grad = model.weight.grad, None
model(x).square().sum().backward()
torch.testing.assert_close(gradient, model.weight.grad, atol=1e-4, rtol=1e-3)

replayed = torch.compile(lambda x: (x.cos() + 1).sum(), mode="reduce-overhead")
for _ in range(3):
    torch.compiler.cudagraph_mark_step_begin()
    total = replayed(x).clone()
torch.testing.assert_close(total, (x.cos() + 1).sum())
