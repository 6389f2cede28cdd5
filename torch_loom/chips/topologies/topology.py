"""The description of a cluster, the reader of its file, and the layout of a group of ranks in it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from torch_loom.chips import checks
from torch_loom.chips.chip import available as available_chips
from torch_loom.chips.description import NO_TABLE, Reader, figure
from torch_loom.errors import TopologyError


@dataclass(frozen=True)
class Topology:
    """A cluster of nodes that are alike. Each attribute is a key of the file.

    Rank r is on the node ``r // devices_per_node``, as launchers place ranks.
    """

    name: str = figure(checks.name(), "a short name: letters, digits, _ and -")
    description: str = figure(checks.text(), "one line for people")
    chip: str = figure(checks.name(), "the chip that each rank has")
    devices_per_node: int = figure(checks.whole(1, 1024), "ranks of a node, joined by the chips' links")
    nics_per_node: int = figure(
        checks.whole(0, 1024), "network interfaces of a node; 0: nodes are not joined", default=0
    )
    nic_gbps: float = figure(
        checks.number("GB/s", 1e6), "peak rate of one of them in one direction", "GB/s", default=0.0
    )
    nodes_per_pod: int = figure(
        checks.whole(0, 1 << 20), "nodes that meet at full rate; 0: all of them", "nodes", 0
    )
    oversubscription: float = figure(
        checks.number("times", 1e4, low=0.99), "how much less of the rate there is between pods", "", 1.0
    )
    sources: Mapping[str, str] = figure(
        checks.Check("a table of texts, by key", lambda value: value),
        "where each figure comes from",
        default=NO_TABLE,
    )


class Layout(NamedTuple):
    """How the ranks of a group stand: on how many nodes, and at most how many on one.

    ``nics`` are those of a node that the group uses, ``nic_gbps`` is the rate that each has for it.
    """

    ranks: int
    nodes: int = 1
    most_on_node: int = 0
    nics: int = 0
    nic_gbps: float = 0.0


class _Reader(Reader):
    error = TopologyError
    noun = "topology"
    takes = "a topology is a name or a path"

    def read(self) -> Topology:
        values = self.values(Topology)
        if values["chip"] not in available_chips():
            self.fail_value("chip", values["chip"], ", ".join(available_chips()))
        if (values.get("nics_per_node", 0) == 0) != (values.get("nic_gbps", 0.0) == 0.0):
            self.fail("only one of 'nics_per_node' and 'nic_gbps' is there", "both or neither")
        return Topology(**values)


def available() -> tuple[str, ...]:
    """Return the names of the topologies that are shipped, in alphabetical order."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.toml")))


def load(topology: str | os.PathLike[str]) -> Topology:
    """Read the description of a cluster.

    Args:
        topology: the name of a shipped one, or the path of a description, which ends in ``.toml``.

    Raises:
        TopologyError: there is none, or the file is not such a description.
    """
    return _load(os.fsdecode(topology))


@cache
def _load(text: str) -> Topology:
    if text.endswith(".toml"):
        return _Reader(Path(text)).read()
    if text not in available():
        raise TopologyError(
            f"There is no topology {text!r}. Shipped are: {', '.join(available())}; the path of a "
            "description of your own ends in .toml."
        )
    return _Reader(Path(__file__).with_name(f"{text}.toml")).read()


@cache
def default_of(chip: str) -> Topology | None:
    """Return the shipped topology of a chip; None: there is none, and its links join all ranks."""
    found = [each for each in map(load, available()) if each.chip == chip]
    return max(found, key=lambda each: each.nic_gbps * each.nics_per_node, default=None)


def layout(topology: Topology | None, ranks: Sequence[int]) -> Layout:
    """Return how the ranks of a group stand in a cluster.

    Args:
        topology: None: all ranks are joined by the chips' links.
        ranks: of the default group.

    Raises:
        TopologyError: they stand on several nodes, which the topology does not join.
    """
    if topology is None:
        return Layout(len(ranks))
    on_nodes = Counter(rank // topology.devices_per_node for rank in ranks)
    if len(on_nodes) == 1:
        return Layout(len(ranks))
    if topology.nics_per_node == 0:
        raise TopologyError(
            f"the topology {topology.name!r} joins no nodes (nics_per_node is 0), and the {len(ranks)} ranks "
            f"of a group stand on {len(on_nodes)} nodes of {topology.devices_per_node}. Use fewer ranks, or "
            "a topology with nics_per_node and nic_gbps"
        )
    most = max(on_nodes.values())
    pods = {node // topology.nodes_per_pod for node in on_nodes} if topology.nodes_per_pod else {0}
    gbps = topology.nic_gbps / (topology.oversubscription if len(pods) > 1 else 1.0)
    return Layout(len(ranks), len(on_nodes), most, min(topology.nics_per_node, most), gbps)
