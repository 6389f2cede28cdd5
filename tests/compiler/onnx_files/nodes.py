"""ONNX's own tests of nodes and models, run through the importer.

``python -m tests.compiler.onnx_files.nodes`` runs all tests of nodes, and writes the counts into
docs/conformance.md.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tools.blocks import markdown_table, replace_block
from torch_loom.compiler import load_onnx
from torch_loom.compiler.onnx import file
from torch_loom.errors import OnnxError

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "conformance.md"
BLOCK = "onnx"
TENSORS, NARROW, UNSIGNED, STRUCTURES, RANDOM, OTHERS = (
    "tensors of floats, integers and booleans",
    "floats of 8 bits and fewer, integers of 2 and 4 bits",
    "unsigned integers of 16 to 64 bits",
    "branches, loops, sequences, optional values",
    "random numbers (shapes and dtypes are compared)",
    "strings, images, trees; classical machine learning; previews",
)
_STRUCTURES = ("If", "Loop", "Scan", "Sequence", "Optional", "SplitToSequence", "ConcatFromSequence")
_RANDOM = ("test_bernoulli", "test_random", "test_training_dropout")
_STRINGS = ("String", "Regex", "TfIdf", "ImageDecoder", "LabelEncoder")


@dataclass(frozen=True)
class Result:
    """What became of a test."""

    name: str
    operator: str
    family: str
    outcome: str
    message: str = ""


def dtype_names(case: Any) -> set[str]:
    """The dtypes of a test's inputs and outputs."""
    found = set()
    for inputs, outputs in case.data_sets:
        for value in (*inputs, *outputs):
            if hasattr(value, "data_type"):
                found.add(file.package("onnx").TensorProto.DataType.Name(value.data_type).lower())
            else:
                found.add(getattr(getattr(value, "dtype", None), "name", ""))
    return found


def family_of(case: Any) -> str:
    """Which row of the table a test is counted in."""
    operator, names = case.model.graph.node[0].op_type, dtype_names(case)
    if case.name.startswith(_RANDOM):
        return RANDOM
    domains = {node.domain for node in case.model.graph.node}
    if domains - {"", "ai.onnx"} or operator.startswith(_STRINGS) or names & {"object", "string"}:
        return OTHERS
    if any(node.op_type.startswith(_STRUCTURES) for node in case.model.graph.node):
        return STRUCTURES
    if any(re.search(r"int[24]$|float[48]", name) for name in names):
        return NARROW
    return UNSIGNED if names & {"uint16", "uint32", "uint64"} else TENSORS


def tensor(value: Any) -> Any:
    """A value of a test as PyTorch has it."""
    if value is None or isinstance(value, list | tuple):
        return None if value is None else [tensor(one) for one in value]
    if hasattr(value, "data_type"):
        return file.tensor_of(value, None)
    array = np.asarray(value)
    number = file.package("onnx.helper").np_dtype_to_tensor_dtype(array.dtype)
    return file.from_numpy(array, file.dtype_of(number, "the test's value"))


def check(model: Any, data_sets: Iterable[Any], rtol: float, atol: float, values: bool = True) -> None:
    """Run a model.

    Raises:
        AssertionError: results differ from those of the test.
        OnnxError: the model is not read.
    """
    module = load_onnx(model)
    for inputs, outputs in data_sets:
        with torch.no_grad():
            made = module(*(tensor(value) for value in inputs))
        results = list(made) if len(model.graph.output) > 1 else [made]
        for got, wanted in zip(results, (tensor(value) for value in outputs), strict=True):
            _compare(got, wanted, rtol, atol, values)


def _compare(got: Any, wanted: Any, rtol: float, atol: float, values: bool) -> None:
    if isinstance(wanted, list):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            _compare(one, other, rtol, atol, values)
        return
    if wanted is None or not isinstance(got, torch.Tensor):
        assert got is wanted
        return
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if values:
        if wanted.is_floating_point():
            # The reference rounds in other places; a result may be off by two units of its dtype.
            eps = 2 * torch.finfo(wanted.dtype).eps if wanted.itemsize == 2 else 0.0
            rtol, atol = max(rtol, eps), max(atol, eps)
            got, wanted = got.double(), wanted.double()
        torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol, equal_nan=True)


def results() -> Iterator[Result]:
    """Run the tests of nodes; those of definitions by other operators ("expanded") are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    for case in cases:
        if "_expanded" in case.name:
            continue
        operator, family = case.model.graph.node[0].op_type, family_of(case)
        try:
            check(case.model, case.data_sets, case.rtol, case.atol, values=family != RANDOM)
        except OnnxError as error:  # also of a run, where only its dtypes tell
            yield Result(case.name, operator, family, "refused", str(error))
        except Exception as error:
            yield Result(case.name, operator, family, "fails", f"{type(error).__name__}: {error}")
        else:
            yield Result(case.name, operator, family, "passes")


def section(found: list[Result]) -> str:
    """The part of the page."""
    import onnx

    rows = []
    for family in (TENSORS, NARROW, UNSIGNED, STRUCTURES, RANDOM, OTHERS):
        count = Counter(one.outcome for one in found if one.family == family)
        rows.append([family, *(f"{count[name]:,}" for name in ("passes", "refused", "fails"))])
    passing = {one.operator for one in found if one.outcome == "passes"}
    every = {one.operator for one in found}
    whole = every - {one.operator for one in found if one.outcome != "passes"}
    refused = sorted({one.operator for one in found} - passing)
    failing = Counter(one.operator for one in found if one.outcome == "fails" and one.operator in passing)
    names = ", ".join(f"{name} ({count})" for name, count in sorted(failing.items()))
    return "\n\n".join(
        [
            f"The tests of nodes of onnx {onnx.__version__}, each read by `load_onnx` and run on the CPU. "
            "*Refused*: an `OnnxError` says what is not read. *Fails*: another error, or other numbers.",
            markdown_table(["tests of", "pass", "refused", "fail"], rows),
            f"{len(passing)} of {len(every)} operators pass a test, {len(whole)} all of theirs.",
            f"None passes: {', '.join(refused)}.",
            f"Some fail: {names}.",
        ]
    )


def main(arguments: list[str]) -> None:
    """Run the tests, print what does not pass, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-write", action="store_true", help="leave the page as it is")
    given = parser.parse_args(arguments)
    found = list(results())
    for one in found:
        if one.outcome != "passes":
            print(one.outcome, one.operator, one.name, " ".join(one.message.split())[:200])
    print(Counter(one.outcome for one in found))
    if not given.no_write:
        text = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(replace_block(text, BLOCK, section(found)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
