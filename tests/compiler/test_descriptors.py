"""Descriptors of chips and clusters: what they say of cores, and what is refused with a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torch_loom.chips import load
from torch_loom.compiler import descriptors
from torch_loom.compiler.options import Options
from torch_loom.compiler.target import Target, target_of
from torch_loom.errors import CompilerOptionError

DEVICE, CLUSTER, PARAMETERS = (
    *("backend_device_descriptor_path", "backend_cluster_descriptor_path"),
    "backend_runtime_params_path",
)


# Each list has ten of the one before: 10^9 texts, were they written out.
_NESTED = "\n".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 10)}]" for n in range(1, 9))
BOMB = f"b0: &b0 [{', '.join(['x'] * 10)}]\n{_NESTED}\nfunctional_workers: *b8"


def target(path: Path, option: str = DEVICE) -> Target:
    return target_of(load("wormhole_b0"), Options().but(**{option: str(path)}))


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ("grid: {rows: 8, columns: 6}", (8, 6)),
        ("functional_workers: [1-1, 2-1, 1-2, 2-2]", (2, 2)),
        # As PyBuda's own files: a grid of all that the die has, and the cores that work.
        ("grid: {x_size: 10, y_size: 12}\nfunctional_workers: [1-1, 2-1, 4-1]", (1, 3)),
        ("worker_l1_size: 1499136", (9, 8)),
        # Ten rows are there; on a card one does not work.
        ("grid: {rows: 10, columns: 8}", (10, 8)),
    ],
)
def test_which_cores_work(tmp_path: Path, text: str, grid: tuple[int, int]) -> None:
    path = tmp_path / "device.yaml"
    path.write_text(text)
    found = target(path)
    assert (found.rows, found.columns) == grid


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rows: 8\ncolumns: 8", r"expected functional_workers.* but it has \['rows', 'columns'\]"),
        ("gird: {rows: 8, columns: 8}", r"it has \['gird'\]"),
        ("grid: {rows: 8}", "grid is {'rows': 8}; expected rows and columns"),
        ("grid: {x_size: 8, y_size: 8}", "expected rows and columns"),
        ("grid: {rows: 0, columns: 8}", "grid: rows is 0; expected a whole number from 1 to 10"),
        ("grid: {rows: -8, columns: 8}", "rows is -8"),
        ("grid: {rows: 99, columns: 8}", "rows is 99"),
        ("grid: {rows: 8.0, columns: 8}", "rows is 8.0"),
        ("grid: {rows: true, columns: 8}", "rows is True"),
        ("grid: {rows: 8, columns: .inf}", "columns is inf"),
        ("worker_l1_size: -1", "worker_l1_size is -1"),
        ("functional_workers: []", r"functional_workers is \[\]; expected a list of names"),
        ("functional_workers: 8", "functional_workers is 8"),
        (
            f"functional_workers: [{', '.join(f'1-{row}' for row in range(11))}]",
            "11 x 1 cores, and the chip has 10",
        ),
        ("", "the file has NoneType, not keys and values"),
        ("- 1", "the file has list"),
        ("a: [", "the file cannot be read"),
        ("a: !!python/object/apply:os.getcwd []", "the file cannot be read"),
        ("[" * 5000, "the file cannot be read"),
        ("a: " + "9" * 5000, "the file cannot be read"),
        (BOMB, "expected a list of names"),
        (BOMB.replace("functional_workers", "grid"), "expected rows and columns"),
    ],
)
def test_what_is_no_descriptor_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "device.yaml"
    path.write_text(text)
    with pytest.raises(CompilerOptionError, match=f"(?s){DEVICE}='.*device.yaml': .*{says}"):
        target(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    large = tmp_path / "large"
    with large.open("wb") as made:
        made.truncate(descriptors.MAX_BYTES + 1)
    for path, says in ((pipe, "this is a pipe"), (tmp_path, "this is a folder"), (large, "at most")):
        with pytest.raises(CompilerOptionError, match=says):
            target(path)


@pytest.mark.parametrize("text", ["chips: []", "chips: 3", "other: 1", f"chips: {list(range(33))}"])
def test_a_cluster_has_chips(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(CompilerOptionError, match="expected the key 'chips' with 1 to 32 of them"):
        target(path, CLUSTER)


@pytest.mark.parametrize(
    "text",
    [
        *("rows: 2.5", "rows: true", "rows: 10000000000", "channels: 1.5", "sram_bytes: .inf"),
        *("clock_ghz: .inf", "clock_ghz: 0", "clock_ghz: a", "clock_ghz: 1.0e-300"),
    ],
)
def test_runtime_parameters_have_a_range(tmp_path: Path, text: str) -> None:
    path = tmp_path / "parameters.yaml"
    path.write_text(text)
    with pytest.raises(CompilerOptionError, match=r"expected a .*number from "):
        target(path, PARAMETERS)


def test_runtime_parameters_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    options = {PARAMETERS: str(tmp_path / "none" / "p.yaml"), "store_backend_db_to_yaml": True}
    with pytest.raises(CompilerOptionError, match="cannot be written"):
        target_of(load("wormhole_b0"), Options().but(**options))
