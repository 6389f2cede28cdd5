"""Options of ours that stand behind the program and so go to it, without a word."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from torch_loom.tools import console

# A program's own modules are searched for its options; of a large program, so many.
MAX_FILES = 50


def warn(context: typer.Context, program: Sequence[str]) -> None:
    """Say on standard error which options of the command that runs stand behind the program.

    An option that the program declares, in its file or in a module of its own that it imports, is the
    program's and not reported.

    Args:
        context: that of the sub-command.
        program: what it starts, with its arguments: ``file.py …``, ``-m module …``, ``-c code …`` or another
            command.
    """
    is_python = program[0] in {"-m", "-c"}
    name, arguments = " ".join(program[: 1 + is_python]), program[1 + is_python :]
    own = {option for parameter in context.command.params for option in parameter.opts}
    found = dict.fromkeys(argument.partition("=")[0] for argument in arguments)
    taken = [option for option in found if option.startswith("--") and option in own]
    if taken:
        texts = list(_texts(program))
        taken = [option for option in taken if not any(_declares(text, option) for text in texts)]
    if taken:
        what = "-c" if program[0] == "-c" else name
        console.show_warning(
            f"{', '.join(taken)} stands after {what} and goes to it; options of `loom {context.info_name}` "
            "stand before it"
        )


def _declares(text: str, option: str) -> bool:
    """Return whether a text has an option in quotes, or a field that a parser makes an option of."""
    name = re.escape(option.removeprefix("--").replace("-", "_"))
    return re.search(rf"""["']{re.escape(option)}["' =]|^\s+{name}\s*:""", text, re.MULTILINE) is not None


def _texts(program: Sequence[str]) -> Iterator[str]:
    """Yield the text of a Python program and of the modules beside it that it imports."""
    if program[0] == "-c":
        yield "".join(program[1:2])
        return
    # A launcher, as torchrun, is given the program's file among its arguments.
    firsts = [Path(argument) for argument in program if argument.endswith(".py")][:1]
    if program[0] == "-m" and len(program) > 1 and (module := _file_of(program[1])) is not None:
        firsts.append(module)
    waiting, seen = [(first, first.parent) for first in firsts], set(firsts)
    while waiting and len(seen) <= MAX_FILES:
        file, folder = waiting.pop()
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError):
            continue  # Python will say so
        yield text
        for name in _imported(tree):
            base = folder.joinpath(*name.split("."))
            for each in (base.with_suffix(".py"), base / "__init__.py"):
                if each not in seen and each.is_file():
                    seen.add(each)
                    waiting.append((each, folder))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # Of a relative import the last part is enough: the module stands in the program's folder.
            yield from filter(None, [node.module])
            prefix = f"{node.module}." if node.module else ""
            yield from (prefix + alias.name for alias in node.names)


def _file_of(module: str) -> Path | None:
    """Return the file that ``-m module`` runs, without importing anything; None if there is none."""
    first, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    if not rest:
        main = Path(spec.origin).with_name("__main__.py")
        return main if spec.submodule_search_locations and main.is_file() else Path(spec.origin)
    file = Path(spec.origin).parent.joinpath(*rest)
    return file / "__main__.py" if file.is_dir() else file.with_suffix(".py")
