import os

import torch

x = torch.ones(3, device="cuda", requires_grad=True)
(x * 2).sum().backward()
child = os.fork()
if child == 0:
    status = 1
    try:
        torch.ones(3, requires_grad=True).sum().backward()
    except RuntimeError as error:
        text = "Unable to handle autograd's threading in combination with fork-based multiprocessing"
        status = 0 if text in str(error) else 2
    finally:
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
