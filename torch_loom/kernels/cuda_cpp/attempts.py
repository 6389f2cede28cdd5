"""Compiles a rewritten source, where the compiler decides what is refused and what word is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from torch_loom.kernels.cuda_cpp.rewrite import RefusedError, with_template_words

# In the compiler's messages: a call that stands for refused PTX, in code that it has emitted.
_EMITTED = re.compile(r"\bloom_refused_(\d+)[^\n]{0,40} declared with")


def compile_rewritten(
    text: str, refused: Sequence[RefusedError], attempt: Callable[[str], Exception | None]
) -> None:
    """Compile a text of :func:`~torch_loom.kernels.cuda_cpp.rewrite.rewrite`.

    If that fails, once more with the word ``template``, which nvcc's front end does without.

    Args:
        refused: what :func:`rewrite` has collected.
        attempt: compiles a text, and returns an error with the compiler's messages if that fails.

    Raises:
        RefusedError: code that is emitted needs what there is not here.
        Exception: the error of the first attempt.
    """
    first = attempt(text)
    if first is None:
        return
    _raise_refusal(first, refused)
    with_words = with_template_words(text)
    if with_words == text:
        raise first
    second = attempt(with_words)
    if second is not None:
        _raise_refusal(second, refused)
        raise first


def _raise_refusal(error: Exception, refused: Sequence[RefusedError]) -> None:
    emitted = [int(number) for number in _EMITTED.findall(str(error))]
    if emitted:
        raise refused[min(emitted)]
