"""With TORCH_LOOM_COLLECTIVES=nccl, ranks that do not agree wait until the time is over, and end."""

import os
import signal
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from tests.distributed.programs.ranks import run

os.environ["TORCH_NCCL_DESYNC_DEBUG"] = "1"

with tempfile.TemporaryDirectory() as folder:

    def check(rank):
        os.dup2(os.open(f"{folder}/{rank}", os.O_WRONLY | os.O_CREAT), 2)
        x = torch.ones(8, device="cuda")
        dist.all_reduce(x)
        dist.all_reduce(x if rank == 0 else x.int())
        torch.cuda.synchronize()

    try:
        run(2, check, "nccl", timeout=timedelta(seconds=2))
    except AssertionError as error:
        assert str(error) == str([int(signal.SIGABRT)] * 2), error
    else:
        raise AssertionError("no rank was ended")
    for rank in range(2):
        text = Path(f"{folder}/{rank}").read_text()
        assert f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2," in text, text
        assert "OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=2000)" in text, text
        assert f"- [{rank}] Timeout at collective: ALLREDUCE, #2" in text, text
        assert "[0, 1] joined but didn't finish collective #2" in text, text
