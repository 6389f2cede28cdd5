"""Clusters: their files, where groups of ranks stand in them, and what that costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_loom import chips
from torch_loom.chips import topologies
from torch_loom.chips.collectives import collective_seconds
from torch_loom.errors import TopologyError

TEXT = """name = "mine"
description = "nodes of two"
chip = "a100"
devices_per_node = 2
"""


@pytest.mark.parametrize("name", topologies.available())
def test_every_figure_has_a_source(name: str) -> None:
    found = topologies.load(name)
    assert found.name == name
    assert set(found.sources) == {"chip", "devices_per_node", "nics_per_node", "nic_gbps"}
    assert found.chip in chips.available()


def test_groups_within_a_node_and_across_nodes() -> None:
    cluster = topologies.load("dgx-h100")
    assert topologies.layout(cluster, range(8)) == topologies.Layout(8)
    assert topologies.layout(cluster, range(8, 16)) == topologies.Layout(8)
    assert topologies.layout(cluster, range(64)) == topologies.Layout(64, 8, 8, 8, 50.0)
    # One rank of each node has one interface to itself.
    assert topologies.layout(cluster, range(3, 64, 8)) == topologies.Layout(8, 8, 1, 1, 50.0)
    assert topologies.layout(None, range(64)) == topologies.Layout(64)


def test_across_nodes_takes_longer() -> None:
    chip, cluster = chips.load("h100"), topologies.load("dgx-h100")

    def seconds(kind: str, ranks: range, size_bytes: int = 1 << 28) -> float:
        return collective_seconds(chip, kind, size_bytes, topologies.layout(cluster, ranks))

    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"):
        within, rails, across = (
            seconds(kind, range(8)),
            seconds(kind, range(16)),
            seconds(kind, range(0, 16, 8)),
        )
        assert within < rails, kind
        # A group with one rank a node has one interface of each, and twice the ranks share eight.
        if kind != "all_to_all":
            assert rails < across, kind
    assert seconds("send", range(2)) < seconds("send", range(7, 9))
    by_size = [seconds("all_reduce", range(1024), 1 << size) for size in range(4, 32, 3)]
    assert by_size == sorted(by_size)


def test_a_description_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT, encoding="utf-8")
    mine = topologies.load(path)
    assert mine.devices_per_node == 2
    assert topologies.layout(mine, range(2)) == topologies.Layout(2)
    with pytest.raises(
        TopologyError, match=r"'mine' joins no nodes .* 3 ranks of a group stand on 2 nodes of 2"
    ):
        topologies.layout(mine, range(3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace("a100", "a1000"), "chip = 'a1000'. Allowed: a10,"),
        (TEXT + "nics_per_node = 2\n", "only one of 'nics_per_node' and 'nic_gbps' is there"),
        (TEXT + "nodes = 2\n", "unknown key 'nodes'"),
        (TEXT + "oversubscription = 0.5\n", "oversubscription = 0.5"),
        (TEXT.replace("devices_per_node = 2", ""), "the key 'devices_per_node' is missing"),
        ("=", "not a TOML file"),
    ],
)
def test_bad_descriptions(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TopologyError) as raised:
        topologies.load(path)
    assert message in str(raised.value)
    assert "mine.toml" in str(raised.value)


def test_pods_are_joined_at_a_lower_rate(tmp_path: Path) -> None:
    path = tmp_path / "pods.toml"
    path.write_text(
        TEXT + "nics_per_node = 2\nnic_gbps = 10\nnodes_per_pod = 2\noversubscription = 4\n", encoding="utf-8"
    )
    pods = topologies.load(path)
    assert topologies.layout(pods, range(4)).nic_gbps == 10.0
    assert topologies.layout(pods, range(6)).nic_gbps == 2.5


def test_no_such_topology() -> None:
    with pytest.raises(TopologyError, match=r"There is no topology 'dgx'\. Shipped are: a100-ethernet"):
        topologies.load("dgx")
    with pytest.raises(TopologyError, match=r"no\.toml"):
        topologies.load("no.toml")
