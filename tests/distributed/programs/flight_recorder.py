"""What PyTorch's reader of NCCL's flight recorder says of ranks that wait for one another."""

import os
import pickle
import signal
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.flight_recorder.components.builder import build_db
from torch.distributed.flight_recorder.components.config_manager import JobConfig
from torch.distributed.flight_recorder.components.loader import read_dir

from tests.distributed.programs.ranks import run

with tempfile.TemporaryDirectory() as folder:
    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = f"{folder}/trace_"
    os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "4"

    def check(rank):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        x = torch.ones(8, device="cuda")
        for _ in range(4):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        found = pickle.loads(torch._C._distributed_c10d._dump_nccl_trace())
        assert [entry["state"] for entry in found["entries"]] == ["completed"] * 4
        entry = found["entries"][-1]
        assert entry["profiling_name"] == "nccl:all_reduce"
        assert (entry["input_sizes"], entry["input_dtypes"]) == ([[8]], ["Float"])
        assert entry["frames"][0]["filename"].endswith("flight_recorder.py")
        active = pickle.loads(torch._C._distributed_c10d._dump_nccl_trace(onlyActive=True))
        assert active["entries"] == []
        dist.all_reduce(x if rank == 0 else x[:4])
        torch.cuda.synchronize()

    try:
        run(2, check, "nccl", timeout=timedelta(seconds=2))
    except AssertionError as error:
        assert str(error) == str([int(signal.SIGABRT)] * 2), error
    else:
        raise AssertionError("no rank was ended")
    arguments = JobConfig().parse_args([folder, "--prefix", "trace_"])
    details, version = read_dir(arguments)
    assert sorted(details) == ["trace_0", "trace_1"], details
    for dump in details.values():
        # The last four of five.
        assert [entry["collective_seq_id"] for entry in dump["entries"]] == [2, 3, 4, 5]
        assert dump["entries"][-1]["state"] == "scheduled"
    found = build_db(details, arguments, version)
    different = found.collectives[-1]
    assert (different.collective_seq_id, different.pass_check) == (5, False), different
    assert different.mismatch_collectives[1].input_sizes == [[4]], different
