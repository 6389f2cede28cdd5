"""Checkpoints written under one name of the device load under the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.rbln.vendor import NAME

ENV = {"loom": {}, "rbln": NAME}

_WRITE = """
import pickle, torch_loom
torch.manual_seed(0)
model = torch.nn.Linear(3, 2).to("{name}:1")
x = torch.arange(6, dtype=torch.float16, device="{name}").view(2, 3)
kept = {{"x": x, "row": x[1], "model": model.state_dict(), "steps": 7}}
torch.save(kept, "{folder}/zip.pt")
torch.save(kept, "{folder}/legacy.pt", _use_new_zipfile_serialization=False)
open("{folder}/pickled", "wb").write(pickle.dumps(kept))
"""

_READ = """
import pickle, torch_loom
torch.manual_seed(0)
expected = torch.nn.Linear(3, 2)
model = torch.nn.Linear(3, 2, device="{name}:1")

def check(kept, first, second, shared=True):
    assert kept["x"].device == torch.device(first), kept["x"].device
    assert all(p.device == torch.device(second) for p in kept["model"].values())
    assert kept["x"].tolist() == [[0, 1, 2], [3, 4, 5]] and kept["x"].dtype == torch.float16
    kept["row"].fill_(9)
    assert (kept["x"][1].tolist() == [9, 9, 9]) == shared
    torch.nn.init.zeros_(model.weight)
    model.load_state_dict(kept["model"])
    assert all(p.device == torch.device("{name}:1") for p in model.parameters())
    pairs = zip(model.parameters(), expected.parameters(), strict=True)
    assert all(torch.equal(a.cpu(), b) for a, b in pairs)
    assert kept["steps"] == 7

for file in ("{folder}/zip.pt", "{folder}/legacy.pt"):
    check(torch.load(file, weights_only=True), "{name}:0", "{name}:1")
    check(torch.load(file, map_location="{written}:1"), "{name}:1", "{name}:1")
    check(torch.load(file, map_location="{name}"), "{name}:0", "{name}:0")
    check(torch.load(file, map_location=torch.device("{name}:1")), "{name}:1", "{name}:1")
    check(torch.load(file, map_location={{"{written}:1": "{name}:0"}}), "{name}:0", "{name}:0")
    check(torch.load(file, map_location="cpu"), "cpu", "cpu")
check(torch.load("{folder}/zip.pt", mmap=True, map_location="cpu"), "cpu", "cpu")
# pickle alone keeps no storage that two tensors share, on no device.
check(pickle.load(open("{folder}/pickled", "rb")), "{name}:0", "{name}:1", shared=False)
"""

_WRITE_SAFETENSORS = """
import torch_loom
from safetensors.torch import save_file
x = torch.arange(6, dtype=torch.float16, device="{name}:1").view(2, 3)
save_file({{"x": x}}, "{folder}/x.safetensors")
"""

_READ_SAFETENSORS = """
import torch_loom
from safetensors import safe_open
from safetensors.torch import load_file
# Its list of device types is fixed and has neither name; an index is the accelerator's.
for device, where in (("cpu", "cpu"), (0, "{name}:0"), (1, "{name}:1")):
    x = load_file("{folder}/x.safetensors", device=device)["x"]
    assert x.device == torch.device(where), x.device
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and x.dtype == torch.float16
    assert (x + 1).sum().item() == 21
with safe_open("{folder}/x.safetensors", framework="pt", device=1) as file:
    x = file.get_tensor("x")
    row = file.get_slice("x")[1:]
    assert x.device == row.device == torch.device("{name}:1") and row.tolist() == [[3, 4, 5]]
"""


@pytest.mark.parametrize(("written", "name"), [("rbln", "loom"), ("loom", "rbln")])
def test_torch_save(fork_python: PythonRunner, tmp_path: Path, written: str, name: str) -> None:
    fork_python(_WRITE.format(name=written, folder=tmp_path), ENV[written])
    fork_python(_READ.format(name=name, written=written, folder=tmp_path), ENV[name])


@pytest.mark.parametrize(("written", "name"), [("rbln", "loom"), ("loom", "rbln")])
def test_safetensors(fork_python: PythonRunner, tmp_path: Path, written: str, name: str) -> None:
    fork_python(_WRITE_SAFETENSORS.format(name=written, folder=tmp_path), ENV[written])
    fork_python(_READ_SAFETENSORS.format(name=name, folder=tmp_path), ENV[name])
