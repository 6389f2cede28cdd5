"""What counts as the first use of CUDA where a process is forked: what starts CUDA's driver on a GPU."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}
BY_NVML = {**NAME, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
SENTENCE = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
    "'spawn' start method"
)

# Each question is asked in a child of its own, which has not used the devices. Its child would use them.
QUESTIONS = """
import os, torch, traceback

def in_child(body):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = body()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def can_use():
    if not torch.cuda._is_in_bad_fork():
        assert not torch._C._cuda_isInBadFork()
        return 10
    for use in (lambda: torch.ones(2, device="cuda"), lambda: torch.ones(2).cuda(), torch.cuda.init,
                torch.cuda.current_device, torch.cuda.Stream, torch.cuda.mem_get_info):
        try:
            use()
        except RuntimeError as error:
            assert {sentence!r} in str(error), error
        else:
            raise AssertionError
    assert torch._C._cuda_isInBadFork() and not torch.cuda.is_initialized()
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.memory_allocated() == 0
    torch.manual_seed(0)
    return 11

def usable_after(question):
    def ask():
        eval(question)
        return in_child(can_use)

    status = in_child(ask)
    assert status in (10, 11), (question, status)
    return status == 10

usable = {{question for question in {questions!r} if usable_after(question)}}
assert usable == {usable!r}, usable ^ {usable!r}
# This process has asked nothing.
assert in_child(lambda: int(torch.ones(2, device="cuda").sum().item())) == 2
"""

START_NOTHING = {
    "torch.cuda.device_count()",
    "torch.accelerator.device_count()",
    "torch.accelerator.current_accelerator()",
    "torch.get_device_module().device_count()",
    "torch.cuda.is_initialized()",
    "torch.cuda.memory_allocated()",
    "torch.manual_seed(3)",
    "torch.version.cuda, torch.backends.cudnn.version(), torch.cuda.nccl.version()",
}
# What asks NVML instead, where the variable says so.
ASK_NVML = {
    "torch.cuda.is_available()",
    "torch.accelerator.is_available()",
    "torch.accelerator.current_accelerator(check_available=True)",
    "torch.get_device_module().is_available()",
}
START_THE_DRIVER = {
    "torch._C._cuda_getDeviceCount()",
    "torch.cuda.get_arch_list()",
    "torch.cuda.is_bf16_supported()",
    "torch.cuda.is_tf32_supported()",
    "torch.cuda.get_device_name()",
    "torch.cuda.init()",
    "torch.cuda.cudart()",
    "torch.ones(1, device='cuda')",
}


def program(usable: set[str]) -> str:
    questions = sorted(START_NOTHING | ASK_NVML | START_THE_DRIVER)
    return QUESTIONS.format(sentence=SENTENCE, questions=questions, usable=usable)


def test_what_starts_the_driver_is_a_first_use(fork_python: PythonRunner) -> None:
    fork_python("import torch_loom\n" + program(START_NOTHING), NAME)


@pytest.mark.slow
def test_the_variable_asks_nvml_for_availability(fork_python: PythonRunner) -> None:
    fork_python("import torch_loom\n" + program(START_NOTHING | ASK_NVML), BY_NVML)
    # As in PyTorch, only this text means it.
    other = {**NAME, "PYTORCH_NVML_BASED_CUDA_CHECK": "true"}
    fork_python("import torch_loom\n" + program(START_NOTHING), other)


def test_another_name_of_the_device_asks_no_driver(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import os, torch_loom
        assert torch.loom.is_available() and torch.accelerator.is_available()
        assert torch.loom.is_bf16_supported() and not torch.loom.is_initialized()
        pid = os.fork()
        if pid == 0:
            try:
                assert torch.ones(2, device="loom").sum().item() == 2 and not torch.loom._is_in_bad_fork()
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """
    )


WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset

class OnDevice(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.full((2,), float(index), device="cuda").cpu()

def batches():
    return sorted(batch.sum().item() for batch in DataLoader(OnDevice(), 2, num_workers=2))
"""


def test_loader_workers_use_the_devices_where_the_parent_has_not(fork_python: PythonRunner) -> None:
    fork_python(
        f"""
        import torch_loom
        exec({WORKERS!r})
        assert torch.cuda.is_available() and not torch.cuda.is_initialized()
        assert batches() == [2.0, 10.0]
        """,
        BY_NVML,
    )


def test_loader_workers_are_refused_after_a_question(fork_python: PythonRunner) -> None:
    fork_python(
        f"""
        import torch_loom
        exec({WORKERS!r})
        assert batches() == [2.0, 10.0]
        assert torch.cuda.is_available() and not torch.cuda.is_initialized()
        try:
            batches()
        except RuntimeError as error:
            assert "in DataLoader worker process 0" in str(error) and {SENTENCE!r} in str(error), error
        else:
            raise AssertionError
        # Workers that use the host alone are as good as before.
        on_host = DataLoader(torch.arange(8.0), batch_size=4, num_workers=2, pin_memory=True)
        assert sum(batch.to("cuda", non_blocking=True).sum().item() for batch in on_host) == 28
        """,
        NAME,
    )


@pytest.mark.slow
def test_processes_of_multiprocessing(warm_python: PythonRunner) -> None:
    warm_python(
        f"""
        import torch, torch.multiprocessing as mp

        def use(queue):
            try:
                queue.put(torch.ones(2, device="cuda").sum().item())
            except RuntimeError as error:
                queue.put(str(error))

        def forked():
            queue = mp.get_context("fork").SimpleQueue()
            process = mp.get_context("fork").Process(target=use, args=(queue,))
            process.start()
            answer = queue.get()
            process.join()
            return answer

        assert forked() == 2
        torch.cuda.is_available()
        assert {SENTENCE!r} in forked()
        """,
        NAME,
    )
