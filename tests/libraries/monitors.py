"""What shows how a GPU is used: nvidia-ml-py, nvidia-smi and the libraries that call it."""

from __future__ import annotations

import csv
import shutil
import subprocess

import pytest
import torch


@pytest.mark.report("https://pypi.org/project/nvidia-ml-py/", "nvidia-ml-py, as installed, finds the devices")
@pytest.mark.xfail(strict=True, reason="NVML")
def test_nvidia_ml_py() -> None:
    pynvml = pytest.importorskip("pynvml")
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == torch.cuda.device_count()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetName(handle) == torch.cuda.get_device_name(0)
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).total == torch.cuda.mem_get_info(0)[1]
    held = torch.ones(1 << 20, device="cuda")
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).used >= held.nbytes


@pytest.mark.report("XuehaiPan/nvitop", "nvitop lists the devices")
@pytest.mark.xfail(strict=True, reason="NVML")
def test_nvitop() -> None:
    nvitop = pytest.importorskip("nvitop")
    devices = nvitop.Device.all()
    assert [device.name() for device in devices] == [
        torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())
    ]


@pytest.mark.report("https://docs.nvidia.com/deploy/nvidia-smi/index.html", "`nvidia-smi` is a command")
@pytest.mark.xfail(strict=True, reason="nvidia-smi")
def test_nvidia_smi() -> None:
    assert shutil.which("nvidia-smi") is not None
    query = ["nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    text = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    rows = list(csv.reader(text.splitlines(), skipinitialspace=True))
    name, total = torch.cuda.get_device_name(0), torch.cuda.mem_get_info(0)[1] >> 20
    assert rows == [[str(index), name, str(total)] for index in range(torch.cuda.device_count())]


@pytest.mark.report("Lightning-AI/pytorch-lightning", "Lightning's statistics of a GPU call `nvidia-smi`")
@pytest.mark.xfail(strict=True, reason="nvidia-smi")
def test_lightning() -> None:
    cuda = pytest.importorskip("lightning.pytorch.accelerators.cuda")
    figures = cuda.get_nvidia_gpu_stats(torch.device("cuda:0"))
    assert len(figures) >= 6
    assert all(isinstance(value, float) for value in figures.values())


@pytest.mark.report("pyg-team/pytorch_geometric", "PyG's memory of a GPU calls `nvidia-smi`")
@pytest.mark.xfail(strict=True, reason="nvidia-smi")
def test_geometric() -> None:
    profile = pytest.importorskip("torch_geometric.profile")
    free, used = profile.get_gpu_memory_from_nvidia_smi()
    assert free > 0
    assert used >= 0
