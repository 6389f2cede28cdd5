import os
import shutil
import subprocess

import torch

import torch_loom.nvml

x = torch.ones(10 << 20, device="cuda")
command = shutil.which("nvidia-smi")
assert command.startswith(os.path.dirname(torch_loom.nvml.__file__)), command


def ask(*arguments):
    return subprocess.check_output(["nvidia-smi", *arguments], text=True)


form = "--format=csv,noheader,nounits"
assert ask("--query-gpu=memory.used,memory.free", form).splitlines()[0] == "40, 2008"
pid, memory = ask("--query-compute-apps=pid,used_memory", form).strip().split(", ")
assert (pid, memory) == (str(os.getpid()), "40")
assert f"{os.getpid()}      C   " in ask() and "40MiB" in ask()
assert "<used_memory>40 MiB</used_memory>" in ask("-q", "-x")
