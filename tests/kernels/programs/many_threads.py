# Launches by threads, on the default stream and on streams of their own: none is lost.
import threading

import torch

from tests.kernels.programs import kernels

failures = []


def launch(number):
    stream = torch.cuda.Stream() if number % 2 else torch.cuda.default_stream()
    with torch.cuda.stream(stream):
        x, out = torch.ones(5000, device="cuda"), torch.zeros(5000, device="cuda")
        counter = torch.zeros(1, dtype=torch.int32, device="cuda")
        for _ in range(625):
            kernels.scale[(5,)](x, out, 5000, 2.0, BLOCK=1024)
            kernels.counted[(3,)](counter)
        stream.synchronize()
        if not out.eq(2).all() or counter.item() != 3 * 625:
            failures.append((number, counter.item()))


threads = [threading.Thread(target=launch, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
print("8 threads, 10000 launches")
