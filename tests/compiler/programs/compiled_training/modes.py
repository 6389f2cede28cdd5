import torch
from torch import nn
from torch._inductor import config

from tests.compiler.programs.compiled_training.common import DEVICE, compare, results

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
