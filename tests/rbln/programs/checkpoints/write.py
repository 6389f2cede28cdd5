import ast
import pickle
import sys
from pathlib import Path

import torch

import torch_loom  # noqa: F401

name, folder = ast.literal_eval(sys.argv[1])
torch.manual_seed(0)
model = torch.nn.Linear(3, 2).to(f"{name}:1")
x = torch.arange(6, dtype=torch.float16, device=name).view(2, 3)
kept = {"x": x, "row": x[1], "model": model.state_dict(), "steps": 7}
torch.save(kept, f"{folder}/zip.pt")
torch.save(kept, f"{folder}/legacy.pt", _use_new_zipfile_serialization=False)
Path(folder, "pickled").write_bytes(pickle.dumps(kept))
