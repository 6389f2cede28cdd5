import os

import torch


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
