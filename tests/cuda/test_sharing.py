"""Tensors between processes under CUDA's name, where PyTorch asks a storage for CUDA's own handles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch, torch.multiprocessing as mp

def total(received, results):
    for tensor in iter(received.get, None):
        assert tensor.is_cuda
        if tensor.is_nested:
            results.put(sum(part.sum().item() for part in tensor.unbind()))
        else:
            dense = tensor.to_dense() if tensor.layout != torch.strided else tensor
            results.put(dense.sum().item())
            tensor = dense = None

if __name__ == "__main__":
    context = mp.get_context("spawn")
    received, results = context.Queue(), context.Queue()
    child = context.Process(target=total, args=(received, results))
    child.start()
    parts = [torch.ones(2), torch.ones(3)]
    tensors = [
        torch.arange(6.0, device="cuda").reshape(2, 3).t(),
        torch.ones(0, device="cuda"),
        torch.nn.Parameter(torch.ones(4, device="cuda:1")),
        torch.nested.nested_tensor(parts, device="cuda"),
        torch.eye(3, device="cuda").to_sparse(),
        torch.eye(2, device="cuda").to_sparse_csr(),
    ]
    for tensor in tensors:
        received.put(tensor)
        print(results.get(timeout=60))
    received.put(None)
    child.join()
    assert child.exitcode == 0
    try:
        torch.empty(2, device="meta").untyped_storage()._share_cuda_()
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.slow
def test_every_layout_travels(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "program.py")],
        env={
            **os.environ,
            "TORCH_LOOM_DEVICE_NAME": "cuda",
            "TORCH_LOOM_MEMORY": "1GiB",
            "TORCH_LOOM_DEVICES": "2",
        },
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:6] == ["15.0", "0.0", "4.0", "5.0", "3.0", "2.0"]
    assert "only available on CUDA" in done.stdout.splitlines()[6]
