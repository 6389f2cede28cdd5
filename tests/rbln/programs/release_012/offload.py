import ast
import os
import sys
from pathlib import Path

import torch

import torch_loom  # noqa: F401

rbln = torch.rbln
parent = Path(ast.literal_eval(sys.argv[1]))
SIZE = 1 << 20


def files() -> list[Path]:
    return sorted(path for path in parent.rglob("*") if path.is_file() and path.name != "lock")


before = torch.ones(SIZE, dtype=torch.uint8, device="rbln")
assert not parent.exists()
with rbln.offload():
    first = torch.full((SIZE,), 3, dtype=torch.uint8, device="rbln")
    with rbln.offload():
        second = torch.arange(SIZE // 2, dtype=torch.float16, device="rbln")
    late = torch.empty(SIZE, dtype=torch.uint8, device="rbln")
    small = torch.ones(8, device="rbln")
(folder,) = parent.iterdir()
assert folder.name.startswith(f"{os.getpid()}-") and len(files()) == 2
assert {path.stat().st_size for path in files()} == {SIZE}
after = torch.ones(SIZE, dtype=torch.uint8, device="rbln")
assert len(files()) == 2  # the outermost block has ended
late.fill_(7)  # made within the block, and written now
assert len(files()) == 3
assert first.cpu().unique().tolist() == [3] and late[-1].item() == 7
assert second[:5].tolist() == [0, 1, 2, 3, 4]
# What an op needs is on the device, and no longer in a file.
left = len(files())
assert (first + 1)[0].item() == 4 and len(files()) < left
assert rbln.memory_allocated() > 0
third = late.clone().resize_(2 * SIZE)
del late
kept = files()
assert rbln.release_offload_temp_storage() == len(kept)
assert not folder.exists()
assert second[5].item() == 5  # what is mapped stays
with rbln.offload():
    again = torch.ones(SIZE, dtype=torch.uint8, device="rbln")
assert len(files()) == 1 and again.cpu().all()
del again
assert files() == []
with rbln.offload():
    at_the_end = torch.ones(SIZE, dtype=torch.uint8, device="rbln")
assert len(files()) == 1
