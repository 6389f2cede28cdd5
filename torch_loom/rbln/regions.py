"""``torch.rbln.explain``: what a part of a program cost that it did not ask for, by the vendor's names.

``torch.loom.explain`` finds it; this counts regions, compares two of them, and names what helps.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torch_loom.device._explain.findings import Finding
from torch_loom.device._explain.report import Report
from torch_loom.errors import RegionError
from torch_loom.rbln import signals

if TYPE_CHECKING:
    from torch_loom.compiler.built import Built

__all__ = ["RBLNDiff", "RBLNExplain", "RBLNProfile", "explain", "explain_steady", "profile"]

# The vendor's counters are the process's, so that a region has them to itself; programs rely on the error.
_lock = threading.Lock()
_open: RBLNExplain | None = None


class RBLNExplain:
    """A region of a program, and what it cost that was not asked for. Made by :func:`explain`.

    It sees all threads and devices. As a context manager it starts and stops itself; its text is its report.
    Under the lazy memory policy a tensor that comes back from the host waits there until an op needs it, and
    counts as pushed to the device then (``real_host_sync_h2d``), not as a bounce.
    It does not know whether a cost is one of the first call alone: :meth:`diff` compares two regions.

    Args:
        with_stack: name the place in the program where each op fell back first.
        trace: the older name of ``with_stack``.
    """

    def __init__(self, with_stack: bool = False, *, trace: bool | None = None) -> None:
        chosen = with_stack if trace is None else trace
        if not isinstance(chosen, bool):
            raise TypeError(
                f"with_stack takes True or False, got a {type(chosen).__name__}; "
                "torch.loom.explain(function) looks at a function"
            )
        self._with_stack = chosen
        self._report = Report()
        self._memory: signals.Memory | None = None
        self._compiled: Counter[str] = Counter()
        self._begun = 0
        self._dump: dict[str, Any] | None = None
        self._place = ""

    def start(self) -> RBLNExplain:
        """Begin the region, and return it.

        Raises:
            RegionError: another region is open, or this one has been: regions do not overlap.
        """
        self._start(sys._getframe(1))
        return self

    def _start(self, frame: Any) -> None:
        global _open
        from torch_loom.compiler import built

        with _lock:
            if _open is not None:
                raise RegionError(
                    "regions of torch.rbln.explain() must not overlap, and one is open since "
                    f"{_open._place}: stop it first. torch.loom.explain() may be nested"
                )
            if self._begun:
                raise RegionError("a region is started once; torch.rbln.explain() makes another")
            self._place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            _open = self
        try:
            self._memory = signals.Memory()
            self._report.__enter__()
            self._report._outermost = id(frame)
            built.listen_everywhere(self._note_program)
        except BaseException:
            _release()
            raise
        self._begun = time.perf_counter_ns()

    def stop(self) -> RBLNExplain:
        """End the region, and return it. What it counted can be read from now on.

        Raises:
            RegionError: it is not open.
        """
        if _open is not self or self._memory is None:
            raise RegionError("the region is not open: start() begins one")
        from torch_loom.compiler import built

        wall_ns = time.perf_counter_ns() - self._begun
        try:
            built.leave(self._note_program)
            self._report.__exit__(None, None, None)
            self._dump = self._counted(wall_ns, self._report.findings, self._memory)
        finally:
            _release()
        return self

    def __enter__(self) -> RBLNExplain:
        self._start(sys._getframe(1))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._dump is None:  # the block may have stopped it
            self.stop()

    def _note_program(self, program: Built) -> None:
        with _lock:
            self._compiled[f"graph {program.name}".rstrip()] += 1

    def _counted(self, wall_ns: int, findings: list[Finding], memory: signals.Memory) -> dict[str, Any]:
        by_site = signals.bounces(findings)
        by_op, reasons = signals.fallbacks(findings)
        round_trips = by_site["copy_d2d_host_bounce"]
        found: dict[str, Any] = {
            "hidden_host_bounce": {
                "by_site": by_site,
                "total_count": sum(each["count"] for each in by_site.values()),
                "total_bytes": sum(each["bytes"] for each in by_site.values()),
            },
            "dispatch": {
                "total": self._report.num_ops,
                "cpu_fallback": sum(by_op.values()),
                "warm_hit": max(self._report.num_ops - sum(by_op.values()), 0),
                "recompile_miss": self._compiled.total(),
            },
            "wall_ns": wall_ns,
            "cpu_fallback_by_op": by_op,
            "recompile_by_op": dict(self._compiled.most_common()),
            "cpu_fallback_reasons": reasons,
            "trace_by_op": signals.places(findings) if self._with_stack else {},
            "runtime_residency": {
                "available": True,
                "total_count": 0,
                # A copy between tensors of devices never falls to the host here.
                "by_reason": {name: {"count": 0, "bytes": 0} for name in signals.RESIDENCY},
                "real_host_sync_d2h": dict(round_trips),
                "real_host_sync_h2d": memory.pushed(),
            },
            "device_memory": memory.gauge(),
            "host_threads": signals.host_threads(),
            "pending_runtime_signals": [],
            "loom": self._report.to_dict(),
        }
        found["notes"] = signals.notes(found)
        return found

    def dump(self) -> dict[str, Any]:
        """Return all that was counted as plain data; ``"loom"`` has the findings of ``torch.loom.explain``.

        Raises:
            RegionError: the region is still open, or was never started.
        """
        if self._dump is None:
            if self._begun:
                raise RegionError("the region is still open: leave its block or call stop(), then read it")
            raise RegionError("the region was not started: run a program in its block, then read it")
        return self._dump

    def verdict(self) -> dict[str, Any]:
        """Return whether the region is clean, the counts that say so, and a line for each.

        Clean means that nothing of it happened, not that the region was fast.

        Raises:
            RegionError: the region is still open, or was never started.
        """
        dump = self.dump()
        bounce, dispatch, runtime = (
            dump[name] for name in ("hidden_host_bounce", "dispatch", "runtime_residency")
        )
        counted = (
            (bounce["total_count"], f"data passed through the host, {signals.size(bounce['total_bytes'])}"),
            (dispatch["recompile_miss"], "graphs were compiled"),
            (dispatch["cpu_fallback"], "ops or dtypes were not the chip's: on it they run on the CPU"),
        )
        reasons = [f"{count}x {text}" for count, text in counted if count]
        return {
            "clean": not reasons,
            "hidden_host_bounces": bounce["total_count"],
            "hidden_host_bounce_bytes": bounce["total_bytes"],
            "runtime_hidden_d2h": runtime["total_count"],
            "runtime_hidden_by_reason": runtime["by_reason"],
            "cpu_fallbacks": dispatch["cpu_fallback"],
            "recompiles": dispatch["recompile_miss"],
            "reasons": reasons or ["no data passed through the host, no fallback, nothing compiled"],
            "notes": dump["notes"],
        }

    def report(self) -> str:
        """Return the verdict, a table of what was counted, and the ops behind it.

        Raises:
            RegionError: the region is still open, or was never started.
        """
        dump, verdict = self.dump(), self.verdict()
        rows = self._rows(dump)
        kinds = sum(bool(verdict[name]) for name in ("hidden_host_bounces", "cpu_fallbacks", "recompiles"))
        mark = "[clean]" if not kinds else f"[overhead: {kinds} signal{'s' if kinds > 1 else ''}]"
        peak = signals.size(dump["device_memory"]["peak_bytes"])
        wall = signals.duration(dump["wall_ns"])
        lines = [f"{mark}  RBLN EXPLAIN   (region wall {wall} | device mem {peak} peak, reserved)"]
        lines += self._circumstances(dump)
        if not kinds:
            lines.append("  no host_bounce, v2v_slow, cpu_fallback, recompile; that is not to say: fast")
        else:
            lines += ["", *signals.table(("Signal", "Count", "Bytes", "Note"), rows, (1, 2)), ""]
            lines += self._details(dump)
            lines.append("  p.help(signal) says more, p.dump() all as data")
        if others := self._others(dump):
            lines.append(f"  beside it: {others} (torch.loom.explain)")
        return "\n".join(lines)

    @staticmethod
    def _rows(dump: dict[str, Any]) -> list[list[str]]:
        rows = [
            [
                f"host_bounce/{name}",
                f"{each['count']:,}",
                signals.size(each["bytes"]),
                f"try: {signals.SHORT[name]}",
            ]
            for name, each in dump["hidden_host_bounce"]["by_site"].items()
            if each["count"]
        ]
        for name, key in (("cpu_fallback", "cpu_fallback"), ("recompile", "recompile_miss")):
            if count := dump["dispatch"][key]:
                rows.append([f"dispatch/{name}", f"{count:,}", "--", f"try: {signals.SHORT[name]}"])
        return rows

    @staticmethod
    def _circumstances(dump: dict[str, Any]) -> list[str]:
        threads, pushed = dump["host_threads"], dump["runtime_residency"]["real_host_sync_h2d"]
        lines = []
        if threads["oversubscribed"]:
            lines.append(
                f"  ! {threads['intended_threads']} threads for {threads['cores']} cores: the host is slower"
            )
        if pushed["count"]:
            lines.append(
                f"  tensors that took device memory: {pushed['count']}, {signals.size(pushed['bytes'])}"
            )
        return lines

    @staticmethod
    def _details(dump: dict[str, Any]) -> list[str]:
        places = dump["trace_by_op"]

        def block(title: str, counts: dict[str, int]) -> list[str]:
            if not counts:
                return []
            width = max(map(len, counts))
            found = [f"  {title}:"]
            for name, count in counts.items():
                at = f"  at {places[name]}" if name in places else ""
                found.append(f"    {name.ljust(width)}  {count:,}{at}")
            return [*found, ""]

        sites = {
            name: each["count"]
            for name, each in dump["hidden_host_bounce"]["by_site"].items()
            if each["count"] and name in places
        }
        lines = block("host_bounce", sites)
        lines += block("dispatch/cpu_fallback", dump["cpu_fallback_by_op"])
        if dump["cpu_fallback_reasons"]:
            why = ", ".join(f"{name} {count:,}" for name, count in dump["cpu_fallback_reasons"].items())
            lines.insert(-1, f"    why: {why}")
        lines += block("dispatch/recompile", dump["recompile_by_op"])
        if dump["cpu_fallback_by_op"] and not places:
            lines.append("  where: explain(with_stack=True) tells")
        return lines

    @staticmethod
    def _others(dump: dict[str, Any]) -> str:
        counts: Counter[str] = Counter()
        for finding in dump["loom"]["findings"]:
            if finding["kind"] not in ("fallback_op", "fallback_dtype", "host_round_trip"):
                counts[finding["kind"]] += finding["count"]
        return ", ".join(f"{count} {kind}" for kind, count in counts.most_common())

    def help(self, signal: str | None = None) -> str:
        """Return what helps: against a signal by its name, or against all that were counted.

        Raises:
            RegionError: the region is still open, or was never started.
        """
        notes = self.dump()["notes"]
        if signal is None:
            return "\n".join(f"{note['signal']}: {note['fix']}" for note in notes) or "nothing was counted"
        found = signals.REMEDIES.get(signals.cause_of(signal))
        if found is None:
            return f"there is no signal {signal!r}; there are {', '.join(signals.REMEDIES)}"
        return found

    def diff(self, other: RBLNExplain) -> RBLNDiff:
        """Return what changed from this region to another.

        Raises:
            RegionError: a region is still open, or was never started.
        """
        return RBLNDiff(self, other)

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        if self._dump is None:
            state = "open" if self._begun else "not started"
            return f"<RBLNExplain, {state} (with_stack={self._with_stack})>"
        return self.report()


def _release() -> None:
    global _open
    with _lock:
        _open = None


class RBLNDiff:
    """What changed from one region to another: what a later call costs again, and what only the first did.

    It knows the two regions alone.

    Args:
        a, b: the regions, closed.

    Raises:
        RegionError: a region is still open, or was never started.
    """

    def __init__(self, a: RBLNExplain, b: RBLNExplain) -> None:
        self._a, self._b = a.dump(), b.dump()

    def _signals(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for name, path, is_size in _COMPARED:
            own: dict[str, int] = {}
            for key, dump in (("a", self._a), ("b", self._b)):
                place = dump
                for part in path[:-1]:
                    place = place[part]
                own[key] = place[path[-1]]
                if is_size:
                    own[f"{key}_bytes"] = place[path[-1].replace("count", "bytes")]
            found[name] = own
        return found

    def dump(self) -> dict[str, Any]:
        """Return it as plain data.

        ``signals`` has the counts of both by name, with bytes where there are any; ``persists``, ``gone`` and
        ``appeared`` list the names of those that are in the second, in the first alone, in the second alone;
        ``persists_by_op`` has the ops behind the first of them.
        """
        both = self._signals()
        places = self._b["trace_by_op"]
        return {
            "signals": both,
            "persists": [name for name, each in both.items() if each["b"]],
            "gone": [name for name, each in both.items() if each["a"] and not each["b"]],
            "appeared": [name for name, each in both.items() if each["b"] and not each["a"]],
            "persists_by_op": [
                {"signal": name, "op": op, "count": count, "at": places.get(op)}
                for name in ("cpu_fallback", "recompile")
                for op, count in self._b[f"{name}_by_op"].items()
            ],
            "device_memory": {
                f"{key}_peak_bytes": dump["device_memory"]["peak_bytes"]
                for key, dump in (("a", self._a), ("b", self._b))
            },
        }

    def report(self) -> str:
        """Return it as a table."""
        dump = self.dump()
        rows = []
        for name, each in dump["signals"].items():
            mark = ">> persists" if each["b"] else "gone in B" if each["a"] else ""
            sizes = [signals.size(each[key]) if each.get(key) else "--" for key in ("a_bytes", "b_bytes")]
            rows.append([name, str(each["a"]), str(each["b"]), *sizes, mark])
        lines = ["RBLN EXPLAIN DIFF   (A -> B, the two regions and nothing else)", ""]
        lines += signals.table(("Signal", "A", "B", "A bytes", "B bytes", ""), rows, (1, 2, 3, 4))
        for each in dump["persists_by_op"]:
            at = f"  at {each['at']}" if each["at"] else ""
            lines.append(f"    {each['signal']}: {each['op']} {each['count']}{at}")
        if not dump["persists"]:
            lines.append("  nothing of A is in B")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.report()

    __repr__ = __str__


# The name of a signal, where its count is in a region's dump, and whether its bytes stand beside it.
_COMPARED: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("host_bounce", ("hidden_host_bounce", "total_count"), True),
    ("runtime/v2v_slow", ("runtime_residency", "total_count"), False),
    ("runtime/physical_d2h", ("runtime_residency", "real_host_sync_d2h", "count"), True),
    ("runtime/h2d_push", ("runtime_residency", "real_host_sync_h2d", "count"), True),
    ("cpu_fallback", ("dispatch", "cpu_fallback"), False),
    ("recompile", ("dispatch", "recompile_miss"), False),
)


def explain(with_stack: bool = False, *, trace: bool | None = None) -> RBLNExplain:
    """Return a region that counts what a part of a program cost that it did not ask for.

    Counted are data that passes through the host, ops and dtypes that are not the chip's, and graphs that are
    compiled. :func:`torch.loom.explain` finds more, and the lines of the program.

    Args:
        with_stack: name the place in the program where each op fell back first.
        trace: the older name of ``with_stack``.

    Raises:
        TypeError: ``with_stack`` is no bool.

    Example:
        >>> with torch.rbln.explain() as p:  # doctest: +SKIP
        ...     model(x)
        >>> print(p.report())  # doctest: +SKIP
    """
    return RBLNExplain(with_stack, trace=trace)


RBLNProfile = RBLNExplain
"""The name that the class had before."""
profile = explain
"""The name that :func:`explain` had before."""


def explain_steady(
    fn: Callable[[], Any],
    *,
    warmup: int = 2,
    return_cold: bool = False,
    as_diff: bool = False,
    with_stack: bool = False,
    trace: bool | None = None,
) -> RBLNExplain | tuple[RBLNExplain, RBLNExplain] | RBLNDiff:
    """Call a function several times, and look at the first and the last of the calls.

    Args:
        fn: what is called. It should not have run before, and do the same each time.
        warmup: how many calls are in between.
        return_cold: return both regions, the first one first.
        as_diff: return what changed between them.
        with_stack, trace: as in :func:`explain`.

    Returns:
        The region of the last call, unless another argument says otherwise.

    Raises:
        RegionError: another region is open. What ``fn`` raises leaves this function.
    """
    cold = _looked_at(fn, with_stack, trace)
    for _ in range(max(warmup, 0)):
        fn()
    warm = _looked_at(fn, with_stack, trace)
    if as_diff:
        return cold.diff(warm)
    return (cold, warm) if return_cold else warm


def _looked_at(fn: Callable[[], Any], with_stack: bool, trace: bool | None) -> RBLNExplain:
    with explain(with_stack, trace=trace) as region:
        fn()
    return region
