"""A suite whose tests run on two ranks each; one of them fails."""

import os

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcessTestCase


class RanksTest(MultiProcessTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        os.environ["SET_BY_THE_TEST"] = "1"
        self._spawn_processes()

    def test_sum(self):
        assert os.environ["SET_BY_THE_TEST"] == "1"
        assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ
        dist.init_process_group("nccl", store=dist.FileStore(self.file_name, 2), rank=self.rank, world_size=2)
        x = torch.full((3,), self.rank + 1.0, device=f"cuda:{self.rank}")
        dist.all_reduce(x)
        self.assertEqual(x.tolist(), [3.0] * 3)

    def test_fails(self):
        self.assertEqual(self.rank, 2)
