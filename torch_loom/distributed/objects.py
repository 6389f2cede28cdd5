"""Objects between ranks of a cluster that are simulated, whose tensors have no contents.

PyTorch sends objects as tensors. Ranks that are not simulated have the object of the rank that asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist

from torch_loom.errors import DryRunError

Exchange = Callable[[str, tuple[int, ...], str, Any], Mapping[int, Any]]
"""Gives an object under a key to the members that are simulated, and returns those of all of them."""


class Objects:
    """What stands for the functions of ``torch.distributed`` that take objects, on a rank of a plan.

    Args:
        rank: of this process.
        simulated: the ranks that are, this one among them.
        exchange: how they give objects to one another; None where this is the only one.
    """

    def __init__(self, rank: int, simulated: tuple[int, ...] = (), exchange: Exchange | None = None) -> None:
        self._rank = rank
        self._simulated = frozenset(simulated)
        self._exchange = exchange
        self._counts: Counter[str] = Counter()

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return them by their names."""
        return {
            name: getattr(self, name)
            for name in (
                *("all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list"),
                *("scatter_object_list", "send_object_list"),
            )
        }

    def all_gather_object(self, object_list: list[Any], obj: Any, group: Any = None) -> None:
        """As PyTorch's."""
        object_list[:] = self._from_all("all_gather_object", obj, group)

    def gather_object(
        self,
        obj: Any,
        object_gather_list: list[Any] | None = None,
        dst: int | None = None,
        group: Any = None,
        group_dst: int | None = None,
    ) -> None:
        """As PyTorch's."""
        found = self._from_all("gather_object", obj, group)
        if object_gather_list is not None:
            object_gather_list[:] = found

    def broadcast_object_list(
        self,
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,
        group_src: int | None = None,
    ) -> None:
        """As PyTorch's."""
        source = self._place(group, src, group_src)
        object_list[:] = self._from_all("broadcast_object_list", list(object_list), group)[source]

    def scatter_object_list(
        self,
        scatter_object_output_list: list[Any],
        scatter_object_input_list: list[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        group_src: int | None = None,
    ) -> None:
        """As PyTorch's; None where the source is not simulated."""
        source = self._place(group, src, group_src)
        given = self._from_all("scatter_object_list", scatter_object_input_list, group)[source]
        own = dist.get_process_group_ranks(group).index(self._rank)
        scatter_object_output_list[0] = None if given is None else given[own]

    def send_object_list(
        self,
        object_list: list[Any],
        dst: int | None = None,
        group: Any = None,
        device: Any = None,
        group_dst: int | None = None,
        use_batch: bool = False,
    ) -> None:
        """As PyTorch's; a rank that is not simulated receives nothing."""
        ranks = dist.get_process_group_ranks(group)
        self._message("send", self._rank, ranks[self._place(group, dst, group_dst)], list(object_list))

    def recv_object_list(
        self,
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,
        group_src: int | None = None,
        use_batch: bool = False,
    ) -> int:
        """As PyTorch's.

        Raises:
            DryRunError: the sender is not simulated.
        """
        if src is None and group_src is None:
            raise DryRunError("recv_object_list(): a plan receives from a rank that is named, give src")
        source = dist.get_process_group_ranks(group)[self._place(group, src, group_src)]
        if source not in self._simulated:
            raise DryRunError(
                f"recv_object_list(): rank {self._rank} receives objects from rank {source}, which is not "
                "simulated: name both in the ranks of torch_loom.distributed.simulate()"
            )
        object_list[:] = self._message("recv", source, self._rank, None)
        return source

    def _from_all(self, name: str, own: Any, group: Any) -> list[Any]:
        ranks = dist.get_process_group_ranks(group)
        members = tuple(rank for rank in ranks if rank in self._simulated)
        found: Mapping[int, Any] = {}
        if self._exchange is not None and len(members) > 1:
            key = self._key(f"{hash(tuple(ranks))}:-1>-1")
            found = self._exchange(key, members, name, own)
        return [found.get(rank, own) for rank in ranks]

    def _message(self, name: str, source: int, destination: int, content: Any) -> Any:
        if self._exchange is None or not {source, destination} <= self._simulated:
            return content
        key = self._key(f"objects:{source}>{destination}")
        return self._exchange(key, (source, destination), name, content).get(source)

    def _key(self, what: str) -> str:
        self._counts[what] += 1
        return f"objects {what}#{self._counts[what] - 1}"

    @staticmethod
    def _place(group: Any, rank: int | None, group_rank: int | None) -> int:
        """Return a rank of the group that is given as such, or by its rank in the default group."""
        if group_rank is not None:
            return group_rank
        return 0 if rank is None else dist.get_process_group_ranks(group).index(rank)
