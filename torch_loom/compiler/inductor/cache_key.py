"""What of torch-loom is part of the key under which Inductor keeps generated code.

Inductor's key has PyTorch's own sources, and of other backends nothing but their custom passes. Code that an
older torch-loom generated would be run by a newer one, which may lack what it calls. A pass that changes
nothing brings what generates and runs the code into the key.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch.fx import GraphModule

from torch_loom import _C, config

_ROOT = Path(config.__file__).parents[1]
# Generated code is Python that calls the device's module and the extension.
_FOLDERS = ("compiler/inductor", "config", "device", "ops")


class GeneratedBy(CustomGraphModulePass):
    """A pass that leaves graphs as they are; its identifier says which torch-loom generates their code."""

    def __call__(self, gm: GraphModule) -> None:
        """Change nothing."""

    def uuid(self) -> str:
        """Return the digest of the package and its extension."""
        return digest()


@functools.cache
def digest() -> str:
    """Return a digest of the sources that generate or run Inductor's code, and of the extension."""
    found = hashlib.sha256(config.device_name().encode())
    sources = [path for folder in _FOLDERS for path in sorted((_ROOT / folder).rglob("*.py"))]
    for path in (*sources, Path(_C.__file__)):
        found.update(path.name.encode())
        found.update(path.read_bytes())
    return found.hexdigest()
