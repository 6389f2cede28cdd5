"""The files that `loom kernels` reads: what a process launched, written at its end."""

from __future__ import annotations

import json
import os
from pathlib import Path

from torch_loom.config.files import whole_file


def write(folder: Path, kind: str, summary: object) -> None:
    """Write the file of this process, for kernels of one kind: whole, or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / f"kernels-{kind}-{os.getpid()}.json") as unfinished:
        unfinished.write_text(json.dumps(summary), encoding="utf-8")
