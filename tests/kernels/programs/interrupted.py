# Ctrl-C while the C++ compiler runs: the program goes on, and compiles again.
import os
import signal
from pathlib import Path

import torch

from tests.kernels.programs import kernels

x, out = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")
folder = Path(os.environ["TORCH_LOOM_KERNEL_CACHE"])
# The compiler sends the signal when it runs.
os.environ["TORCH_LOOM_COMPILER"] = str(Path(__file__).parent / "telling_compiler.sh")
try:
    kernels.one[(1,)](x, out)
except KeyboardInterrupt:
    print("interrupted")
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
del os.environ["TORCH_LOOM_COMPILER"]
kernels.one[(1,)](x, out)
print(out[0].item(), [path.name for path in folder.glob("building.*")])
