"""What is known to fail in the modes of ``modes.py``, each with its reason. The list is meant to shrink.

Maps (mode, op) to the reason. A pair listed here that does not fail fails the run: delete its line.
"""

from __future__ import annotations

KNOWN: dict[tuple[str, str], str] = {}
