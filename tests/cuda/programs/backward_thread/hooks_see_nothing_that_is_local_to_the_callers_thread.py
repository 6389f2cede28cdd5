import contextvars
import threading

import torch

local, variable = threading.local(), contextvars.ContextVar("variable", default="none")
local.value, seen = 1, []
variable.set("caller's")

main = threading.get_ident()


def note(gradient=None):
    seen.append((threading.get_ident(), hasattr(local, "value"), variable.get()))


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        note()
        return gradient * 2


def run(device):
    seen.clear()
    x = torch.ones(3, device=device, requires_grad=True)
    y = Own.apply(x)
    y.register_hook(note)
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    return list(seen)


threads = {}
for device in ("cuda:0", "cuda:1"):
    found = run(device)
    assert {one[1:] for one in found} == {(False, "none")} and len(found) == 2, found
    threads[device] = {one[0] for one in found}
assert all(len(thread) == 1 and main not in thread for thread in threads.values()), threads
assert threads["cuda:0"] != threads["cuda:1"]
assert run("cuda:0")[0][0] in threads["cuda:0"]  # the same one each time
assert {one[0] for one in run("cpu")} == {main}
with torch.autograd.set_multithreading_enabled(False):
    assert {one[0] for one in run("cuda:0")} == {main}
