"""`python -m tests.conformance.buda FOLDER`: test files of tt-buda, unmodified, on virtual chips.

The files are not in this repository: FOLDER is ``pybuda`` of tt-buda. Each of ``FILES`` runs in a process
of its own, of a file or folder an even share of its tests. `--write-docs` writes the block of
docs/conformance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.blocks import markdown_table, replace_block

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "conformance.md"
FILES = (
    *("test_sanity.py", "operators/eltwise_binary", "operators/eltwise_unary", "operators/matmul"),
    *("operators/nary", "operators/reduce", "operators/tm", "operators/grouped_reduce"),
    *("operators/eltwise_binary_comparison", "operators/eltwise_unary_attr", "test_padding/sanity"),
    *(
        "test_padding/tms",
        "test_padding/other",
        "test_fork_join.py",
        "test_multichip.py",
        "test_streaming.py",
        "test_conv2d.py",
    ),
    *("test_fusing.py", "tti/test_tti.py", "backend/test_loss.py", "test_user.py", "test_consteval.py"),
    *("test_nn.py", "test_cross_entropy_loss.py", "test_constraints.py", "test_error.py", "test_indexing.py"),
)
# What a test reads of the original's internals, or needs that is not here, by the text of its failure.
PRIVATE = (
    r"_compile_output|_compiled_graph_state|placer_solution|netlist|list index"
    r"|assert len\(devices\) == 1"  # then of what verify_module returns `_compiled_graph_state` is read
    r"|cannot import name '\w+' from 'torch_loom\.pybuda\.(op\.eval|_C)"
    r"|huggingface|HTTPError|ConnectionError|connect to"
)


@dataclass
class Result:
    """What the tests of a file or a folder came to."""

    name: str
    passed: int = 0
    private: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """The first line of what each failed test says, by its name."""


def counted(name: str, report: Path) -> Result:
    """Return what a JUnit report of pytest's says."""
    result = Result(name)
    for case in ElementTree.parse(report).iter("testcase"):
        problem = case.find("failure")
        problem = case.find("error") if problem is None else problem
        if problem is None:
            is_skipped = case.find("skipped") is not None
            # What the file marks as failing with the original.
            is_expected = is_skipped and (case.find("skipped").get("type") or "") == "pytest.xfail"
            result.skipped += is_skipped and not is_expected
            result.passed += not is_skipped
            continue
        text = f"{problem.get('message')}\n{(problem.text or '')[-1500:]}"
        if "XPASS(strict)" in text:
            result.passed += 1
        elif re.search(PRIVATE, text):
            result.private += 1
        else:
            lines = [line for line in (problem.get("message") or text).splitlines() if line.strip()]
            result.failed[f"{case.get('name')}"] = lines[0].strip()[:160] if lines else "no message"
    return result


def run(options: argparse.Namespace, name: str) -> Result:
    """Run the tests of a file or a folder; one without a report has failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        Path(folder, "pybuda").symlink_to(options.folder)  # the files list others from tt-buda's root
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conformance.buda_plugin"]
        command += ["-p", "no:cacheprovider", "-W", "ignore", "--rootdir", str(options.folder)]
        command += [f"--junit-xml={report}", f"--timeout={options.test_timeout}"]
        command += [f"--at-most={options.at_most}", str(options.folder / "test" / name)]
        env = {**os.environ, "TORCH_LOOM_CHIP": "grayskull", "TORCH_LOOM_DEVICES": "4"}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        try:
            done = subprocess.run(
                command, cwd=folder, env=env, capture_output=True, text=True, timeout=options.timeout
            )
        except subprocess.TimeoutExpired:
            return Result(name, failed={"the file": f"over {options.timeout} s"})
        if report.exists():
            return counted(name, report)
        return Result(name, failed={"the file": (done.stderr or done.stdout).strip()[-160:]})


def section(results: Sequence[Result]) -> str:
    """Return the block: a row for each file, and every failure."""
    rows = [
        [one.name, str(one.passed), str(one.private), str(len(one.failed)), str(one.skipped)]
        for one in results
    ]
    passed, failed = sum(one.passed for one in results), sum(len(one.failed) for one in results)
    private, skipped = sum(one.private for one in results), sum(one.skipped for one in results)
    rate = f"{int(1000 * passed / max(passed + failed, 1)) / 10:.1f}%"
    rows.append([f"**all: {rate}**", str(passed), str(private), str(failed), str(skipped)])
    parts = [markdown_table(["file", "passed", "private", "failed", "skipped"], rows)]
    said = [
        [f"`{test}`", f"`{why.replace('`', chr(39))}`"] for one in results for test, why in one.failed.items()
    ]
    if said:
        parts.append(markdown_table(["failed", "says"], said))
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.buda", description=__doc__)
    parser.add_argument("folder", type=Path, help="pybuda, of tt-buda")
    parser.add_argument("files", nargs="*", help="of these (all)")
    parser.add_argument("--at-most", type=int, default=16, help="tests of a file or folder")
    parser.add_argument("--test-timeout", type=int, default=60, help="seconds for a test")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for a file or folder")
    parser.add_argument("--results", type=Path, help="a file of earlier results, which keeps these")
    parser.add_argument("--write-docs", action="store_true", help="write the block of docs/conformance.md")
    options = parser.parse_args(arguments)
    options.folder = options.folder.resolve()
    found: dict[str, Result] = {}
    if options.results and options.results.exists():
        found = {one["name"]: Result(**one) for one in json.loads(options.results.read_text())}
    for name in options.files or FILES:
        found[name] = run(options, name)
        print(found[name], flush=True)
        if options.results:
            options.results.write_text(json.dumps([asdict(one) for one in found.values()]))
    results = [found[name] for name in FILES if name in found]
    print(section(results).partition("\n\n")[0].splitlines()[-1])
    if options.write_docs:
        text = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(replace_block(text, "buda", section(results)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
