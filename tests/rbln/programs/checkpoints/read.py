import ast
import pickle
import sys
from pathlib import Path

import torch

import torch_loom  # noqa: F401

name, folder, written = ast.literal_eval(sys.argv[1])
torch.manual_seed(0)
expected = torch.nn.Linear(3, 2)
model = torch.nn.Linear(3, 2, device=f"{name}:1")


def check(kept, first, second, shared=True):
    assert kept["x"].device == torch.device(first), kept["x"].device
    assert all(p.device == torch.device(second) for p in kept["model"].values())
    assert kept["x"].tolist() == [[0, 1, 2], [3, 4, 5]] and kept["x"].dtype == torch.float16
    kept["row"].fill_(9)
    assert (kept["x"][1].tolist() == [9, 9, 9]) == shared
    torch.nn.init.zeros_(model.weight)
    model.load_state_dict(kept["model"])
    assert all(p.device == torch.device(f"{name}:1") for p in model.parameters())
    pairs = zip(model.parameters(), expected.parameters(), strict=True)
    assert all(torch.equal(a.cpu(), b) for a, b in pairs)
    assert kept["steps"] == 7


for file in (f"{folder}/zip.pt", f"{folder}/legacy.pt"):
    check(torch.load(file, weights_only=True), f"{name}:0", f"{name}:1")
    check(torch.load(file, map_location=f"{written}:1"), f"{name}:1", f"{name}:1")
    check(torch.load(file, map_location=name), f"{name}:0", f"{name}:0")
    check(torch.load(file, map_location=torch.device(f"{name}:1")), f"{name}:1", f"{name}:1")
    check(torch.load(file, map_location={f"{written}:1": f"{name}:0"}), f"{name}:0", f"{name}:0")
    check(torch.load(file, map_location="cpu"), "cpu", "cpu")
check(torch.load(f"{folder}/zip.pt", mmap=True, map_location="cpu"), "cpu", "cpu")
# pickle alone keeps no storage that two tensors share, on no device.
check(pickle.loads(Path(folder, "pickled").read_bytes()), f"{name}:0", f"{name}:1", shared=False)
