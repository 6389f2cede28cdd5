import ast
import sys
import threading

import torch

from tests.cuda.programs.capture_errors.head import NOT_PERMITTED, PREVIOUS, captured, first_line

mode, elsewhere, here = ast.literal_eval(sys.argv[1])
x, raised = torch.ones(3, device="cuda"), []


def allocate():
    try:
        torch.empty(64 << 20, device="cuda:1", dtype=torch.uint8)
    except torch.AcceleratorError as error:
        raised.append(first_line(error))


def in_thread():
    x.add_(1)
    torch.empty(64 << 20, device="cuda", dtype=torch.uint8)  # the graph's
    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()


def is_invalid(error):
    return error is not None and first_line(error) == PREVIOUS


_, error = captured(in_thread, capture_error_mode=mode)
assert raised == [NOT_PERMITTED] * elsewhere and is_invalid(error) == elsewhere, (raised, error)
torch.cuda.empty_cache()
raised.clear()
_, error = captured(lambda: (x.add_(1), allocate()), capture_error_mode=mode)
assert raised == [NOT_PERMITTED] * here and is_invalid(error) == here, (raised, error)
