"""What a program may do to the facade: push from many threads, fork, run out of disk."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pybuda.models import SIZE, Projection
from torch_loom import pybuda
from torch_loom.errors import ImageError, PipelineError, PyBudaError
from torch_loom.pybuda.enums import BackendDevice, BackendType
from torch_loom.pybuda.pybudaglobal import get_devices
from torch_loom.pybuda.run.session import running

NUM_THREADS, NUM_PUSHES = 8, 25


def test_threads_that_push_and_run_at_once_lose_nothing() -> None:
    projection = Projection("m")
    device = pybuda.TTDevice("tt0", module=projection)
    together = threading.Barrier(NUM_THREADS)
    queues: list[Any] = []

    def work(number: int) -> None:
        together.wait()
        for push in range(NUM_PUSHES):
            device.push_to_inputs(torch.full((1, SIZE), float(number * NUM_PUSHES + push)))
        together.wait()
        queues.append(pybuda.run_inference(input_count=NUM_PUSHES))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(NUM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(queues) == NUM_THREADS
    assert len({id(queue) for queue in queues}) == 1, "one pipeline was started"
    columns = projection.basis.value().sum(0)
    results = [queues[0].get(timeout=60)[0].value()[0] / columns for _ in range(NUM_THREADS * NUM_PUSHES)]
    assert sorted(round(float(result[0])) for result in results) == list(range(NUM_THREADS * NUM_PUSHES))


def test_a_fork_has_neither_the_devices_nor_the_pipeline() -> None:
    device = pybuda.TTDevice("tt0", module=Projection("m"))
    device.push_to_inputs(torch.rand(2, SIZE))
    pybuda.run_inference(_sequential=True)
    pipeline = running.session.pipeline
    child = os.fork()
    if child == 0:
        code = 1
        try:
            begun = time.monotonic()
            pybuda.shutdown()
            assert pipeline.shutdown()
            with pytest.raises(PipelineError, match="fork of it"):
                pipeline.sync()
            with pytest.raises(PyBudaError, match="'tt0' was made before a fork"):
                device.push_to_inputs(torch.rand(2, SIZE))
            assert time.monotonic() - begun < 10
            code = 10 * len(get_devices()) + (running.session is not None)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert get_devices() == [device]
    device.push_to_inputs(torch.rand(2, SIZE))
    assert pybuda.run_inference().get(timeout=60)[0].shape == (2, SIZE)


@pytest.mark.long
def test_a_full_disk_leaves_the_image_that_was_there(tmp_path: Path) -> None:
    path, x = tmp_path / "m.tti", torch.rand(2, SIZE)
    device = pybuda.TTDevice(
        "tt0", arch=BackendDevice.Wormhole_B0, devtype=BackendType.Golden, module=Projection("m")
    )
    device.compile_to_image(img_path=str(path), sample_inputs=(x,))
    before = path.read_bytes()
    assert path.stat().st_mode & 0o444 == 0o444 & ~_umask(), "as readable as any new file"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(ImageError, match="cannot be written"):
            device.compile_to_image(img_path=str(path), sample_inputs=(2 * x,))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [one.name for one in tmp_path.iterdir()] == ["m.tti"]
    assert path.read_bytes() == before
    with pytest.raises(ImageError, match="cannot be written"):
        device.compile_to_image(img_path="/proc/none/m.tti", sample_inputs=(x,))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
