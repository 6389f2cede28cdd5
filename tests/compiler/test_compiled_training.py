"""Compiled by Inductor, modules give the results, gradients and dropout of eager mode: under each name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

pytestmark = pytest.mark.slow

COMMON = """
import copy

import torch
from torch import nn
from torch._inductor import config
from torch.nn import functional as F

# Random numbers are those of eager mode; loops without vectors compile in half the time.
config.fallback_random, config.compile_threads, config.cpp.simdlen = True, 1, 1
torch.manual_seed(0)


def results(run, parameters, inputs, is_training):
    torch.manual_seed(3)
    given = [x.detach().requires_grad_(is_training) if x.is_floating_point() else x for x in inputs]
    with torch.set_grad_enabled(is_training):
        outputs = [x for x in torch.utils._pytree.tree_leaves(run(*given)) if x is not None]
    if not is_training:
        return outputs
    wanted = [x for x in (*parameters, *given) if x.requires_grad]
    loss = sum((x.float() ** 2).mean() for x in outputs)
    return [*outputs, *torch.autograd.grad(loss, wanted)]


def compare(model, *inputs, **options):
    model = model.to(DEVICE)
    twin = copy.deepcopy(model)
    inputs = [x.to(DEVICE) for x in inputs]
    compiled = torch.compile(twin, **{"fullgraph": True, **options})
    for is_training in (True, False):
        model.train(is_training), twin.train(is_training)
        wanted = results(model, model.parameters(), inputs, is_training)
        for _ in range(3 if "mode" in options else 1):
            found = results(compiled, twin.parameters(), inputs, is_training)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
        layouts = [[(x.dtype, x.stride()) for x in each] for each in (found, wanted)]
        assert layouts[0] == layouts[1]
"""

ATTENTION = """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 1)
        self.by_time = nn.TransformerEncoderLayer(64, 4, 128)
        self.attention = nn.MultiheadAttention(64, 8, dropout=0.1, batch_first=True)

    def forward(self, x):
        x = self.by_time(self.encoder(x).transpose(0, 1)).transpose(0, 1)
        return self.attention(x, x, x, need_weights=False)[0]


compare(Attention(), torch.randn(3, 10, 64))
"""

CALLS = """
class Calls(nn.Module):
    def forward(self, q, k, v, few, mask, causal):
        p = 0.2 if self.training else 0.0
        call = F.scaled_dot_product_attention
        return (
            call(q, k, v, is_causal=True, dropout_p=p),
            call(q, k, v, attn_mask=mask, dropout_p=p),
            call(q, k, v, attn_mask=mask.detach()),
            call(q, k, v, attn_mask=causal, dropout_p=p),
            call(q, few, few, enable_gqa=True, dropout_p=p),
        )


heads = [torch.randn(2, 4, 6, 16) for _ in range(3)]
lying = [torch.randn(2, 6, 4, 16).transpose(1, 2) for _ in range(3)]
rest = torch.randn(2, 2, 6, 16), torch.randn(2, 4, 6, 6), torch.ones(6, 6, dtype=torch.bool).tril()
compare(Calls(), *heads, *rest)
compare(Calls(), *lying, *rest)
"""

RECURRENT = """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True, num_layers=2, dropout=0.2)
        self.gru = nn.GRU(6, 4)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])[0]


torch._dynamo.config.allow_rnn = True
compare(Recurrent(), torch.randn(2, 3, 8))
"""

LAYERS = """
class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.norms = nn.Sequential(nn.LayerNorm(16), nn.RMSNorm(16), nn.Linear(16, 16))
        self.dropout, self.groups = nn.Dropout(0.3), nn.GroupNorm(2, 4)

    def forward(self, words):
        x = self.dropout(self.norms(self.embedding(words)))
        x = self.dropout(x.transpose(1, 2)).transpose(1, 2) + self.dropout(x[:, 1:])[:, :1]
        return self.groups(x)


compare(Norms(), torch.arange(12).view(3, 4))
image = torch.randn(2, 3, 8, 8)
layers = nn.Sequential(
    *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3), nn.ChannelShuffle(2)),
    *(nn.MaxPool2d(2), nn.Dropout2d(0.3), nn.ConvTranspose2d(8, 4, 2), nn.GroupNorm(2, 4), nn.Flatten()),
)
compare(layers, image)
last = torch.channels_last
compare(layers.to(memory_format=last), image.to(memory_format=last))
"""

OPTIMIZERS = """
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
"""

MODES = """
layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
compare(layer, torch.randn(2, 4, 16), mode="reduce-overhead")
torch._dynamo.reset()
config.force_disable_caches = True
twin = layer.to(DEVICE)
compiled = torch.compile(twin, dynamic=True, fullgraph=True)
graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
for rows, words in ((2, 4), (3, 7), (5, 11)):
    x = torch.randn(rows, words, 16, device=DEVICE)
    wanted, found = (results(run, twin.parameters(), [x], True) for run in (twin, compiled))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 1
"""

PROGRAMS = {
    "attention": ATTENTION,
    "calls of attention": CALLS,
    "recurrent": RECURRENT,
    "layers": LAYERS,
    "optimizers and products": OPTIMIZERS,
    "modes": MODES,
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", ["loom", "cuda", "rbln"])
def test_as_in_eager_mode(warm_python: PythonRunner, name: str, program: str) -> None:
    code = f"DEVICE = {name!r}\n{COMMON}\n{PROGRAMS[program]}\n"
    warm_python(code, {"TORCH_LOOM_DEVICE_NAME": name})
