"""Lazy device memory as the vendor documents it: device memory is what device ops have needed."""

from __future__ import annotations

import pytest
import torch

from tests.rbln.vendor import only_under_the_name

only_under_the_name(eager=False)

SIXTEEN = {
    *(
        f"{group}.{figure}"
        for group in ("allocated", "reserved")
        for figure in ("current", "peak", "total_allocated", "total_freed")
    ),
    *(f"{group}.{figure}" for group in ("active", "cached") for figure in ("current", "peak")),
    *("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"),
}


@pytest.fixture(autouse=True)
def nothing_cached() -> None:
    torch.rbln.empty_cache()
    torch.rbln.reset_peak_memory_stats()
    torch.rbln.reset_accumulated_memory_stats()


def device_figures() -> dict[str, int]:
    stats = torch.rbln.memory_stats()
    return {name: stats[name] for name in SIXTEEN}


@pytest.mark.seed(0, "lazy/1", "lazy/2", "lazy/5", "memory_allocated/3", "memory_reserved/3")
@pytest.mark.seed(0, "max_memory_allocated/3", "max_memory_reserved/3")
def test_a_new_tensor_lies_in_host_memory() -> None:
    before = device_figures()
    host_bytes = torch.rbln.memory_stats()["lazy.host_bytes"]
    x = torch.ones(1024, dtype=torch.float16, device="rbln")
    y = torch.arange(1024).half().to("rbln")
    assert device_figures() == before
    assert torch.rbln.memory_allocated() == before["allocated.current"]
    assert torch.rbln.memory_reserved() == before["reserved.current"]
    assert torch.rbln.max_memory_allocated() == before["allocated.peak"]
    assert torch.rbln.max_memory_reserved() == before["reserved.peak"]
    assert torch.rbln.memory_stats()["lazy.host_bytes"] - host_bytes == x.nbytes + y.nbytes


@pytest.mark.seed(0, "lazy/3", "lazy/4", "lazy/5", "lazy/6")
def test_an_op_takes_device_memory_and_moves_the_data() -> None:
    before = torch.rbln.memory_stats()
    x = torch.arange(1024).half().to("rbln")
    y = x + 1
    now = torch.rbln.memory_stats()
    assert now["allocated.current"] - before["allocated.current"] == x.nbytes + y.nbytes
    assert now["num_device_alloc"] == before["num_device_alloc"] + 1
    assert now["lazy.materialized_bytes"] - before["lazy.materialized_bytes"] == x.nbytes
    assert now["lazy.host_bytes"] == before["lazy.host_bytes"]
    assert torch.equal(x.cpu(), torch.arange(1024).half())
    assert torch.equal(y.cpu(), torch.arange(1024).half() + 1)


def test_what_is_never_used_takes_nothing() -> None:
    too_large = torch.empty(1 << 40, dtype=torch.uint8, device="rbln")
    assert too_large.device == torch.device("rbln:0")
    with pytest.raises(torch.OutOfMemoryError, match=r"15\.70 GiB"):
        too_large + 1


@pytest.mark.seed(0, "get_amp_supported_dtype/1", "get_amp_supported_dtype/2")
def test_the_chip_is_an_atom() -> None:
    assert torch.rbln.get_amp_supported_dtype() == [torch.float16]
    assert torch.rbln.get_device_name() == "RBLN-CA12"
    assert torch.loom.get_device_name() == "atom"
    properties = torch.rbln.get_device_properties(0)
    assert f"{properties.total_memory / 2**30:.1f}" == "15.7"
    assert properties.extra["memory_policy"] == "lazy"
    assert torch.rbln.mem_get_info()[1] == properties.total_memory
