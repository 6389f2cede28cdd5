"""A hook of mkdocs: pages of the site that are files elsewhere, and the reference out of docstrings.

    make site

builds it. README.md is the first page. Links between Markdown files of the repository become links here;
links to sources become plain text, as the site does not have them.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
from pathlib import Path, PurePosixPath
from typing import Any

import torch  # noqa: F401 (which registers the devices, whose module is described)
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files of the repository's root, and the pages that they are."""

MODULES = {
    "torch_loom.device": "torch.loom, and torch.cuda under that name",
    "torch_loom.numerics": "data formats and math fidelity",
    "torch_loom.compiler": "the compiler",
    "torch_loom.pipeline": "pipelines",
    "torch_loom.pybuda": "PyBuda's API",
    "torch_loom.chips": "chip descriptions",
    "torch_loom.errors": "errors",
}
"""What the reference describes."""

_ROLE = re.compile(r":(?:meth|class|func|mod|data|attr|exc):\s*<code>~?")
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


STYLE = "stylesheets/site.css"
# Names of environment variables, which rows of a table are about, are not broken amid a word.
STYLES = """.md-typeset table:not([class]) td:first-child:has(> code) {
  min-width: 12.5rem;
}
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the styles of this site."""
    config.extra_css.append(STYLE)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not stand in docs/."""
    files.append(File.generated(config, STYLE, content=STYLES))
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_with_links(text, PurePosixPath(source))))
    lines = ["# Reference", "", "What stands in the docstrings.", ""]
    for module, title in MODULES.items():
        page = f"reference/{module}.md"
        files.append(File.generated(config, page, content=_reference(module, title)))
        lines.append(f"- [`{module}`]({module}.md): {title}")
    files.append(File.generated(config, "reference/index.md", content="\n".join(lines) + "\n"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links that leave docs/, and say which pages have no list of their headings."""
    # The long lines of the first page's examples have its room, and tables of pages without headings.
    name = page.file.src_uri
    if name.startswith("reference/"):
        return markdown
    if name == "index.md" or re.search(r"^## ", markdown, re.MULTILINE) is None:
        page.meta["hide"] = ["toc"]
    return markdown if name in PAGES.values() else _with_links(markdown, PurePosixPath("docs") / name)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Take the roles out of docstrings: ``:meth:`reset``` is code like other names."""
    return _ROLE.sub("<code>", html)


def _with_links(text: str, source: PurePosixPath) -> str:
    """Return a file's text with its links as the site has them. `source` is relative to the root."""
    page = PAGES.get(str(source)) or str(source.relative_to("docs"))

    def rewritten(match: re.Match[str]) -> str:
        words, link = match.groups()
        address, _, part = link.partition("#")
        if not address or "://" in address or address.startswith("mailto:"):
            return match[0]
        target = _resolved(source.parent / address)
        if not (ROOT / target).exists():
            raise PluginError(f"{source}: there is no {target}, which a link names")
        name = PAGES.get(str(target))
        if name is None and target.parts[0] == "docs" and target.suffix:
            name = str(target.relative_to("docs"))
        if name is None:
            return words
        up = "../" * (len(PurePosixPath(page).parts) - 1)
        return f"[{words}]({up}{name}{'#' + part if part else ''})"

    return _LINK.sub(rewritten, text)


def _resolved(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return PurePosixPath(*parts)


def _reference(module: str, title: str) -> str:
    lines = [f"# {module}", "", f"Describes {title}, out of its docstrings.", ""]
    for value in public_names(module).values():
        lines += [
            f"::: {value.__module__}.{value.__qualname__}",
            "    options:",
            "      heading_level: 2",
            "",
        ]
    return "\n".join(lines) + "\n"


def public_names(module: str) -> dict[str, Any]:
    """Return the functions and classes that a module exports and this package defines, by their names.

    What is defined in another of :data:`MODULES` stands there alone.
    """
    found = importlib.import_module(module)
    named = {name: getattr(found, name, None) for name in sorted(getattr(found, "__all__", dir(found)))}
    # Of several names of a class, as of one that CUDA calls otherwise, the page has one.
    names: dict[type, str] = {}
    for name, value in named.items():
        if isinstance(value, type) and (value not in names or value.__name__ == name):
            names[value] = name
    return {
        name: value
        for name, value in named.items()
        if not name.startswith("_")
        and not (isinstance(value, type) and names[value] != name)
        and getattr(value, "__module__", "").startswith("torch_loom")
        and getattr(value, "__qualname__", "") in _defined(value.__module__)
        and value.__doc__
        and not any(value.__module__.startswith(other) for other in MODULES if other != module)
    }


@functools.cache
def _defined(module: str) -> frozenset[str]:
    """Return the functions and classes that stand in a module's source: the reference is read out of it."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))
