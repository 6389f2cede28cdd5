"""Parameters that change after a module was compiled: runs read what they are now."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import torch_loom

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("plain_configuration")


class Scaled(nn.Module):
    """Whose weight is computed of a parameter, and its shift of a buffer."""

    shift: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("shift", torch.ones(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.weight * 2 + 1).t() + self.shift.exp()


def change(net: nn.Module) -> None:
    net.load_state_dict({name: value * 3 for name, value in net.state_dict().items()})


@pytest.mark.parametrize("options", [{}, {"backend_opt_level": 0}])
def test_constants_follow_the_parameters(options: dict[str, Any]) -> None:
    net, x = Scaled().to("loom"), torch.randn(3, 4, device="loom")
    run = torch_loom.compile(net, (x,), cache=False, **options)
    for _ in range(3):  # the last run replays a graph
        assert torch.equal(run(x), net(x))
    change(net)
    assert torch.equal(run(x), net(x))
    net.shift.add_(1)
    assert torch.equal(run(x), net(x))
    assert torch.equal(run(x), net(x))


def test_so_do_those_in_other_formats() -> None:
    net, x = nn.Linear(4, 4).to("loom"), torch.randn(3, 4, device="loom")

    def compiled() -> torch_loom.Executable:
        return torch_loom.compile(net, (x,), chip="wormhole_b0", default_df_override="Bfp8_b", cache=False)

    run = compiled()
    before = run(x)
    change(net)
    assert not torch.equal(run(x), before)
    assert torch.equal(run(x), compiled()(x))


def test_those_of_the_cache_and_of_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_LOOM_COMPILE_CACHE", str(tmp_path))
    net, x = nn.Linear(4, 4).to("loom"), torch.randn(3, 4, device="loom")
    options: Any = {"chip": "wormhole_b0", "default_df_override": "Bfp8_b"}
    torch_loom.compile(net, (x,), **options)
    run = torch_loom.compile(net, (x,), **options)
    assert run.plan["passes"][0]["name"] == "cache"
    change(net)
    run.save(tmp_path / "net.loom")
    expected = torch_loom.compile(net, (x,), cache=False, **options)(x)
    assert torch.equal(torch_loom.Executable.load(tmp_path / "net.loom")(x), expected)
    assert torch.equal(run(x), expected)


def test_a_copy_stays_as_it_was_compiled() -> None:
    net, x = nn.Linear(4, 4), torch.randn(3, 4)
    run = torch_loom.compile(net, (x,), chip="wormhole_b0", default_df_override="Bfp8_b", cache=False)
    before = run(x)
    change(net)
    assert torch.equal(run(x), before)


def test_a_deleted_module_frees_what_it_alone_had() -> None:
    net, x = Scaled().to("loom"), torch.randn(3, 4, device="loom")
    run = torch_loom.compile(net, (x,), cache=False)
    before, weight = run(x), weakref.ref(net.weight)
    del net
    gc.collect()
    assert weight() is None
    assert torch.equal(run(x), before)
