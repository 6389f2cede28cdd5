import ast
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path

import torch

from torch_loom.pipeline import Pipeline, Stage

entered = threading.Event()


class Waits(torch.nn.Module):
    def forward(self, x):
        entered.set()
        if x.sum() < 0:
            threading.Event().wait()
        return x


outputs, losses = queue.Queue(), queue.Queue()
pipeline = Pipeline([Stage("first", Waits()), Stage("last", torch.nn.Identity())], queue_entries=1)


def interrupt():
    entered.wait(30)
    os.kill(os.getpid(), signal.SIGINT)


def start(training=False):
    pipeline.start(training, outputs=outputs, losses=losses)
    pipeline.push(torch.ones(1))
    pipeline.forward(1)
    threading.Thread(target=interrupt, daemon=True).start()


begin = time.monotonic()
try:
    exec(ast.literal_eval(sys.argv[1]))
except KeyboardInterrupt:
    print("interrupted")
print("ended" if pipeline.shutdown() else "left")
assert pipeline.shutdown()
print("in time" if time.monotonic() - begin < 10 else "late")
print([t.name for t in threading.enumerate() if t.name.startswith("loom stage")])
print("shared" if "/dev/shm/" in Path("/proc/self/maps").read_text() else "nothing shared")
