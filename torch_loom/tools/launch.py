"""`loom run`: start a program whose ``cuda`` is this package's."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch_loom import config
from torch_loom._register import fitness
from torch_loom.errors import ConfigurationError
from torch_loom.kernels.cuda_cpp import toolkit
from torch_loom.nvml import description
from torch_loom.tools.local_ranks import environment

# There where NVIDIA's driver runs.
_DRIVER = Path("/proc/driver/nvidia/version")

# What options set, by the name of the setting.
Values = Mapping[str, str | None]


def prepare(name: str, values: Values) -> None:
    """Put settings into the environment of this process, for what imports torch in it or in its children.

    Args:
        name: of the devices.
        values: settings by their names; None for those that are not given.

    Raises:
        ConfigurationError: a value is bad.
        ChipError: there is no such chip.
        VersionMismatchError: the installed extension is for another PyTorch.
        ExtensionError: it is not there, or damaged.
    """
    # Where it does not fit, `import torch` warns and goes on, and a program would look for NVIDIA's driver.
    fitness.check_installed()
    config.export({"device_name": name, "required": "1", **values})
    # The program's own devices are asked for: `import torch` has to register them.
    os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
    # Bad values are reported here, not by the program: this reads the chips.
    settings = config.resolve()
    if name == config.CUDA_NAME:
        description.export(settings)
        description.offer()
        toolkit.offer()


def run(arguments: Sequence[str], values: Values, local_ranks: int | None = None) -> None:
    """Replace this process by the program, with the settings in its environment.

    Args:
        arguments: what to run: ``file.py``, ``-m module`` or ``-c code``, by this Python, or another
            command; and its arguments.
        values: settings by their names; None for those that are not given.
        local_ranks: how many ranks of a group run the program; None for none.

    Raises:
        ConfigurationError: a value is bad, there is no such option, or the command cannot be run.
        VersionMismatchError, ExtensionError: the installed extension does not fit the installed PyTorch.
    """
    is_python = arguments[0] in {"-m", "-c"} or arguments[0].endswith(".py")
    if arguments[0].startswith("-") and not is_python:
        raise ConfigurationError(f"loom run has no option {arguments[0]}; `loom run --help` lists them")
    if local_ranks is not None:
        if not is_python:
            raise ConfigurationError(
                f"loom run --local-ranks takes FILE.py, -m MODULE or -c CODE, and not {arguments[0]}"
            )
        os.environ.update(environment(local_ranks))
        arguments = ["-m", "torch_loom.tools.local_ranks", *arguments]
    prepare(config.CUDA_NAME, values)
    if _DRIVER.exists():
        print(
            "loom run: the GPU of this machine is not used: the program's cuda devices are virtual",
            file=sys.stderr,
        )
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by the shell
            stream.flush()
    line = [sys.executable, *arguments] if is_python else list(arguments)
    try:
        os.execvp(line[0], line)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{line[0]} cannot be run: {getattr(error, 'strerror', error)}") from error
