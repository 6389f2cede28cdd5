import threading

import torch

from tests.raising import raises

loom = torch.loom
devices = []


def work():
    loom.set_device(3)
    w = torch.ones(4, device="loom", requires_grad=True)
    (w * 2).sum().backward()
    devices.append((loom.current_device(), str(w.grad.device)))


with loom.dry_run(devices=4):
    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert loom.current_device() == 0
    # Over several devices, more than the program has.
    a = torch.ones(4, device="loom:0", requires_grad=True)
    (a.to("loom:3") * 2).to("loom:2").sum().backward()
    assert a.grad.device == torch.device("loom:0")
assert devices == [(3, "loom:3")] * 4, devices
w = torch.ones(4, device="loom:1", requires_grad=True)
torch.autograd.set_multithreading_enabled(True)
(w * 2).sum().backward()
assert w.grad.sum().item() == 8
# Autograd's threads are one for each of the program's devices.
with loom.dry_run(devices=4):
    w = torch.ones(4, device="loom:1", requires_grad=True)
    (w * 2).sum().backward()
    assert w.grad.shape == (4,)

    def on_the_third():
        return torch.ones(4, device="loom:3", requires_grad=True)

    raises("RuntimeError", "autograd's threads", lambda: on_the_third() * 2)
    torch.autograd.set_multithreading_enabled(False)
    w = torch.ones(4, device="loom:3", requires_grad=True)
    (w * 2).sum().backward()
