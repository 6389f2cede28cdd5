"""`loom docs`: writes README.md's generated blocks and docs/supported_ops.md from facts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import torch

from torch_loom import config
from torch_loom.tools import console, supported_ops
from torch_loom.tools.blocks import MissingBlockError, markdown_table, replace_block

EXAMPLE_TIMEOUT_SECONDS = 120
_EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
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


def device_names() -> str:
    """Returns a paragraph with the public names of the device module, in alphabetical order."""
    name = config.device_name()
    module = torch.get_device_module(name)
    names: list[str] = []
    modules: list[str] = []
    for member in sorted(module.__all__, key=str.lower):
        is_module = isinstance(getattr(module, member), ModuleType)
        (modules if is_module else names).append(f"`{member}`")
    return f"The device module `torch.{name}`: {', '.join(names)}; its modules {', '.join(modules)}."


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
    parts += [device_names()]
    parts += ["Settings, checked and listed by `loom env`:", settings_table()]
    return "\n\n".join(parts)


def rewritten(readme: str, root: Path) -> str:
    """Returns the text of README.md with every generated block made anew."""
    readme = replace_block(readme, "example-output", example_output(readme))
    return replace_block(readme, "what-works", what_works(root))


def run(check: bool) -> None:
    """Rewrites the generated texts in the current directory; with `check`, only says whether it would."""
    readme = Path("README.md")
    if not readme.exists():
        console.fail("there is no README.md here; run this in a checkout of torch-loom")
    try:
        texts = {readme: rewritten(readme.read_text(), Path())}
    except (DocsError, MissingBlockError) as error:
        console.fail(error)
    texts[Path("docs", "supported_ops.md")] = supported_ops.page()
    for path, text in texts.items():
        if path.exists() and path.read_text() == text:
            console.out.print(f"{path} is up to date")
        elif check:
            console.fail(f"{path} is out of date; run `loom docs`")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            console.out.print(f"{path} rewritten")
