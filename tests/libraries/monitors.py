"""Monitors of GPUs, which ask NVML or nvidia-smi: helpers of libraries, GPUtil, gpustat, nvitop."""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Iterator

import pytest
import torch

MIB = 1 << 20
USED_MIB = 400


@pytest.fixture(autouse=True)
def used() -> Iterator[None]:
    """Memory of this process, which the monitors must see. Others may use the devices, too."""
    tensor = torch.empty(USED_MIB * MIB, dtype=torch.uint8, device="cuda")
    yield
    del tensor
    torch.cuda.empty_cache()


def total_mib() -> int:
    return torch.cuda.get_device_properties(0).total_memory // MIB


@pytest.mark.report("Lightning-AI/pytorch-lightning", "Lightning's statistics of a GPU call `nvidia-smi`")
def test_lightning() -> None:
    from lightning.pytorch.accelerators.cuda import get_nvidia_gpu_stats

    stats = get_nvidia_gpu_stats(torch.device("cuda:0"))
    assert USED_MIB <= stats["memory.used (MB)"] < total_mib()
    assert stats["memory.used (MB)"] + stats["memory.free (MB)"] == pytest.approx(total_mib(), abs=1)
    assert 0 <= stats["utilization.gpu (%)"] <= 100
    assert stats["temperature.gpu (°C)"] >= 30


@pytest.mark.report("pyg-team/pytorch_geometric", "PyG's memory of a GPU calls `nvidia-smi`")
def test_pytorch_geometric() -> None:
    from torch_geometric.profile import get_gpu_memory_from_nvidia_smi

    free, used = get_gpu_memory_from_nvidia_smi(device=0)
    assert used >= USED_MIB
    assert (free + used) * 1e6 / MIB == pytest.approx(total_mib(), rel=1e-2)


def test_accelerate() -> None:
    from accelerate.utils import environment

    names, count = environment.get_gpu_info()
    assert names == [torch.cuda.get_device_name()] * count
    assert environment.get_driver_version().split(".")[0] >= "550"
    environment.override_numa_affinity(0)


def test_gputil() -> None:
    import GPUtil

    first = GPUtil.getGPUs()[0]
    assert (first.id, first.name, first.memoryTotal) == (0, torch.cuda.get_device_name(), total_mib())
    assert first.memoryUsed >= USED_MIB


def test_gpustat() -> None:
    import gpustat

    first = gpustat.new_query()[0]
    assert first.memory_total == total_mib()
    assert {each["pid"]: each["gpu_memory_usage"] for each in first.processes}[os.getpid()] >= USED_MIB


@pytest.mark.report("XuehaiPan/nvitop", "nvitop lists the devices")
def test_nvitop() -> None:
    from nvitop import Device

    first = Device.all()[0]
    assert first.memory_total() == torch.cuda.get_device_properties(0).total_memory
    assert first.processes()[os.getpid()].gpu_memory() >= USED_MIB * MIB


@pytest.mark.report("https://pypi.org/project/nvidia-ml-py/", "nvidia-ml-py, as installed, finds the devices")
def test_nvidia_ml_py() -> None:
    import pynvml

    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == torch.cuda.device_count()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetName(handle) == torch.cuda.get_device_name(0)
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).used >= USED_MIB * MIB


@pytest.mark.report("https://docs.nvidia.com/deploy/nvidia-smi/index.html", "`nvidia-smi` is a command")
def test_nvidia_smi() -> None:
    query = ["nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    text = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    rows = list(csv.reader(text.splitlines(), skipinitialspace=True))
    name = torch.cuda.get_device_name(0)
    assert rows == [[str(index), name, str(total_mib())] for index in range(torch.cuda.device_count())]
