import ast
import os
import sys
import traceback

import torch

import torch_loom  # noqa: F401

SENTENCE, QUESTIONS, USABLE = ast.literal_eval(sys.argv[1])


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
    for use in (
        lambda: torch.ones(2, device="cuda"),
        lambda: torch.ones(2).cuda(),
        torch.cuda.init,
        torch.cuda.current_device,
        torch.cuda.Stream,
        torch.cuda.mem_get_info,
    ):
        try:
            use()
        except RuntimeError as error:
            assert SENTENCE in str(error), error
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


usable = {question for question in QUESTIONS if usable_after(question)}
assert usable == USABLE, usable ^ USABLE
# This process has asked nothing.
assert in_child(lambda: int(torch.ones(2, device="cuda").sum().item())) == 2
