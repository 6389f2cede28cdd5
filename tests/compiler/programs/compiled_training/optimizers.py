import torch
from torch import nn
from torch.nn import functional as F

from tests.compiler.programs.compiled_training.common import DEVICE


def optimizers(parameters):
    yield torch.optim.AdamW(parameters, foreach=True)
    yield torch.optim.AdamW(parameters, lr=torch.tensor(1e-2, device=DEVICE), fused=True)
    yield torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, fused=True)


def steps(compiler):
    start = [torch.arange(12.0).view(3, 4).mT, torch.ones(5)]
    parameters = [nn.Parameter(x.to(DEVICE)) for x in start]
    for optimizer in optimizers(parameters):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        compiler(optimizer.step)()
    return [x.detach() for x in parameters]


torch.testing.assert_close(steps(torch.compile), steps(lambda step: step))


def products(x, y, offsets):
    left, right = x.to(torch.float8_e4m3fn), y.to(torch.float8_e4m3fn).mT
    one = torch.ones((), device=x.device)
    return (
        torch.mm(x, y.mT, out_dtype=torch.float32),
        torch.bmm(x[None], y.mT[None], out_dtype=torch.float32),
        torch.addmm(x[:, :16], x, y.mT, out_dtype=torch.float32),
        torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16),
        F.grouped_mm(x, y.mT.expand(2, -1, -1), offs=offsets),
        F.rms_norm(x, (32,)),
    )


x, y = (torch.randn(16, 32, device=DEVICE).bfloat16() for _ in range(2))
offsets = torch.tensor([8, 16], dtype=torch.int32, device=DEVICE)
torch.testing.assert_close(
    torch.compile(products, fullgraph=True)(x, y, offsets), products(x, y, offsets), rtol=1e-2, atol=1e-2
)
