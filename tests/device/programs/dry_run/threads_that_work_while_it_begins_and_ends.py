import threading

import torch

loom = torch.loom
stop, failures = threading.Event(), []


def work():
    while not stop.is_set():
        try:
            x = torch.ones(100, device="loom")
            y = x + x
            del x
            y.sum()
        except RuntimeError as error:  # its tensors are of the world before
            if "dry run" not in str(error) and "dry_run" not in str(error):
                failures.append(error)


threads = [threading.Thread(target=work) for _ in range(3)]
[thread.start() for thread in threads]
for _ in range(100):
    with loom.dry_run(devices=2):
        torch.ones(10, device="loom:1").sum()
stop.set()
[thread.join() for thread in threads]
assert not failures, failures
assert torch.ones(4, device="loom").sum().item() == 4
