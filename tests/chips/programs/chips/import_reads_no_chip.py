import sys

opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import torch
import torch.loom

assert not any(path.endswith(".toml") for path in opened)
torch.loom.init()
assert [path for path in opened if path.endswith("loom1.toml")]
