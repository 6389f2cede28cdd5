"""Processes: what a forked child may use, what passes between processes, checkpoints of other devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.forking import environment

CHILD = """
import os

def child_says():
    "What a forked child says of its first use of CUDA."
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = str(torch.ones(2, device="cuda").sum().item())
        except RuntimeError as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with open(read) as answer:
        return answer.read()

REFUSED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
    "you must use the 'spawn' start method"
)
"""


@pytest.mark.report(
    "pytorch/pytorch#83973", "a child forked after `device_count` may use CUDA, after a tensor it may not"
)
def test_fork_after_device_count(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        CHILD
        + """
assert torch.cuda.device_count() == torch.get_device_module("cuda").device_count() > 0
assert not torch.cuda.is_initialized() and child_says() == "2.0"
torch.ones(1, device="cuda")
assert child_says() == REFUSED
"""
    )


@pytest.mark.report("pytorch/pytorch#68861", "a child forked after `is_available` may not use CUDA")
def test_fork_after_is_available(fork_cuda: PythonRunner) -> None:
    fork_cuda(CHILD + "assert torch.cuda.is_available() and REFUSED in child_says()\n")


@pytest.mark.report("pytorch/pytorch#68861", "with `PYTORCH_NVML_BASED_CUDA_CHECK=1` that child may")
def test_fork_after_the_check_of_nvml(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        CHILD + "assert torch.cuda.is_available() and child_says() == '2.0'\n",
        {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
    )


DATASET = """
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((2,), float(index), device="cuda")
"""


@pytest.mark.report("IDEA-Research/GroundingDINO#276", "a forked worker of a `DataLoader` makes CUDA tensors")
@pytest.mark.report(
    "bentrevett/pytorch-sentiment-analysis#47", "a `DataLoader` names the error of its worker"
)
def test_a_worker_that_was_forked(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        DATASET
        + """
torch.ones(1, device="cuda")
raises(
    "RuntimeError",
    "Caught RuntimeError in DataLoader worker process 0.",
    lambda: list(DataLoader(Numbers(), 2, num_workers=2, multiprocessing_context="fork")),
)
"""
    )


@pytest.mark.report(
    "pytorch/pytorch:torch/utils/data/_utils/pin_memory.py", "a `DataLoader` pins tensors of the host alone"
)
def test_device_tensors_are_not_pinned(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        DATASET
        + """
raises(
    "RuntimeError",
    "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
    lambda: list(DataLoader(Numbers(), 2, pin_memory=True)),
)
"""
    )


def run_file(tmp_path: Path, code: str) -> None:
    """Run a program that child processes can import."""
    file = tmp_path / "program.py"
    file.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)],
        env=environment({"TORCH_LOOM_DEVICE_NAME": "cuda", "PYTHONPATH": os.pathsep.join(sys.path)}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.report("IDEA-Research/GroundingDINO#276", "a spawned worker may: the advice of the thread")
def test_a_worker_that_was_spawned(tmp_path: Path) -> None:
    run_file(
        tmp_path,
        DATASET
        + """
if __name__ == "__main__":
    loader = DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context="spawn")
    assert [batch.sum().item() for batch in loader] == [2, 10]
""",
    )


QUEUE = """
import torch, torch.multiprocessing as multiprocessing

def stays(queue, is_done):
    queue.put(torch.tensor([1, 2], device="cuda"))
    is_done.wait()

def leaves(queue):
    queue.put(torch.tensor([3, 4], device="cuda"))
    queue.close()
    queue.join_thread()
"""


@pytest.mark.slow
@pytest.mark.report("pytorch/pytorch#156618", "a tensor of a producer that waits arrives with its contents")
def test_a_producer_that_stays(tmp_path: Path) -> None:
    run_file(
        tmp_path,
        QUEUE
        + """
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue, is_done = context.Queue(), context.Event()
    producer = context.Process(target=stays, args=(queue, is_done))
    producer.start()
    received = queue.get(timeout=60)
    assert received.is_cuda and received.tolist() == [1, 2]
    del received
    is_done.set()
    producer.join()
    assert producer.exitcode == 0
""",
    )


@pytest.mark.slow
@pytest.mark.report("pytorch/pytorch#10375", "a producer has ended before its tensor is received")
@pytest.mark.report("muskie82/MonoGS#127", "what CUDA says of it: the producer's context is gone")
def test_a_producer_that_has_ended(tmp_path: Path) -> None:
    run_file(
        tmp_path,
        QUEUE
        + """
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    producer = context.Process(target=leaves, args=(queue,))
    producer.start()
    producer.join()
    try:
        queue.get(timeout=60)
    except torch.AcceleratorError as error:
        assert type(error) is torch.AcceleratorError and error.error_code == 201
        assert str(error).startswith("CUDA error: invalid device context\\n"), error
        assert "the process has ended" in str(error)
    else:
        raise AssertionError("received")
""",
    )


@pytest.mark.report(
    "computationalmedia/semstyle#3", "a checkpoint of `cuda:1` is loaded where one device is visible"
)
@pytest.mark.report("pytorch/pytorch#17364", "`map_location` leaves nothing on the device that was saved")
def test_checkpoints_of_another_device(fork_cuda: PythonRunner, tmp_path: Path) -> None:
    file = str(tmp_path / "checkpoint.pt")
    two = {"TORCH_LOOM_DEVICES": "2"}
    fork_cuda(
        f"""
        torch.save({{"w": torch.arange(4.0, device="cuda:1")}}, {file!r})
        assert torch.load({file!r})["w"].device.index == 1
        assert torch.load({file!r}, map_location="cuda:1")["w"].device.index == 1
        moved = torch.load({file!r}, map_location=lambda storage, place: storage.cuda(0))["w"]
        assert moved.device.index == 0
        del moved
        assert torch.cuda.memory_allocated(0) == 0
        with torch.cuda.device(1):
            loaded = torch.load({file!r}, map_location={{"cuda:1": "cuda:0"}})["w"]
        assert loaded.device.index == 0 and torch.cuda.memory_allocated(0) == 512
        """,
        two,
    )
    fork_cuda(
        f"""
        raises(
            "RuntimeError",
            "Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1. "
            "Please use torch.load with map_location to map your storages to an existing device.",
            lambda: torch.load({file!r}),
        )
        for where in ("cuda:0", {{"cuda:1": "cuda:0"}}):
            loaded = torch.load({file!r}, map_location=where)["w"]
            assert loaded.device == torch.device("cuda:0") and loaded.tolist() == [0, 1, 2, 3]
        """,
        {**two, "CUDA_VISIBLE_DEVICES": "0"},
    )
