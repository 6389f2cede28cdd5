import threading
import traceback
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

# Each op on the stream of its forward, with its device current.
side, seen = torch.cuda.Stream("cuda:1"), []
x = torch.ones(3, device="cuda:1", requires_grad=True)
with torch.cuda.stream(side):
    y = x * 2
    where = lambda: (torch.cuda.current_device(), torch.cuda.current_stream() == side)
    y.register_hook(lambda g: seen.append(where()))
    z = y.exp()
z.sum().backward()
assert seen == [(1, True)], seen
torch.testing.assert_close(x.grad.cpu(), torch.full((3,), 2.0).mul(torch.tensor(2.0).exp()))
assert torch.cuda.current_device() == 0


# Errors come to the caller, with Python's traceback and, in anomaly mode, the forward's.
class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        raise KeyError("from the backward")


x = torch.ones(3, device="cuda", requires_grad=True)
for is_watched in (False, True):
    watch = torch.autograd.set_detect_anomaly(is_watched)
    with warnings.catch_warnings(record=True) as warned, watch:
        warnings.simplefilter("always")
        try:
            Failing.apply(x).sum().backward()
        except KeyError as error:
            frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            assert "backward" in frames, frames
        else:
            raise AssertionError
        forward = any("Traceback of forward call" in str(one.message) for one in warned)
        assert forward == is_watched
(x * 2).sum().backward()
assert x.grad.tolist() == [2, 2, 2]

# A backward pass within one.
grads = []
for mode in (None, True, False):
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).cuda()
    x = torch.ones(2, 8, device="cuda", requires_grad=True)
    y = layer(x) if mode is None else checkpoint(layer, x, use_reentrant=mode)
    y.sum().backward()
    grads.append(x.grad)
assert torch.equal(grads[0], grads[1]) and torch.equal(grads[0], grads[2])

# Threads of the program's own.
results = []


def work(device):
    x = torch.full((4,), 2.0, device=device, requires_grad=True)
    for _ in range(20):
        (x * x).sum().backward()
    results.append(x.grad.sum().item())


threads = [threading.Thread(target=work, args=(f"cuda:{i % 2}",)) for i in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert results == [320.0] * 4, results

# A dry run may have more devices than there are threads.
with torch.loom.dry_run(devices=4):
    seen.clear()
    x = torch.ones(4, device="cuda:3", requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append(threading.get_ident()))
    y.sum().backward()
    assert seen == [threading.get_ident()]
assert torch._C._is_multithreading_enabled()
