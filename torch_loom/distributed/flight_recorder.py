"""The last collectives of this process, as ``torch.distributed.flight_recorder`` reads them."""

from __future__ import annotations

import importlib
import json
import pickle
from pathlib import Path
from typing import Any

from torch_loom import _C
from torch_loom.config import watchdog
from torch_loom.patches.declared import CUDA_NAME

# The format's, as PyTorch 2.13 writes it (torch/csrc/distributed/c10d/FlightRecorder.hpp).
VERSION = "2.10"


def dump(
    includeCollectives: bool = True,  # noqa: N803 (PyTorch's)
    includeStackTraces: bool | None = None,  # noqa: N803
    onlyActive: bool = False,  # noqa: N803
) -> bytes:
    """Return the dump, pickled: what ``torch._C._distributed_c10d._dump_nccl_trace()`` returns.

    Args:
        includeCollectives: whether operations are in it, or groups alone.
        includeStackTraces: whether each has the line that called it.
        onlyActive: whether those that have ended are left out.
    """
    return pickle.dumps(content(includeCollectives, includeStackTraces is not False, onlyActive), protocol=2)


def dump_json(includeCollectives: bool = True, onlyActive: bool = False) -> bytes:  # noqa: N803
    """Return the dump as JSON; arguments as of :func:`dump`."""
    return json.dumps(content(includeCollectives, False, onlyActive)).encode()


def content(includes_collectives: bool, includes_lines: bool, is_active_alone: bool) -> dict[str, Any]:
    """Return what a dump says, as :func:`dump`."""
    records = _C.collective_records()
    groups = {}
    last: dict[str, dict[str, int]] = {}
    for record in records:
        number, name, description, ranks = record["group"]
        groups[name] = {"name": name, "desc": description, "ranks": str(ranks)}
        status = last.setdefault(str(number), dict.fromkeys(_STATUS, -1))
        for key, is_counted in zip(
            _STATUS, (True, record["started_ns"] != 0, record["completed_ns"] != 0), strict=True
        ):
            if is_counted and not record["is_message"]:
                status[key] = record["sequence"]
    found: dict[str, Any] = {
        "version": VERSION,
        "pg_config": groups,
        "pg_status": {
            number: {key: str(value) for key, value in each.items()} for number, each in last.items()
        },
        "comm_lib_version": "torch-loom",
    }
    if includes_collectives:
        found["entries"] = [
            _entry(record, includes_lines)
            for record in records
            if not is_active_alone or not record["completed_ns"]
        ]
    return found


_STATUS = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")


def _entry(record: dict[str, Any], has_line: bool) -> dict[str, Any]:
    number, name, description, _ = record["group"]
    started, completed = record["started_ns"], record["completed_ns"]
    entry = {
        "record_id": record["id"],
        "pg_id": number,
        "process_group": (name, description),
        "thread_name": "",
        "thread_id": "",
        "collective_seq_id": record["sequence"],
        "p2p_seq_id": record["message_sequence"],
        "op_id": record["id"] + 1,
        "profiling_name": record["name"],
        "time_created_ns": record["created_ns"],
        "input_sizes": [sizes for sizes, _ in record["inputs"]],
        "input_dtypes": [dtype for _, dtype in record["inputs"]],
        "output_sizes": [sizes for sizes, _ in record["outputs"]],
        "output_dtypes": [dtype for _, dtype in record["outputs"]],
        "state": "completed" if completed else "started" if started else "scheduled",
        "time_discovered_started_ns": started or None,
        "time_discovered_completed_ns": completed or None,
        "retired": bool(completed),
        "timeout_ms": record["timeout_ms"],
        "is_p2p": record["is_message"],
    }
    if completed and started:
        entry["duration_ms"] = (completed - started) / 1e6
    if has_line:
        file, _, line = record["line"].rpartition(":")
        entry["frames"] = [{"name": "", "filename": file, "line": int(line)}] if file else []
    return entry


def write(rank: int) -> None:
    """Write the dump of a rank where TORCH_FR_DUMP_TEMP_FILE or TORCH_NCCL_DEBUG_INFO_TEMP_FILE says.

    Does nothing where TORCH_NCCL_DUMP_ON_TIMEOUT is 0.
    """
    if (prefix := watchdog.read().dump_prefix) is not None:
        path = Path(f"{prefix}{rank}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dump())


def provide() -> None:
    """Put the functions where PyTorch has those of a build with NCCL."""
    c10d: Any = importlib.import_module("torch._C._distributed_c10d")
    CUDA_NAME.put(c10d, _dump_nccl_trace=dump, _dump_nccl_trace_json=dump_json)
