"""One pipeline over several processes: each stage on a rank, messages between them over torch.distributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch_loom.errors import PipelineError
from torch_loom.pipeline.ranks.post import close, is_launched, post
from torch_loom.pipeline.ranks.run import RankedRun
from torch_loom.pipeline.ranks.sharing import share_answers, share_spans

__all__ = ["RankedRun", "Ranks", "close", "post", "resolve", "share_answers", "share_spans"]

Ranks = Sequence[int] | Literal["local"] | None


def resolve(ranks: Ranks, num_stages: int) -> list[int] | None:
    """Return the rank of each stage, or None where all stages are in this process.

    Args:
        ranks: of each stage; ``"local"``: all in this process; None: under torchrun the stages are
            spread over the ranks in order, and otherwise all in this process.

    Raises:
        PipelineError: not one rank for each stage, or ranks that do not exist.
        RankError: ranks are given, and the program was not started for them.
    """
    if ranks == "local" or (ranks is None and not is_launched()):
        return None
    world_size = post().world_size
    if ranks is None:
        return [place * world_size // num_stages for place in range(num_stages)]
    chosen = [] if isinstance(ranks, str) else list(ranks)
    if (
        any(not isinstance(rank, int) for rank in chosen)
        or len(chosen) != num_stages
        or any(not 0 <= rank < world_size for rank in chosen)
    ):
        raise PipelineError(
            f"ranks are {ranks!r}: give one of 0 to {world_size - 1} for each of the {num_stages} stages"
        )
    return chosen
