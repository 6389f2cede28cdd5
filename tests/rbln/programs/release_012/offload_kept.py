import sys

import torch

import torch_loom  # noqa: F401

with torch.rbln.offload():
    kept = torch.ones(1 << 20, dtype=torch.uint8, device="rbln")
print("made", flush=True)
sys.stdin.read()
