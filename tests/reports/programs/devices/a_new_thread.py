import threading

import torch

found = []


def note():
    found.append(torch.cuda.current_device())
    found.append(torch.cuda.current_stream() == torch.cuda.default_stream())


torch.cuda.set_device(1)
with torch.cuda.stream(torch.cuda.Stream()):
    thread = threading.Thread(target=note)
    thread.start()
    thread.join()
    assert torch.cuda.current_device() == 1
assert found == [0, True]
