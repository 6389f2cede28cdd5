"""An image runs without the compiler: of its package only what registers with PyTorch is imported."""

import ast
import sys

str_image, str_x, str_y = ast.literal_eval(sys.argv[1])
PACKAGE = "torch_loom.compiler"
REGISTERED = {PACKAGE, f"{PACKAGE}.inductor", f"{PACKAGE}.inductor.register", f"{PACKAGE}.inductor.fakes"}


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(PACKAGE) and name not in REGISTERED:
            raise ImportError(name)


sys.meta_path.insert(0, Blocked())
import torch_loom  # noqa: F401
from torch_loom.tools.cli import app

line = ["run-image", str_image, "--inputs", str_x, "--out", str_y, "--repeat", "3"]
app(line, standalone_mode=False)
assert {name for name in sys.modules if name.startswith(PACKAGE)} <= REGISTERED
