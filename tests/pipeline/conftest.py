"""Pipelines of tiny modules, and what plain PyTorch makes of the same micro-batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torch_loom.pipeline import Pipeline


@pytest.fixture(autouse=True)
def _devices() -> Iterator[None]:
    """Four devices, and one thread an op: the machine's cores are for the stages."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def pipelines() -> Iterator[list[Pipeline]]:
    """Append a pipeline, and it is shut down after the test."""
    made: list[Pipeline] = []
    yield made
    for pipeline in made:
        assert pipeline.shutdown(), "a stage did not end"
