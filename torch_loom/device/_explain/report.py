"""`torch.loom.explain`: what a program did that it may not have meant to. A reader of the tape."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

import torch

from torch_loom import _C
from torch_loom._C import TapeReader
from torch_loom.device._explain.findings import KINDS, Finding, render, to_dict, to_json, verdict

__all__ = ["Finding", "Report", "explain"]

Operand = tuple[int, tuple[int, ...], tuple[int, ...], int, bool, str]
Place = tuple[tuple[CodeType, int], ...]

_OWN_FOLDER = str(Path(__file__).parents[2]) + os.sep
_TORCH_FOLDER = str(Path(torch.__file__).parent) + os.sep

# A program that calls these has asked for a copy.
_ASKED_COPIES = frozenset({"aten::copy_", "aten::clone", "aten::_copy_from", "aten::_foreach_copy_"})
_ASKED_CASTS = _ASKED_COPIES | {"aten::to", "aten::_to_copy", "aten::type_as"}
_READ_NUMBER = "aten::_local_scalar_dense"


class _Op(NamedTuple):
    """What ``_C.current_op`` says."""

    names: list[str]
    is_cast_asked: bool
    direction: str
    non_blocking: bool
    is_pinned: bool
    bytes: int
    departure: int
    origin: int
    origin_bytes: int
    operands: list[tuple[str, int]]


class Report:
    """What :func:`explain` found. As a context manager it looks at what is done within it.

    Attributes:
        result: what the function returned, when ``explain`` was given one.
        num_ops: how many kernels were launched, those of replayed graphs included.
    """

    def __init__(self) -> None:
        self.result: Any = None
        self.num_ops = 0
        self._counts: dict[tuple[str, str, str, Place, Place], list[int]] = {}
        self._departures: dict[int, Place] = {}
        self._outermost = 0
        self._is_used = False
        # The op table, which most programs never read.
        from torch_loom.device._explain.op_tags import OpTags

        self._tags = OpTags()
        # Commands come from any thread, and Python may change threads while a command is looked at.
        # Reentrant: a finalizer that Python runs under it may issue commands.
        self._lock = threading.RLock()
        self._reader: TapeReader | None = None

    def __enter__(self) -> Report:
        if self._is_used:
            raise RuntimeError("a report of explain() is entered once; call torch.loom.explain() for another")
        self._is_used = True
        self._outermost = id(sys._getframe(1))
        _C.start_op_watch()
        self._reader = TapeReader(self._read, with_dtypes=True)
        self._reader.attach()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        assert self._reader is not None
        self._reader.detach()
        # It holds a method of this report, where Python's collector cannot see it.
        self._reader = None
        _C.stop_op_watch()

    @property
    def findings(self) -> list[Finding]:
        """The findings: kind by kind, the most frequent first."""
        with self._lock:
            counts = [(key, numbers[0], numbers[1]) for key, numbers in list(self._counts.items())]
        found = [
            Finding(kind, op, count, num_bytes, _summary(stack), detail, _summary(origin))
            for (kind, op, detail, stack, origin), count, num_bytes in counts
        ]
        order = list(KINDS)
        return sorted(found, key=lambda f: (order.index(f.kind), -f.count, -f.bytes))

    @property
    def verdict(self) -> str:
        """The report in one line; it begins with ``clean`` when there are no findings."""
        return verdict(self.findings, self.num_ops)

    def to_dict(self) -> dict[str, Any]:
        """Return verdict, number of ops and findings as plain data."""
        return to_dict(self.verdict, self.num_ops, self.findings)

    def to_json(self, indent: int | None = None) -> str:
        """Return :meth:`to_dict` as JSON."""
        return to_json(self.verdict, self.num_ops, self.findings, indent)

    def __str__(self) -> str:
        return render(self.verdict, self.findings)

    def _read(
        self,
        kind: int,
        device: int,
        stream: int,
        name: str,
        operands: tuple[Any, ...],
        address: int,
        num_bytes: int,
        is_captured: bool,
        host_waits: bool,
    ) -> None:
        if kind == TapeReader.FALLBACK:
            dtype = operands[0] if operands else None
            reason = f"{dtype} is not a dtype of the chip" if dtype else "not in the chip's list"
            self._add("fallback_dtype" if dtype else "fallback_op", name, 0, reason)
            return
        if kind not in (TapeReader.KERNEL, TapeReader.COPY):
            return
        if kind == TapeReader.KERNEL:
            with self._lock:
                self.num_ops += 1
        op = _Op(*_C.current_op())
        if not op.names:
            return  # a replay, or the runtime's own
        if op.departure:
            with self._lock:
                self._departures[op.departure] = self._place()
        if op.origin and op.direction != "to_host":
            self._add(
                "host_round_trip", op.names[0], op.origin_bytes, "data of the device comes back", op.origin
            )
        if op.names[-1] == "aten::copy_" and op.direction in ("to_host", "to_device"):
            self._look_at_transfer(op, host_waits)
        elif kind == TapeReader.COPY and op.names[-1] == _READ_NUMBER:
            self._add("implicit_sync", op.names[0], num_bytes, "the host waits for a number")
        elif kind == TapeReader.KERNEL:
            self._look_at_kernel(op, name, operands)

    def _look_at_transfer(self, op: _Op, host_waits: bool) -> None:
        way = "to the host" if op.direction == "to_host" else "to the device"
        if op.non_blocking and not op.is_pinned:
            reason = f"non_blocking=True has no effect: the copy {way} uses memory that is not pinned"
            self._add("pageable_copy", op.names[0], op.bytes, reason)
        if not op.non_blocking or host_waits:
            self._add("implicit_sync", op.names[0], op.bytes, f"the host waits for a copy {way}")

    def _look_at_kernel(self, op: _Op, name: str, operands: Sequence[Operand]) -> None:
        base, outer = name.partition(".")[0], op.names[0]
        if self._tags.is_read(base) or self._tags.is_counted(base, operands):
            self._add("implicit_sync", outer, 0, f"the host waits for the result of {base}")
        num_bytes = max((_num_bytes(operand) for operand in operands), default=0)
        dtypes = {dtype for dtype, num_dims in op.operands if num_dims}
        if base == "aten::copy_":
            all_dtypes = {dtype for dtype, _ in op.operands}
            if len(all_dtypes) > 1:
                if outer not in _ASKED_CASTS and not op.is_cast_asked:
                    self._add("dtype_conversion", outer, num_bytes, " and ".join(sorted(all_dtypes)))
            elif outer not in _ASKED_COPIES and len({_layout(operand) for operand in operands}) > 1:
                self._add("noncontiguous_copy", outer, num_bytes, _strides_of(operands))
        elif base == "aten::clone":
            if outer not in _ASKED_COPIES and any(not _is_contiguous(operand) for operand in operands):
                self._add("noncontiguous_copy", outer, num_bytes, _strides_of(operands))
        elif not op.is_cast_asked and self._tags.promotes(base):
            floating = {dtype for dtype in dtypes if getattr(torch, dtype).is_floating_point}
            if len(floating) > 1:
                reason = f"operands of {' and '.join(sorted(floating))} are computed in the wider one"
                self._add("dtype_conversion", outer, num_bytes, reason)

    def _add(self, kind: str, op: str, num_bytes: int, detail: str, departure: int = 0) -> None:
        place = self._place()
        with self._lock:
            key = (kind, op, detail, place, self._departures.get(departure, ()))
            numbers = self._counts.setdefault(key, [0, 0])
            numbers[0] += 1
            numbers[1] += num_bytes

    def _place(self) -> Place:
        """Return the stack of this thread, innermost first, without PyTorch's frames and our own."""
        frames: list[tuple[CodeType, int]] = []
        others: list[tuple[CodeType, int]] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith(_OWN_FOLDER):
                kept = others if file.startswith(_TORCH_FOLDER) else frames
                kept.append((frame.f_code, frame.f_lineno))
            if id(frame) == self._outermost:
                break
            frame = frame.f_back
        return tuple(frames or others)


