"""How long a collective takes over the links of chips of a kind: for real runs, plans and simulations alike.

A short one takes its start and the steps of its protocol with flags in the data (NCCL's LL), a long one the
rate of the links, which it comes near to only over tens of megabytes: the quickest of the protocols of a
fabric counts. ``python -m benchmarks.fit_collectives FOLDER`` fits them to NCCL's times and writes
``collectives.json``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from torch_loom.chips.chip import Chip
from torch_loom.chips.rates import GUESSED_HOST_LINK_GBPS, GUESSED_LAUNCH_NS
from torch_loom.chips.topologies import Layout

FILE = Path(__file__).with_name("collectives.json")
FABRICS = ("switched", "mesh", "message", "network", "network_message")
"""Whose protocols are fitted: links through switches or from chip to chip, the network between nodes; and
messages over either."""


class Protocol(NamedTuple):
    """What a protocol takes: its start, each hop, and the bytes at a share of the links' peak rate.

    ``ramp_ns`` is what is lost in all until the pipeline of a ring is full, ``ramp_ns_of_links`` how long the
    links take for the bytes after which half of it is lost.
    """

    start_ns: float
    hop_ns: float
    link_share: float
    ramp_ns: float = 0.0
    ramp_ns_of_links: float = 1.0

    def time_ns(self, moved_bytes: float, hops: float, gbps: float) -> float:
        """Return nanoseconds for the bytes that each rank sends on, over so many hops, at so many GB/s."""
        time_on_links = moved_bytes / gbps
        ramp = self.ramp_ns * time_on_links / (time_on_links + self.ramp_ns_of_links)
        return self.start_ns + self.hop_ns * hops + time_on_links / self.link_share + ramp


class Route(NamedTuple):
    """By what a collective goes: a fabric, the bytes that a rank sends on, the hops, and the links' rate."""

    fabric: str
    moved_bytes: float
    hops: float
    gbps: float


_PASSES = {"all_reduce": 2, "barrier": 2}  # of the data around a ring
_MESSAGES = ("send", "recv")


@cache
def protocols() -> Mapping[str, tuple[Protocol, ...]]:
    """Return the protocols of each fabric."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: tuple(Protocol(**each) for each in content["protocols"][name]) for name in FABRICS}


def collective_seconds(chip: Chip, collective: str, size_bytes: int, ranks: int | Layout) -> float:
    """Return how long a collective takes.

    Args:
        chip: of each rank.
        collective: by the name of ``torch.distributed``'s function, or ``send`` or ``recv``.
        size_bytes: on each rank; for ``all_gather`` and ``reduce_scatter`` that of the whole, not of a part.
        ranks: how many there are, joined by the chips' links; or how they stand in a cluster.
    """
    layout = Layout(ranks) if isinstance(ranks, int) else ranks
    if layout.ranks <= 1 or (size_bytes == 0 and collective != "barrier"):
        return 0.0
    route = route_of(chip, collective, size_bytes, layout)
    if route is None:
        return _plain_ring_ns(chip, collective, size_bytes, layout.ranks) * 1e-9
    _, moved, hops, gbps = route
    return min(protocol.time_ns(moved, hops, gbps) for protocol in protocols()[route.fabric]) * 1e-9


def route_of(chip: Chip, collective: str, size_bytes: int, layout: Layout) -> Route | None:
    """Return by what a collective goes; None: by a fabric whose protocols are not measured."""
    ranks, nodes = layout.ranks, layout.nodes
    is_message = collective in _MESSAGES
    moved = _moved_bytes(collective, size_bytes, ranks)
    passes = _PASSES.get(collective, 1)
    if nodes > 1:
        if is_message:
            return Route("network_message", moved, 1, layout.nic_gbps)
        # Each pass of a ring crosses from node to node once on each of its channels, one for each NIC; pieces
        # that all ranks of a node send elsewhere share the NICs.
        crossing = moved
        if collective == "all_to_all":
            crossing = size_bytes * (ranks - layout.most_on_node) / ranks * layout.most_on_node
        # A tree has as many levels as the number of nodes has digits; its data do not go around.
        has_tree = collective in ("all_reduce", "barrier", "broadcast", "reduce")
        hops = passes * ((math.ceil(math.log2(nodes)) if has_tree else nodes - 1) + layout.most_on_node - 1)
        return Route("network", crossing, hops, layout.nic_gbps * layout.nics)
    if not chip.product_name or not chip.num_links:
        return None
    used = float(chip.num_links)
    if chip.ring_links:
        used = chip.ring_links[min(ranks - 2, len(chip.ring_links) - 1)]
    fabric = "message" if is_message else "mesh" if chip.ring_links else "switched"
    hops = 1 if is_message else passes * (ranks - 1)
    return Route(fabric, moved, hops, used * chip.link_gbps * chip.derating)


def _moved_bytes(collective: str, size_bytes: int, ranks: int) -> float:
    if collective in _MESSAGES or collective == "broadcast":
        return float(size_bytes)
    return size_bytes * _PASSES.get(collective, 1) * (ranks - 1) / ranks


def _plain_ring_ns(chip: Chip, collective: str, size_bytes: int, ranks: int) -> float:
    hops = 1 if collective in _MESSAGES else _PASSES.get(collective, 1) * (ranks - 1)
    gbps = chip.num_links * chip.link_gbps * chip.derating or chip.host_link_gbps or GUESSED_HOST_LINK_GBPS
    latency = (chip.link_latency_ns or GUESSED_LAUNCH_NS) * hops + (
        chip.kernel_launch_ns or GUESSED_LAUNCH_NS
    )
    return _moved_bytes(collective, size_bytes, ranks) / gbps + latency
