"""torch-loom's entry point of the group ``pytest11``: the plugin of :mod:`torch_loom.tools.pytest_plugin`.

A module beside the package: pytest runs no test of any project where a plugin cannot be imported.
"""

from __future__ import annotations

try:
    from torch_loom.tools.pytest_plugin import *  # noqa: F403 - the hooks
except (Exception, SystemExit) as error:
    import sys

    import torch_loom_autoload

    print(torch_loom_autoload.sentence(error), file=sys.stderr)
