"""Preprocessed C++ as text: where it comes from, brackets and strings in it, edits that keep its lines."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_MARKER = re.compile(r'# (\d+) "((?:[^"\\\n]|\\.)*)"((?: \d)*)[^\n]*')
_NAMESPACE = re.compile(r'(?:\bnamespace\b[\w\s:]*|\bextern\s*"C(?:\+\+)?"\s*)$')
_OPENS = {")": "(", "]": "[", "}": "{"}
CLOSES = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Place:
    """Where text comes from.

    Attributes:
        file, line: of the source.
        is_system: whether that is a header of the system's, or of a library's.
    """

    file: str
    line: int
    is_system: bool


def matches(pattern: re.Pattern[str], words: Iterable[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern, each of which begins with one of some words, in their order.

    A search for words takes a tenth of the time of one for a pattern: texts have tens of megabytes.
    """
    begins: set[int] = set()
    for word in words:
        at = text.find(word)
        while at >= 0:
            begins.add(at)
            at = text.find(word, at + 1)
    end = 0
    for begin in sorted(begins):
        if begin >= end and (match := pattern.match(text, begin)):
            end = match.end()
            yield match


def markers(text: str) -> Iterator[re.Match[str]]:
    """Yield the preprocessor's markers of lines: number, file and flags."""
    if text.startswith("# ") and (first := _MARKER.match(text)):
        yield first
    at = text.find("\n# ")
    while at >= 0:
        if marker := _MARKER.match(text, at + 1):
            yield marker
        at = text.find("\n# ", at + 1)


class Lines:
    """Finds the source of each position of a preprocessed text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ends: list[int] = []
        self._markers: list[tuple[str, int, bool]] = []
        for marker in markers(text):
            self._ends.append(marker.end())
            self._markers.append((marker[2], int(marker[1]), "3" in marker[3].split()))

    def own(self) -> Iterator[tuple[int, int]]:
        """Yield from where to where the text is no header of the system's."""
        begin: int | None = 0
        for end, (_, _, is_system) in zip(self._ends, self._markers, strict=True):
            if is_system and begin is not None:
                yield begin, end
                begin = None
            elif not is_system and begin is None:
                begin = end
        if begin is not None:
            yield begin, len(self._text)

    def at(self, position: int) -> Place:
        """Return where the text at a position comes from."""
        number = bisect.bisect_right(self._ends, position) - 1
        if number < 0:
            return Place("code", 1 + self._text.count("\n", 0, position), False)
        file, line, is_system = self._markers[number]
        # The marker's own line ends with a line feed.
        return Place(file, line + self._text.count("\n", self._ends[number] + 1, position), is_system)


def joined(text: str) -> str:
    """Remove markers within a line: the preprocessor puts one around what a library's macro stands for."""
    pieces: list[str] = []
    at, file, line = 0, "", 1
    ends_line = True  # what is in `pieces`
    for marker in markers(text):
        begin, end = marker.span()
        line += text.count("\n", at, begin)
        wanted = int(marker[1])
        before = text[at:begin]
        at = end + 1
        is_directive = text.startswith("#", at) or text.startswith("#", text.rfind("\n", 0, begin - 1) + 1)
        if is_directive:
            keeps = True
        elif marker[2] == file and wanted == line - 1 and before.endswith("\n"):
            before = before[:-1]
            keeps = False
        else:
            keeps = marker[2] != file or wanted != line
        pieces.append(before)
        ends_line = before.endswith("\n") if before else ends_line
        if keeps:
            pieces.append(("" if ends_line else "\n") + text[begin : end + 1])
            ends_line = True
        file, line = marker[2], wanted
    return "".join([*pieces, text[at:]])


def applied(text: str, edits: list[tuple[int, int, str]]) -> str:
    """Return the text with edits: from where, to where, and what stands there then.

    Of edits within another one nothing is done.
    """
    pieces: list[str] = []
    at = 0
    for begin, end, new in sorted(set(edits)):
        if begin < at:
            continue
        # As many lines as before, so that what follows keeps its number.
        pieces += [text[at:begin], new, "\n" * (text.count("\n", begin, end) - new.count("\n"))]
        at = end
    return "".join([*pieces, text[at:]])


def is_in_string(text: str, position: int) -> bool:
    """Return whether a position is within a string or a character."""
    begin = text.rfind("\n", 0, position) + 1
    at = begin
    while at < position:
        character = text[at]
        if character in "\"'" and not (character == "'" and at > begin and text[at - 1].isalnum()):
            at = _string_end(text, at)
            if at > position:
                return True
        else:
            at += 1
    return False


def _string_end(text: str, at: int) -> int:
    """The position behind a string or a character that begins at ``at``."""
    quote = text[at]
    if quote == '"' and at > 0 and text[at - 1] == "R":
        opening = text.find("(", at)
        ending = text.find(f'){text[at + 1 : opening]}"', opening)
        return len(text) if ending < 0 else ending + opening - at + 1
    at += 1
    while at < len(text) and text[at] not in (quote, "\n"):
        at += 2 if text[at] == "\\" else 1
    return at + 1


def skip(text: str, at: int, closing: str) -> int:
    """Return the position of what closes the bracket that is open at ``at``; of ``>>>`` where it is ``>``."""
    while at < len(text):
        character = text[at]
        if character in "\"'" and not (character == "'" and text[at - 1].isalnum()):
            at = _string_end(text, at)
            continue
        if character in CLOSES:
            at = skip(text, at + 1, CLOSES[character])
        elif closing == ">" and character == ">":
            end = re.compile(r">\s*>\s*>\s*(?=\()").match(text, at)
            if end is not None:
                return at
        elif character == closing:
            return at
        at += 1
    return len(text)


def skip_templates(text: str, at: int) -> int:
    """Return the position of the ``>`` that closes what ``<`` has opened in front of ``at``."""
    depth = 1
    while at < len(text):
        if text[at] in CLOSES:
            at = skip(text, at + 1, CLOSES[text[at]])
        else:
            depth += (text[at] == "<") - (text[at] == ">")
        if depth == 0:
            return at
        at += 1
    return at


def back(text: str, at: int) -> int:
    """Return the position behind the last character in front of ``at`` that is no space."""
    while at > 0 and text[at - 1].isspace():
        at -= 1
    return at


def back_over_group(text: str, at: int) -> int:
    """Return the position of the bracket that opens what is closed in front of ``at``."""
    depth = 0
    while at > 0:
        at -= 1
        if text[at] in _OPENS:
            depth += 1
        elif text[at] in CLOSES:
            depth -= 1
            if depth == 0:
                break
    return at


def back_over_templates(text: str, at: int) -> int:
    """Return the position of the ``<`` that opens what ``>`` has closed in front of ``at``."""
    depth = 0
    while at > 0:
        at -= 1
        if text[at] in _OPENS:
            at = back_over_group(text, at + 1)
        elif text[at] == ">" and text[at - 1] != "-":
            depth += 1
        elif text[at] == "<":
            depth -= 1
            if depth == 0:
                break
    return at


def is_in_function(text: str, at: int) -> bool:
    """Return whether a position is within braces that are no namespace\'s."""
    depth = 0
    while True:
        at = max(text.rfind("{", 0, at), text.rfind("}", 0, at))
        if at < 0:
            return False
        depth += 1 if text[at] == "}" else -1
        if depth < 0:
            if _NAMESPACE.search(text, max(0, at - 200), at) is None:
                return True
            depth = 0
