import ast
import sys

import torch
import torch.multiprocessing as mp

sentence = ast.literal_eval(sys.argv[1])


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
assert sentence in forked()
