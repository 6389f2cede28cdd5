"""Results that cards of NVIDIA gave, bit for bit: the order of sums, ties, whole quotients, ranges."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from numpy.lib import introspect

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "card_values"


def measured(name: str) -> dict[str, Any]:
    """Return what a card gave: a digest of each result."""
    return dict(json.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))["results"])


def has_same_operands(name: str) -> bool:
    """Return whether the operands of a result are the measurement's.

    Those of functions of float64 are powers of NumPy's, whose last bit its loops of AVX-512 decide.
    """
    powers = introspect.opt_func_info(func_name="^power$")["power"]["ddd"]["current"]
    return powers in ("X86_V4", "AVX512_SKX") or re.fullmatch("(un|bi|bw)/.*/f64", name) is None


MEASURED = {name: digest for name, digest in measured("card_values.json").items() if has_same_operands(name)}


def digests(run: PythonRunner, **env: str) -> dict[str, str]:
    done = run(PROGRAMS / "digests.py", {"TORCH_LOOM_DEVICE_NAME": "cuda", **env})
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return {name: digest for name, digest in found.items() if has_same_operands(name)}


@pytest.mark.long
@pytest.mark.parametrize("chip", ["h200", "h100"])
def test_results_are_those_of_the_card(warm_python: PythonRunner, chip: str) -> None:
    found = digests(warm_python, TORCH_LOOM_CHIP=chip)
    assert found.keys() == MEASURED.keys()
    assert {name for name, digest in found.items() if digest != MEASURED[name]} == set()


@pytest.mark.long
def test_a_card_with_other_cores_adds_in_another_order(warm_python: PythonRunner) -> None:
    """Sums over several blocks depend on how many cores there are: the test above tells orders apart."""
    found = digests(warm_python, TORCH_LOOM_CHIP="t4")
    differ = {name for name, digest in found.items() if digest != MEASURED[name]}
    assert differ
    sums = ("big", "sum", "mean", "hsum", "hmean", "dims", "lay")
    assert all(name.startswith(sums) for name in differ)


def test_each_device_adds_in_its_order(warm_python: PythonRunner) -> None:
    env = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_CHIP": "h200,t4", "TORCH_LOOM_DEVICES": "2"}
    warm_python(PROGRAMS / "each_device_adds_in_its_order.py", env)


@pytest.mark.long
def test_random_numbers_are_those_of_the_card(warm_python: PythonRunner) -> None:
    """Uniform bits, masks of dropout and attention, permutations, choices; and how far the offset moves."""
    env = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_CHIP": "h100"}
    found = json.loads(warm_python(PROGRAMS / "random_digests.py", env).stdout.splitlines()[-1])
    wanted = measured("card_random_values.json")
    assert found.keys() == wanted.keys()
    assert {name for name, digest in found.items() if digest != wanted[name]} == set()


@pytest.mark.long
def test_outs_views_and_shapes_are_those_of_other_devices(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "outs_and_views.py", {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_CHIP": "h100"})


def test_ties_and_narrow_outs_are_those_of_the_reference(warm_python: PythonRunner) -> None:
    env = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_CHIP": "h100"}
    warm_python(PROGRAMS / "ties_and_narrow_outs.py", env)


def test_rows_of_weights_are_added_in_order(warm_python: PythonRunner) -> None:
    env = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_CHIP": "h100"}
    warm_python(PROGRAMS / "rows_of_weights.py", env)
