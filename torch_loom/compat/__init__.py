"""Other names for what is here, so that programs written for them run as they are. Nothing imports it."""

from __future__ import annotations


def _autoload() -> None:
    """Let libraries learn the device's name, and `import torch_rbln` be found under that one.

    Never raises. What is wrong with the name, torch_loom's own registration has reported before.
    """
    import torch_loom

    try:
        from torch_loom import config
        from torch_loom.config import settings

        name = config.device_name()
        if name != "cuda" and config.value(settings.LIBRARIES):
            from torch_loom.compat import libraries

            libraries.register(name)
        if name == "rbln":
            from torch_loom.compat import rbln

            rbln.install()
    except (Exception, SystemExit) as error:
        torch_loom._warn_once(error)
