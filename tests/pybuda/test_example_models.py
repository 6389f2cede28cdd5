"""examples/pipeline_models.py: over several chips, and as an image, a model computes what PyTorch does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from examples import pipeline_models as example
from tests.conftest import PythonRunner
from torch_loom import pybuda

PROGRAMS = Path(__file__).parent / "programs" / "example_models"

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def rows(picture: str) -> list[str]:
    """The stages in a picture that went forward."""
    named = [line.split("|") for line in picture.splitlines() if "|" in line]
    return [name.strip() for name, cells, _ in named if "F" in cells]


@pytest.mark.parametrize("chips", [1, 2])
@pytest.mark.parametrize("name", ["bert", "resnet"])
def test_a_model_over_chips(name: str, chips: int) -> None:
    check(name, chips)


@pytest.mark.parametrize("name", ["bert", "resnet"])
def test_a_model_over_four_chips(name: str, warm_python: PythonRunner) -> None:
    done = warm_python(
        PROGRAMS / "a_model_over_four_chips.py",
        {"TORCH_LOOM_DEVICES": "4", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        given=name,
    )
    assert done.stdout.endswith("done\n")


def check(name: str, chips: int) -> None:
    """Run a model over so many chips and compare with PyTorch."""
    model, sample = example.model_and_input(name, "small", 2)
    with torch.no_grad():
        expected = [model(sample), model(sample.flip(0))]
    outputs, rate, picture = example.run(example.place(model, chips), [sample, sample.flip(0)])
    assert [torch.equal(a, b) for a, b in zip(outputs, expected, strict=True)] == [True, True]
    assert rate > 0
    assert rows(picture) == [f"chip{chip}" for chip in range(chips)]
    used = [device.torch_device().index for device in pybuda.pybudaglobal.get_devices()]
    assert used == list(range(chips))


@pytest.mark.parametrize("name", ["bert", "resnet"])
def test_a_model_through_an_image(name: str, tmp_path: Path) -> None:
    model, sample = example.model_and_input(name, "small", 2)
    path = str(tmp_path / "model.tti")
    text = example.save(model, sample, path)
    assert "wormhole_b0" in text
    pybuda.pybuda_reset()
    outputs, _, picture = example.run(pybuda.TTDevice.load_image(img_path=path), [sample])
    with torch.no_grad():
        torch.testing.assert_close(outputs[0], model(sample))
    assert rows(picture) == ["compiled"]
