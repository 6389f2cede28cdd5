"""Other names for what is here, so that programs written for them run as they are. Nothing imports it."""

from __future__ import annotations

from torch_loom import config
from torch_loom.config import settings
from torch_loom.errors import ConfigurationError


def _autoload() -> None:
    """Let libraries learn the device's name, and `import torch_rbln` be found under that one.

    An entry point of the group ``torch.backends``.

    Never raises: torch_loom's own entry point reports what is wrong with the name.
    """
    try:
        name = config.device_name()
        if name != "cuda" and config.value(settings.LIBRARIES):
            from torch_loom.compat import libraries

            libraries.register(name)
    except ConfigurationError:
        return
    if name == "rbln":
        from torch_loom.compat import rbln

        rbln.install()
