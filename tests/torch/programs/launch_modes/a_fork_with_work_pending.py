import os
import traceback

import torch

from tests.raising import raises

side = torch.loom.Stream()
x = torch.ones(300, 300, device="loom")
with torch.loom.stream(side):
    for _ in range(30):
        y = x @ x
event = side.record_event()
pid = os.fork()
if pid == 0:
    try:
        for use in (
            torch.loom.Stream,
            torch.loom.current_stream,
            side.synchronize,
            side.query,
            event.query,
            event.synchronize,
            side.record_event,
            y.cpu,
            lambda: y * 2,
        ):
            raises(
                "ForkError"
                if use is torch.loom.Stream or use is torch.loom.current_stream
                else "RuntimeError",
                "Cannot re-initialize LOOM in forked subprocess",
                use,
            )
        del y, event
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
side.synchronize()
assert y[0, 0].item() == 300
