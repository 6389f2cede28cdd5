import os
from multiprocessing.reduction import ForkingPickler

import torch

there, here = os.pipe()
pid = os.fork()  # before first use


def receive():
    message = os.read(there, 1 << 16)
    x, big = ForkingPickler.loads(message)
    assert x.tolist() == [0, 1, 2, 3] and big.sum().item() == 10_000_000
    x += 1
    big[-1] = 7
    torch.loom.synchronize()


if pid == 0:
    try:
        receive()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)
x, big = torch.arange(4.0, device="loom"), torch.ones(10_000_000, dtype=torch.int8, device="loom")
kept = torch.ones(3, device="loom") + 1
os.write(here, bytes(ForkingPickler.dumps((x, big))))
assert os.waitpid(pid, 0)[1] == 0
assert x.tolist() == [1, 2, 3, 4] and big[-1].item() == 7 and kept.tolist() == [2, 2, 2]
del x, big
torch.loom.ipc_collect()
torch.loom.empty_cache()
again = torch.zeros(10_000_000, dtype=torch.int8, device="loom")
assert again.sum().item() == 0 and kept.tolist() == [2, 2, 2]
