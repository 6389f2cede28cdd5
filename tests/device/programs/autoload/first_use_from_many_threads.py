import threading

import torch

import torch_loom  # noqa: F401

torch.loom.manual_seed_all(3)
uses = (
    lambda: torch.empty(4, device="loom:1"),
    lambda: torch.Generator("loom"),
    lambda: torch.accelerator.current_stream(),
    lambda: torch.loom.mem_get_info(),
)
start = threading.Barrier(8)
failures = []


def work(use):
    start.wait()
    try:
        use()
    except Exception as error:
        failures.append(error)


threads = [threading.Thread(target=work, args=(uses[i % 4],), daemon=True) for i in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(20)
    assert not thread.is_alive(), "deadlock"
assert not failures, failures
assert [generator.initial_seed() for generator in torch.loom.default_generators] == [3, 3]
