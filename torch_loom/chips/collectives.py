"""How long a collective takes over the links of chips of a kind: for real runs, plans and simulations alike.

A short one takes its start and the steps of its protocol with flags in the data (NCCL's LL), a long one the
rate of the links, which it comes near to only over tens of megabytes. The figures of switched links are
fitted to NCCL's times on eight A100 (tests/chips/test_collectives.py has an excerpt), those of links without
a switch to eight V100: https://github.com/microsoft/vidur and https://github.com/VIA-Research/vTrain.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_loom.chips.chip import Chip
from torch_loom.chips.rates import GUESSED_HOST_LINK_GBPS, GUESSED_LAUNCH_NS


@dataclass(frozen=True)
class _Protocol:
    start_ns: float
    hop_ns: float
    link_share: float  # of the links' peak rate
    ramp_ns: float = 0.0  # what is lost in all until the pipeline of a ring is full
    ramp_ns_of_links: float = 1.0  # how long the links take for the bytes after which half of it is lost

    def time_ns(self, moved_bytes: float, hops: int, gbps: float) -> float:
        time_on_links = moved_bytes / gbps
        ramp = self.ramp_ns * time_on_links / (time_on_links + self.ramp_ns_of_links)
        return self.start_ns + self.hop_ns * hops + time_on_links / self.link_share + ramp


_SWITCHED = (
    _Protocol(34_900.0, 51.0, 0.244),
    _Protocol(37_900.0, 1_173.0, 0.794, ramp_ns=394_000.0, ramp_ns_of_links=780_000.0),
)
_MESH = (_Protocol(13_500.0, 5_040.0, 0.906),)
_MESSAGE = (_Protocol(13_600.0, 0.0, 0.93),)

_HOPS = {"all_reduce": 2, "barrier": 2}
_MESSAGES = ("send", "recv")


def collective_seconds(chip: Chip, collective: str, size_bytes: int, ranks: int) -> float:
    """Return how long a collective takes.

    Args:
        chip: of each rank.
        collective: by the name of ``torch.distributed``'s function, or ``send`` or ``recv``.
        size_bytes: on each rank; for ``all_gather`` and ``reduce_scatter`` that of the whole, not of a part.
        ranks: how many there are.
    """
    if ranks <= 1 or (size_bytes == 0 and collective != "barrier"):
        return 0.0
    is_message = collective in _MESSAGES
    hops = 1 if is_message else _HOPS.get(collective, 1) * (ranks - 1)
    moved = float(size_bytes) if is_message or collective == "broadcast" else size_bytes * hops / ranks
    if not chip.product_name or not chip.num_links:
        return _plain_ring_ns(chip, moved, hops) * 1e-9
    is_mesh = bool(chip.ring_links)
    used = float(chip.num_links)
    if is_mesh:
        used = chip.ring_links[min(ranks - 2, len(chip.ring_links) - 1)]
    protocols = _MESSAGE if is_message else _MESH if is_mesh else _SWITCHED
    gbps = used * chip.link_gbps * chip.derating
    return min(protocol.time_ns(moved, hops, gbps) for protocol in protocols) * 1e-9


def _plain_ring_ns(chip: Chip, moved_bytes: float, hops: int) -> float:
    gbps = chip.num_links * chip.link_gbps * chip.derating or chip.host_link_gbps or GUESSED_HOST_LINK_GBPS
    latency = (chip.link_latency_ns or GUESSED_LAUNCH_NS) * hops + (
        chip.kernel_launch_ns or GUESSED_LAUNCH_NS
    )
    return moved_bytes / gbps + latency
