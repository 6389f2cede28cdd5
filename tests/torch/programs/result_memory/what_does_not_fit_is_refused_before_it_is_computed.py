import torch

from tests.torch.programs.result_memory.program import host_mib, line, square

calls = {
    "product": lambda: line @ line.T,
    "elements": lambda: square.exp(),
    "broadcast": lambda: line + line.T,
    "softmax": lambda: square.softmax(0),
    "joined": lambda: torch.cat([square, square]),
    "decomposed": lambda: torch.linalg.lu(square),
    "several": lambda: square.sort(),
    "inverses": lambda: torch.linalg.inv_ex(torch.ones(1, 1, 1, device="loom").expand(600_000_000, 1, 1)),
}
before = host_mib()
for name, call in calls.items():
    for _ in range(2):  # the first one teaches the second one
        try:
            call()
            raise AssertionError(name)
        except torch.OutOfMemoryError as error:
            assert "Tried to allocate" in str(error), (name, error)
assert host_mib() - before < 600, (before, host_mib())
assert torch.loom.memory_stats()["num_ooms"] == 2 * len(calls)
assert torch.equal((line[:3] + 1).cpu(), torch.ones(3, 1))
