import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch

import torch_loom  # noqa: F401

folder, kept = ast.literal_eval(sys.argv[1])
parent = Path(folder)
other = parent / "1-other"
other.mkdir()
processes = [
    subprocess.Popen([sys.executable, kept], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for _ in range(2)
]
for one in processes:
    assert one.stdout is not None and one.stdout.readline() == "made\n"
killed, living = processes
killed.send_signal(signal.SIGKILL)
killed.wait()
with torch.rbln.offload():
    own = torch.ones(1 << 20, dtype=torch.uint8, device="rbln")
names = [path.name.partition("-")[0] for path in parent.iterdir() if path != other]
assert sorted(names) == sorted([str(living.pid), str(os.getpid())]), names
assert len(list(parent.rglob("0"))) == 2
living.communicate("")
assert living.returncode == 0 and other.exists()
