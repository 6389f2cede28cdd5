"""Writes what is generated from facts: blocks of README.md and two pages, and the pages in PAGES.

``make docs`` runs it. ``python -m tools.docs --check`` writes nothing, and exits with 1 if it would change
anything.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import (
    chip_keys,
    compiler_options,
    cuda_values,
    patches,
    pybuda_options,
    rbln_options,
    reports,
    supported_ops,
    tt_options,
)
from tools.blocks import MissingBlockError, markdown_table, replace_block
from tools.parity import pybuda, report
from torch_loom import config
from torch_loom.tools import console

EXAMPLE_TIMEOUT_SECONDS = 120
SETTINGS_FILE = "docs/settings.md"
_EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Pages that are generated as a whole: path -> function of the checkout's root.
PAGES: dict[str, Callable[[Path], str]] = {
    report.FILE: report.document,
    pybuda.FILE: pybuda.document,
    supported_ops.FILE: lambda _root: supported_ops.page(),
    chip_keys.FILE: lambda _root: chip_keys.page(),
    compiler_options.FILE: lambda _root: compiler_options.page(),
    pybuda_options.FILE: lambda _root: pybuda_options.page(),
    rbln_options.FILE: lambda _root: rbln_options.page(),
    tt_options.FILE: lambda _root: tt_options.page(),
    cuda_values.FILE: lambda _root: cuda_values.page(),
    SETTINGS_FILE: lambda _root: settings_page(),
}
_TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)


class DocsError(RuntimeError):
    """A generated block could not be made."""


def example_output(readme: str) -> str:
    """Runs the first Python block of `readme` in a fresh interpreter; returns its standard output, fenced.

    Settings in the environment are left out, so that the result is that of a plain installation.

    Raises:
        DocsError: there is no Python block, or it failed.
    """
    found = _EXAMPLE.search(readme)
    if found is None:
        raise DocsError("README.md has no ```python block")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(config.ENV_PREFIX)}
    done = subprocess.run(
        [sys.executable, "-"],
        input=found[1],
        capture_output=True,
        text=True,
        timeout=EXAMPLE_TIMEOUT_SECONDS,
        env=plain,
    )
    if done.returncode:
        raise DocsError(f"the example of README.md failed:\n{done.stderr.strip()}")
    return f"```text\n{done.stdout.strip()}\n```"


def conformance_table(conformance: str) -> str:
    """Returns the first table of docs/conformance.md: what the conformance run counted."""
    found = _TABLE.search(conformance)
    if found is None:
        raise DocsError("docs/conformance.md has no table; `make conformance` writes it")
    return found[0].strip()


def settings_table() -> str:
    """Returns the table of environment variables."""
    rows = [
        [
            f"`{setting.env}`",
            setting.type_name,
            "not set" if setting.default is None else f"`{setting.default}`",
            setting.allowed,
            setting.meaning,
        ]
        for setting in config.SETTINGS
    ]
    return markdown_table(["variable", "type", "default", "takes", "meaning"], rows)


def settings_page() -> str:
    """Returns the page of environment variables."""
    note = (
        "Written by `make docs` from `torch_loom/config/settings.py`; do not edit. `loom env` shows the "
        "values in force. A bad value is an error that names the variable and what it takes."
    )
    return f"# Settings\n\n{note}\n\n{settings_table()}\n"


def what_works(root: Path) -> str:
    """Returns the section on what works today."""
    parts = []
    conformance = root / "docs" / "conformance.md"
    if conformance.exists():
        parts += [
            "PyTorch's own operator database, run on loom and compared with the CPU"
            " ([docs/conformance.md](docs/conformance.md)):",
            conformance_table(conformance.read_text()),
        ]
    parts += [
        f"The device module `torch.{config.device_name()}` is shaped like `torch.cuda`, name by name"
        f" ([{report.FILE}]({report.FILE}) says for each what it is and which test shows it):",
        report.counts(),
    ]
    return "\n\n".join(parts)


def rewritten(readme: str, root: Path) -> str:
    """Returns the text of README.md with every generated block made anew."""
    readme = replace_block(readme, "example-output", example_output(readme))
    return replace_block(readme, "what-works", what_works(root))


def run(check: bool) -> None:
    """Rewrites README.md and the pages in the current directory; with `check`, only says whether it would."""
    root = Path()
    readme = root / "README.md"
    if not readme.exists():
        console.fail("there is no README.md here; run this in a checkout of torch-loom")
    try:
        new = {"README.md": rewritten(readme.read_text(), root)}
        new |= {name: make(root) for name, make in PAGES.items()}
        for page in (reports, patches):
            if (root / page.FILE).exists():  # its other sections are not generated, or take hours to measure
                new[page.FILE] = page.rewritten(root)
    except (DocsError, MissingBlockError, ValueError) as error:
        console.fail(error)
    stale = [name for name, text in new.items() if not _is_current(root / name, text)]
    if stale and check:
        console.fail(f"out of date: {', '.join(stale)}; run `make docs`")
    for name in stale:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(new[name], encoding="utf-8")
    console.out.print(f"written: {', '.join(stale)}" if stale else "README.md and the pages are up to date")


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description="Write the generated pages.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if anything would change")
    run(parser.parse_args(arguments).check)


if __name__ == "__main__":
    main()
