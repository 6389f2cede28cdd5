"""Generated blocks in Markdown: what stands between `<!-- begin NAME -->` and `<!-- end NAME -->`."""

from __future__ import annotations

import re


class MissingBlockError(ValueError):
    """A Markdown text has no block of the name asked for, or an unfinished one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no block '<!-- begin {name} -->' ... '<!-- end {name} -->'")


def _pattern(name: str) -> re.Pattern[str]:
    # A note may follow the name in the first marker: <!-- begin NAME: written by ... -->
    begin = rf"<!-- begin {re.escape(name)}(?::[^\n]*?)? -->"
    return re.compile(rf"({begin}\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL)


def has_block(text: str, name: str) -> bool:
    """Returns whether `text` has a block of this name."""
    return _pattern(name).search(text) is not None


def replace_block(text: str, name: str, body: str) -> str:
    """Returns `text` with the block's content replaced by `body`.

    Raises:
        MissingBlockError: the text has no such block.
    """
    replaced, count = _pattern(name).subn(lambda match: f"{match[1]}{body.strip()}\n{match[2]}", text)
    if not count:
        raise MissingBlockError(name)
    return replaced


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """Returns a Markdown table; pipes in cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
