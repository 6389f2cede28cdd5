"""Settings of the devices, before anything imports torch."""

from __future__ import annotations

import os
import sys

import pytest

from torch_loom import config as settings
from torch_loom.errors import LoomError

# How devices may be called. Each is an option of its own: `--loom tests` does not take a folder for a name.
_NAMES = ("cuda", "loom", "rbln")


def add_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        *("--loom", "--loom=cuda"),
        dest="loom",
        action="store_const",
        const="cuda",
        help="Run with virtual devices, which are called cuda, or loom or rbln.",
    )
    for name in _NAMES[1:]:
        group.addoption(
            f"--loom={name}",
            dest="loom",
            action="store_const",
            const=name,
            help=f"Run with virtual devices that are called {name}.",
        )
    group.addoption("--loom-chip", metavar="CHIP", help="The chip that the devices are, as h100 or a file.")
    group.addoption("--loom-devices", metavar="N", help="How many devices there are.")
    group.addoption("--loom-memory", metavar="SIZE", help="Memory of each device, as in 8GiB.")
    group.addoption(
        "--loom-sanitize", action="store_true", help="Report races between streams and in kernels."
    )


def asks(options: object) -> bool:
    """Return whether any of the options stands on the command line."""
    given = (value for name, value in vars(options).items() if name == "loom" or name.startswith("loom_"))
    # An empty text is a bad value, and not none: that of a variable that CI has not set.
    return any(value is not None and value is not False for value in given)


def begin(config: pytest.Config) -> None:
    """Set what the options ask for in the environment, for this process and those that it starts.

    Where torch has been imported under another name of the devices, by a plugin of pytest say, pytest is
    started again.

    Raises:
        pytest.UsageError: a value is bad; or pytest cannot be started again, as it was not run by a command.
    """
    options = config.known_args_namespace
    if not asks(options):
        return
    try:
        present = settings.device_name()
        name = options.loom or (present if settings.is_device_named() else settings.CUDA_NAME)
        _export(options, name)
    except LoomError as error:
        raise pytest.UsageError(str(error)) from error
    if "torch" in sys.modules and name != present:
        _start_again(config, name)


def _export(options: object, name: str) -> None:
    from torch_loom.tools.launch import prepare

    given = vars(options)
    is_chaotic = given["loom_chaos"] or given["loom_chaos_seed"] is not None
    prepare(
        name,
        {
            "chip": given["loom_chip"],
            "devices": given["loom_devices"],
            "memory": given["loom_memory"],
            "sanitizer": "1" if given["loom_sanitize"] else None,
            "launch": "chaos" if is_chaotic else None,
        },
    )


def _start_again(config: pytest.Config, name: str) -> None:
    if list(config.invocation_params.args) != sys.argv[1:]:
        raise pytest.UsageError(
            f"--loom: torch was imported before, so that {name} devices cannot be torch-loom's any more. "
            f"Run `pytest --loom …` as a command, or set TORCH_LOOM_DEVICE_NAME={name} for the program."
        )
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
    print(
        f"torch-loom: a plugin of pytest has imported torch; starting again with {name} devices",
        flush=True,
    )
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def header(config: pytest.Config) -> str | None:
    """Return a line for the head of pytest's report; None without the options."""
    if not asks(config.option):
        return None
    found = settings.resolve()
    count = len(found.groups)
    devices = "1 virtual device" if count == 1 else f"{count} virtual devices"
    chips = ", ".join(dict.fromkeys(found.chips))
    return f"torch-loom: {devices}, named {found.device_name}; chip {chips}; launch {found.launch}"
