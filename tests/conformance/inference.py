"""`python -m tests.conformance.inference`: what shape functions say of ops against what the engine does.

Runs PyTorch's operator database, gradients included, in place on the default stream. Each first call of an op
with such arguments is compared with what the op's shape function says of it (`check_inference`). Where the
two differ, the op needs a correction in the op table: `engine_infers` or `python_infers`. Also counts how
many ops have outputs that are inferred in C++, in Python, by the engine's kernel on zeros, or not at all, and
how many calls are not inferred.

Prints the differences, and writes `build/conformance/inference.json`; --check fails where there are any.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torch_loom import _C
from torch_loom import ops as op_table

from .cases import OpInfo, dtypes_of, ops, samples
from .move import move

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "build/conformance/inference.json"
DTYPES = ("float32", "bfloat16", "complex64", "int64", "bool")


def exercise(info: OpInfo, dtype: str, limit: int | None) -> None:
    """Calls the op with its samples, in place and with gradients where it has them."""
    wants_gradient = dtype in ("float32", "complex64") and info.supports_autograd
    for number, sample in enumerate(samples(info, dtype, requires_grad=wants_gradient)):
        if limit is not None and number >= limit:
            return
        for call in (_forward, _inplace):
            try:
                call(info, sample, wants_gradient)
            except Exception:
                continue  # what fails is the conformance run's subject


def _forward(info: OpInfo, sample: Any, wants_gradient: bool) -> None:
    given = move(info, sample, "loom")
    result = info(given.input, *given.args, **given.kwargs)
    if not wants_gradient:
        return
    results = [result] if isinstance(result, torch.Tensor) else list(result)
    outputs = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(r) for r in outputs])


def _inplace(info: OpInfo, sample: Any, wants_gradient: bool) -> None:
    if info.get_inplace() is None:
        return
    given = move(info, sample, "loom")
    with torch.no_grad():
        info.get_inplace()(given.input, *given.args, **given.kwargs)


def run(pattern: str | None, dtypes: Sequence[str], limit: int | None) -> list[tuple[str, str, int, str]]:
    """Runs the database; returns op, finding, count and first example of each."""
    import re

    _C.check_inference(True)
    warnings.simplefilter("ignore")
    for family in ("ops", "foreach"):
        for name, info in ops(family).items():
            if pattern is not None and not re.search(pattern, name):
                continue
            for dtype in dtypes:
                if dtype in dtypes_of(info):
                    exercise(info, dtype, limit)
            print(f"\r{name:60.60}", end="", file=sys.stderr, flush=True)
    _C.check_inference(False)
    print(file=sys.stderr)
    return _C.inference_checks()


def summary(found: Sequence[tuple[str, str, int, str]]) -> dict[str, Any]:
    """Returns counts of ops by where their outputs come from, and of calls by what was found."""
    calls: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    for _, finding, count, _ in found:
        calls[finding] += count
    for op in {op for op, *_ in found}:
        name, _, overload = op.partition(".")
        findings = {finding for own, finding, *_ in found if own == op}
        facts = _C.op_facts(name, overload)
        if findings == {"no answer"}:
            sources["none"] += 1
        elif "engine_infers" in op_table.facts_of(op):
            sources["engine"] += 1
        else:
            sources["C++" if facts["has_cpp_shape_function"] else "Python"] += 1
    return {"calls": dict(calls), "ops": dict(sources)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, prints what differs, and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.inference", description=__doc__)
    parser.add_argument("--ops", metavar="REGEX", help="only ops whose name matches")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--limit", type=int, help="at most so many samples of each op and dtype")
    parser.add_argument("--check", action="store_true", help="fail where a shape function differs")
    options = parser.parse_args(arguments)
    found = run(options.ops, options.dtypes.split(","), options.limit)
    # A result in a larger storage than was said is copied into its place.
    wrong = [row for row in found if row[1] not in ("agrees", "no answer", "storage")]
    for op, finding, count, example in wrong:
        print(f"{op}: {finding} ({count}): {example}")
    counts = summary(found)
    print(json.dumps(counts))
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({"summary": counts, "found": found}, indent=1) + "\n", encoding="utf-8")
    return 1 if options.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