def _summary(place: Place) -> tuple[traceback.FrameSummary, ...]:
    return tuple(
        traceback.FrameSummary(code.co_filename, line, code.co_name) for code, line in reversed(place)
    )


def _num_bytes(operand: Operand) -> int:
    num_bytes = operand[3]
    for size in operand[1]:
        num_bytes *= size
    return num_bytes


def _layout(operand: Operand) -> tuple[int, ...]:
    """Return the strides that matter: dimensions of one element have none."""
    sizes, strides = operand[1], operand[2]
    return tuple(stride for size, stride in zip(sizes, strides, strict=True) if size != 1)


def _is_contiguous(operand: Operand) -> bool:
    expected = 1
    for size, stride in zip(reversed(operand[1]), reversed(operand[2]), strict=True):
        if size == 0:
            return True
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _strides_of(operands: Sequence[Operand]) -> str:
    source = next((operand for operand in operands if not operand[4]), operands[0])
    return f"from shape {list(source[1])}, strides {list(source[2])}"


def explain(function: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Report:
    """Say what a program did on the devices that it may not have meant to.

    Found are: data that goes to the host and comes back (``host_round_trip``), ops for which the host waits
    (``implicit_sync``: ``item``, ``cpu``, ``nonzero``, masks, ``if tensor:``, printing, a blocking copy),
    ``non_blocking=True`` on memory that is not pinned (``pageable_copy``), copies into another layout within
    an op, ``contiguous`` and ``reshape`` included (``noncontiguous_copy``), dtypes converted by an op and not
    by ``to``, a ``dtype`` argument or autocast (``dtype_conversion``), and what the chip does not do itself
    (``fallback_op``, ``fallback_dtype``; :func:`torch.loom.fallback_stats` counts the same).

    It sees all threads and devices for as long as it is active; reports may be nested, and each sees
    everything. ``synchronize`` is asked for, and so is what a replayed graph does. Data is followed through
    tensors of the host; numbers and lists are known again by their values, small whole numbers are not.
    An active report makes every op slower. Initialises no device.

    Args:
        function: what to look at; without it the report is a context manager.
        *args: its arguments.
        **kwargs: its keyword arguments.

    Returns:
        The report. What ``function`` returned is ``report.result``; what it raises leaves ``explain``.

    Example:
        >>> import torch
        >>> x = torch.randn(64, device="loom")
        >>> with torch.loom.explain() as report:
        ...     y = x * 2
        >>> report.verdict
        'clean: 1 op, nothing that was not asked for'
        >>> torch.loom.explain(lambda: x.sum().item()).findings[0].kind
        'implicit_sync'
    """
    report = Report()
    if function is None:
        if args or kwargs:
            raise TypeError("explain() takes arguments only with a function to call")
        return report
    with report:
        report._outermost = id(sys._getframe(1))
        report.result = function(*args, **kwargs)
    return report
