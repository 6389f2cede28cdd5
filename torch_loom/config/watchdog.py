"""Variables of PyTorch's watchdog for NCCL and of its flight recorder, which programs for GPUs set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from torch_loom.config.sources import foreign
from torch_loom.errors import ConfigurationError


class Watchdog(NamedTuple):
    """What variables of NCCL's watchdog say.

    Attributes:
        num_records: operations that the flight recorder keeps.
        ends_process: whether an operation whose time is over ends the process, under NCCL's rules.
        waits_block_host: whether waiting for a work makes the host wait.
        finds_nan: whether a collective refuses numbers that are NaN.
        is_timed: whether works know how long they took.
        reports_desync: whether a rank whose time is over says where the other ranks stood.
        dump_prefix: path of the recorder's dumps, to which the rank is added; None for no dumps.
    """

    num_records: int
    ends_process: bool
    waits_block_host: bool
    finds_nan: bool
    is_timed: bool
    reports_desync: bool
    dump_prefix: str | None


def read() -> Watchdog:
    """Return what TORCH_NCCL_* and TORCH_FR_* say; read under the name cuda.

    Raises:
        ConfigurationError: one is no whole number, or is yes or no and has another one.
    """
    blocks = _flag(("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"), False)
    # 1 and 3 end the process, 2 aborts the group alone; PyTorch handles nothing where waits block.
    handling = 0 if blocks else _number(("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"), 3)
    prefix = foreign("TORCH_FR_DUMP_TEMP_FILE") or foreign("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    if prefix is None:
        cache = foreign("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        prefix = os.path.join(cache, "torch", "comm_lib_trace_rank_")
    dumps = _flag(("TORCH_NCCL_DUMP_ON_TIMEOUT",), True)
    return Watchdog(
        num_records=_number(("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"), 2000),
        ends_process=handling in (1, 3),
        waits_block_host=blocks,
        finds_nan=_flag(("TORCH_NCCL_NAN_CHECK",), False),
        is_timed=_flag(("TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING"), False),
        reports_desync=_flag(("TORCH_NCCL_DESYNC_DEBUG", "NCCL_DESYNC_DEBUG"), False),
        dump_prefix=prefix if dumps else None,
    )


def _flag(names: Sequence[str], default: bool) -> bool:
    """Return what the first of these variables says that is set: 0, 1 or a word for either."""
    number = _number(names, int(default))
    if number not in (0, 1):
        name = next(name for name in names if foreign(name))
        raise ConfigurationError(f"{name}={foreign(name)!r}. Allowed: 0, 1.")
    return number == 1


def _number(names: Sequence[str], default: int) -> int:
    """Return the number that the first of these variables has that is set; words for flags count."""
    name, given = next(((name, text) for name in names if (text := foreign(name))), ("", ""))
    if not given:
        return default
    text = given.lower()
    if text in ("true", "yes", "on", "y"):
        return 1
    if text in ("false", "no", "off", "n"):
        return 0
    if not text.isdecimal():
        raise ConfigurationError(f"{name}={given!r}. Allowed: a whole number from 0 on.")
    return int(text)
