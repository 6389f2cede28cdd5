"""PyTorch's own tests of ``torch.distributed``, out of its wheel, on two ranks of these devices.

`loom run --devices 2 -- python -m pytest tests/conformance/pytorch_distributed.py -k "cuda or nccl or ddp"`;
`python -m tests.conformance.suites --reports` counts what `--junit-xml` writes. Not part of the test suite:
each test takes seconds. Ranks are children of a server that has imported torch.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("BACKEND", "nccl")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())

from torch.testing._internal.distributed.distributed_test import (
    Barrier,
    DistributedTest,
    TestDistBackend,
)

multiprocessing.set_forkserver_preload(["torch", "torch_loom"])


class TestDistributed(TestDistBackend, DistributedTest._DistTestBase):  # type: ignore[misc]
    """All of them."""

    def setUp(self) -> None:
        """Start the ranks, which find the test's folder in a file: the server has its own variables."""
        super().setUp()
        Path(self.file_name + ".folder").write_text(os.environ["TEMP_DIR"])
        self._start_processes(multiprocessing.get_context("forkserver").Process)

    @classmethod
    def _run(cls, rank: int, test_name: str, file_name: str, pipe: Any, **kwargs: Any) -> None:
        os.environ["TEMP_DIR"] = Path(file_name + ".folder").read_text()
        Barrier.barrier_id = 0
        super()._run(rank, test_name, file_name, pipe, **kwargs)
