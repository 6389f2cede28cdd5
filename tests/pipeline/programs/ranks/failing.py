import json
import os
import queue
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from torch_loom.pipeline import Pipeline, Stage

folder, how = sys.argv[1:]


class Failing(nn.Module):
    count = 0

    def forward(self, x):
        self.count += 1
        if self.count == 3 and how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.count == 3:
            raise ValueError("too wide")
        return x


dist.init_process_group(
    "gloo", init_method=f"file://{folder}/store", rank=int(os.environ["RANK"]), world_size=2
)
outputs = queue.Queue()
pipeline = Pipeline([Stage("first", nn.Identity()), Stage("second", Failing())])
pipeline.start(training=False, outputs=outputs)
for _ in range(8):
    pipeline.push(torch.ones(2))
pipeline.forward(8)
got = []
try:
    while True:
        got.append(outputs.get(timeout=40)[0].tolist())
except Exception as error:
    raised = error
begin = time.monotonic()
again = ""
try:
    pipeline.sync()
except Exception as error:
    again = type(error).__name__
ended = pipeline.shutdown()
names = [kind.__name__ for kind in type(raised).__mro__]
cause = type(raised.__cause__).__name__
told = [got, names, str(raised), again, ended and time.monotonic() - begin < 10, cause]
Path(f"{folder}/rank{dist.get_rank()}.json").write_text(json.dumps(told))
