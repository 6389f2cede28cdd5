"""safetensors reads to the devices, whole files, single tensors and parts of them."""

import tempfile
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

path = Path(tempfile.mkdtemp()) / "file.safetensors"
values = torch.arange(12.0).reshape(3, 4)
save_file({"values": values.to("loom")}, path, metadata={"kind": "test"})

found = load_file(path, device="loom:1")["values"]
assert str(found.device) == "loom:1"
assert torch.equal(found.cpu(), values)
assert load_file(path)["values"].device.type == "cpu"

with safe_open(path, "pt", device="loom") as file:
    assert list(file.keys()) == ["values"]
    assert file.metadata() == {"kind": "test"}
    assert torch.equal(file.get_tensor("values").cpu(), values)
    part = file.get_slice("values")
    assert part.get_shape() == [3, 4]
    assert part[1:, :2].device.type == "loom"
    assert torch.equal(part[1:, :2].cpu(), values[1:, :2])
    try:
        file.get_tensor("none")
    except SafetensorError as error:
        assert "none" in str(error)
    else:
        raise AssertionError("nothing is raised")

one, other = nn.Linear(3, 2).to("loom"), nn.Linear(3, 2).to("loom")
save_model(one, str(path))
load_model(other, str(path), device="loom")
assert torch.equal(one.weight, other.weight)
