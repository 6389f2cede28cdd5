"""`loom run`: start a program whose ``cuda`` is this package's."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from torch_loom import config

# What options set, by the name of the setting.
Values = Mapping[str, str | None]


def run(arguments: Sequence[str], values: Values) -> None:
    """Replace this process by the program, with the settings in its environment.

    Args:
        arguments: what to run: ``file.py``, ``-m module`` or ``-c code``, by this Python, or another
            command; and its arguments.
        values: settings by their names; None for those that are not given.

    Raises:
        ConfigurationError: a value is bad.
        FileNotFoundError: there is no such command.
    """
    config.export({"device_name": config.CUDA_NAME, **values})
    config.resolve()  # a bad value is told here, not by the program
    sys.stdout.flush()
    sys.stderr.flush()
    is_python = arguments[0] in {"-m", "-c"} or arguments[0].endswith(".py")
    line = [sys.executable, *arguments] if is_python else list(arguments)
    os.execvp(line[0], line)
