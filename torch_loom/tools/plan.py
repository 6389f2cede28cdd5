"""`loom plan`: run a training script in a dry run, and say what it would need on a chip.

The command starts another Python, in which this file is the program: its devices are CUDA's, unless the
script names them by their own name, and the script runs within :class:`torch.loom.dry_run` until it has made
so many steps, of an optimizer or by hand.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import signal
import statistics
import sys
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

OPTIONS = "TORCH_LOOM_PLAN_OPTIONS"
# Points of a plot: more cannot be seen.
MAX_POINTS = 600
MAX_READS = 1000  # of a line: a loop that waits for a value would never end
MAX_SPANS = 4000
TOP_OPS = 10


def run(script: Sequence[str], options: dict[str, Any]) -> None:
    """Replace this process by a process that plans the script.

    Args:
        script: the file and its arguments.
        options: ``chip``, ``default_chip``, ``devices``, ``memory``, ``world_size``, ``rank``,
            ``topology``, ``steps``, ``json`` and ``html`` of the command.

    Raises:
        ConfigurationError: a value is bad.
    """
    from torch_loom import config
    from torch_loom.config.settings import DEVICE_NAME
    from torch_loom.tools import console

    if script[0].startswith("-"):
        if script[0] == "-m":
            console.fail("loom plan takes a script: instead of -m MODULE, give the file that starts it")
        console.fail(f"loom plan has no option {script[0]}; `loom plan --help` lists them")
    console.check_folders(options["json"], options["html"])
    path = Path(script[0])
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        console.fail(f"{path}: the script cannot be read: {error.strerror or error}", 2)
    # Both names of the devices are understood. The first guess is the one that the program names alone.
    named = text + " ".join(script[1:])
    names_own = re.search(rf"['\". ]{DEVICE_NAME.default}\b", named) is not None
    if not names_own or "cuda" in named:
        config.export({"device_name": config.CUDA_NAME})
    placed = _placed(options)
    if placed["device"] > 0:
        # What the script leaves behind is destroyed after the dry run, and looks for the rank's device.
        config.export({"devices": str(placed["device"] + 1)})
    _replace_process(script, {**os.environ, OPTIONS: json.dumps(placed)})


def _replace_process(script: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "torch_loom.tools.plan", *script], environment)


def _names_own_devices(error: BaseException) -> bool:
    """Return whether a script failed as CUDA's because it names the devices by their own name."""
    from torch_loom import config
    from torch_loom.config.settings import DEVICE_NAME
    from torch_loom.errors import LoomError

    if isinstance(error, LoomError) or config.device_name() != config.CUDA_NAME:
        return False
    own = re.escape(str(DEVICE_NAME.default))
    # PyTorch's and Python's sentences alone: texts with both words may mean another thing, as a path does.
    if isinstance(error, AttributeError):
        sentence = rf"^(module|type object|'\w+' object).* has no attribute '(is_)?{own}'"
    else:
        sentence = rf"\bExpected one of .* device type at start of device string: {own}$"
    return re.search(sentence, str(error), re.MULTILINE) is not None


def _placed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the chip, how many ranks a node has, and the device that the rank is on."""
    from torch_loom.chips import topologies
    from torch_loom.errors import ConfigurationError

    size, rank = options["world_size"], options["rank"]
    if size is None and (rank != 0 or options["topology"] is not None):
        raise ConfigurationError("--rank and --topology are those of a process group: give its --world-size")
    if size is not None and rank >= size:
        raise ConfigurationError(
            f"--rank {rank} is not one of --world-size {size}: allowed are 0 to {size - 1}"
        )
    cluster = None if options["topology"] is None else topologies.load(options["topology"])
    chip = options["chip"] or (options["default_chip"] if cluster is None else cluster.chip)
    cluster = cluster or topologies.default_of(chip)
    local_size = min(size or 1, 64 if cluster is None else cluster.devices_per_node)
    device = rank % local_size
    devices = max(options["devices"], device + 1)
    return {**options, "chip": chip, "local_size": local_size, "device": device, "devices": devices}


@contextmanager
def _group(plan: Any, options: Mapping[str, Any]) -> Iterator[None]:
    """Make the planned process group in place of the script's, if there is to be one."""
    if options["world_size"] is None:
        yield
        return
    from torch_loom.distributed import cluster
    from torch_loom.distributed.ranks import as_rank

    importlib.import_module("torch_loom.device").set_device(options["device"])
    with (
        cluster.using(options["topology"]),
        as_rank(plan, options["rank"], options["world_size"], options["local_size"]),
    ):
        yield


class _EnoughStepsError(BaseException):
    """The script has made its steps: nothing that it catches."""


def _main(script: Sequence[str], options: dict[str, Any]) -> int:
    import torch

    from torch_loom import config
    from torch_loom.config.settings import DEVICE_NAME
    from torch_loom.tools import console
    from torch_loom.tools.plan_page import page

    steps = int(options["steps"])
    made = 0

    def count() -> None:
        nonlocal made
        made += 1
        if made >= steps:
            raise _EnoughStepsError

    # The hooks are the plan's own.
    warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
    sys.argv = list(script)
    sys.path.insert(0, str(Path(script[0]).resolve().parent))
    module = importlib.import_module("torch_loom.device")
    failure: BaseException | None = None
    plan = None
    try:
        with module.dry_run(
            chip=options["chip"], devices=options["devices"], memory=options["memory"]
        ) as plan:
            plan._call_after_steps(count)
            plan._limit_reads(MAX_READS)
            try:
                with _group(plan, options):
                    runpy.run_path(script[0], run_name="__main__")
            except (_EnoughStepsError, torch.OutOfMemoryError) as error:
                failure = error
                if isinstance(error, torch.OutOfMemoryError):
                    plan.out_of_memory = str(error)
            except SystemExit as ended:
                if ended.code not in (None, 0):
                    return _report_early_end(script[0], ended, plan)
            except KeyboardInterrupt as stopped:
                sys.stderr.write(_script_traceback(stopped))
                return 128 + signal.SIGINT
            except Exception as error:
                if _names_own_devices(error):
                    restarted = {**os.environ, DEVICE_NAME.env: str(DEVICE_NAME.default)}
                    _replace_process(script, {**restarted, OPTIONS: json.dumps(options)})
                hint = _group_hint(error, options) + _reads_hint(plan)
                sys.stderr.write(_script_traceback(error) + hint)
                return 1
    except Exception as error:
        if plan is None:
            console.fail(error)
        raise
    del failure
    found = summary(plan, script, str(options["chip"]), steps, options["device"])
    if not found["out_of_memory"] and _is_empty(found):
        console.fail(
            f"{script[0]} ran nothing on a device, so there is no plan: have it put its model and its data on"
            f" the device, as {config.CUDA_NAME} or {DEVICE_NAME.default}"
        )
    _show(found)
    for key, content in (("json", json.dumps(found, indent=1) + "\n"), ("html", page(found))):
        if options[key]:
            try:
                Path(options[key]).write_text(content, encoding="utf-8")
            except OSError as error:
                console.fail(f"{options[key]}: cannot be written: {error}")
            console.out.print(f"{key}: {options[key]}", highlight=False)
    return 3 if found["out_of_memory"] else 0


def _report_early_end(path: str, ended: SystemExit, plan: Any) -> int:
    """Say, as Python does, what the script ended with, and why that may be; return its status."""
    status = ended.code if isinstance(ended.code, int) else 1
    if not isinstance(ended.code, int):
        sys.stderr.write(f"{ended.code}\n")
    sys.stderr.write(f"{path} ended with status {status}, so there is no plan\n{_reads_hint(plan)}")
    return status


def _group_hint(error: BaseException, options: Mapping[str, Any]) -> str:
    """Return a line for a script that looks for the process group that torchrun makes; "" for others."""
    if options["world_size"] is not None:
        return ""
    names = "RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT"
    if isinstance(error, KeyError):
        is_missing = re.fullmatch(f"'({names})'", str(error))
    else:
        is_missing = re.search(rf"environment variable ({names}) expected, but not set", str(error))
    if is_missing is None:
        return ""
    return (
        "The script expects a process group: `loom plan --world-size N` plans one of its N ranks; "
        "`loom run torchrun` runs all of them.\n"
    )


def _is_empty(found: Mapping[str, Any]) -> bool:
    """Return whether the script did nothing on a device."""
    has_run = found["ops"] or found["setup"]["calls"]
    return not has_run and not any(device["peak_memory_bytes"] for device in found["devices"])


def _reads_hint(plan: Any) -> str:
    """Return a line about the values that the script read, on which it may have ended; "" if it read none."""
    from torch_loom.tools.plan_text import values_text

    reads = _short_reads(plan)
    return f"Perhaps the reason: {values_text(reads)}.\n" if reads else ""


def _script_traceback(error: BaseException) -> str:
    """Return the traceback of what a script raised, without the frames that run it."""
    found = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()
    pending: list[traceback.TracebackException | None] = [found]
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        own = _without_runner(each.stack)
        each.stack = traceback.StackSummary.from_list(own)
        pending += [each.__cause__, each.__context__]
    return "".join(found.format())


def _without_runner(frames: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    package = str(Path(__file__).resolve().parents[1]) + os.sep
    runner = ("<frozen runpy>", runpy.__file__)
    return [
        frame
        for frame in frames
        if frame.filename not in runner and not os.path.abspath(frame.filename).startswith(package)
    ]


def summary(
    plan: Any, script: Sequence[str], chip: str, num_steps: int, first_device: int = 0
) -> dict[str, Any]:
    """Return a plan of a script with its arguments, which was to make so many steps, as JSON takes it.

    Memory is in bytes, time in seconds. Devices below the first are those of other ranks.
    """
    from torch_loom.chips import uncertainty

    devices = []
    for index in range(first_device, plan.num_devices):
        points = _thinned(list(plan.memory_over_time(index)))
        devices.append(
            {
                "capacity_bytes": plan.capacity_bytes(index),
                "peak_memory_bytes": plan.peak_memory_bytes(index),
                "peak_reserved_bytes": plan.peak_reserved_bytes(index),
                "memory_by_category": plan.memory_by_category(index),
                # Where the peak was in the setup.
                "step_memory_by_category": plan.step_memory_by_category(index),
                "peak_stack": [
                    [_short(file), line, function]
                    for file, line, function in _own_frames(plan.peak_stack(index))
                ],
                "utilisation": plan.utilisation(index),
                "memory_over_time": [{"seconds": each.seconds, **each.bytes} for each in points],
            }
        )
    setup = plan.setup_ops()
    reads = _short_reads(plan)
    # A 0 may have ended the script: what later steps take, as an optimizer's state, is missing then.
    made = len(plan.step_seconds)
    is_cut = bool(reads) and plan.is_training and plan.out_of_memory is None and made < num_steps
    spans: list[list[Any]] = []
    for span in plan.spans():
        if len(spans) >= MAX_SPANS:
            break
        spans.append([span.name, span.family, span.device, span.stream, span.began, span.ended])
    by_family: dict[str, float] = defaultdict(float)
    forwards = plan.forward_seconds if len(plan.forward_seconds) > 1 else ()
    for op in plan.step_ops() if made or forwards else plan.ops():
        by_family[op.family] += op.seconds
    forecast = plan.step_seconds[-1] if made else statistics.median(forwards) if forwards else plan.seconds
    interval = {"share": uncertainty.SHARE, **uncertainty.of_step(forecast, by_family)._asdict()}
    return {
        "script": script[0],
        "arguments": list(script[1:]),
        "model": plan.model,
        "chip": chip,
        "seconds": plan.seconds,
        "step_seconds": list(plan.step_seconds),
        # In which a device ran something.
        "step_busy_seconds": list(plan.step_busy_seconds),
        # From each call of the model to the next, of programs that do not train.
        "forward_seconds": list(forwards),
        # Of the last step, else of the median forward, else of all; null if what ran is no whole.
        "interval": None if (is_cut and not made) or plan.out_of_memory else interval,
        "seconds_by_family": plan.seconds_by_family(),
        # While nothing else ran.
        "exposed_seconds": plan.exposed_seconds(first_device),
        "collectives": [each._asdict() for each in plan.collectives()],
        "setup": {
            "seconds": plan.setup_seconds,
            "calls": sum(op.calls for op in setup),
            "device_seconds": sum(op.seconds for op in setup),
        },
        "ops": [list(op) for op in plan.step_ops()[:TOP_OPS]],
        "out_of_memory": plan.out_of_memory,
        "batch_factor": None if is_cut or plan.out_of_memory else plan.batch_factor(),
        "is_cut_short": is_cut,
        "value_reads": reads,
        "unwritten_files": plan.unwritten_files,
        "devices": devices,
        "first_device": first_device,
        "spans": spans,
    }


def _own_frames(frames: Sequence[Any]) -> list[Any]:
    """Return the lines of the program: not those of this package, and of PyTorch only the innermost."""
    here = (str(Path(__file__).resolve().parents[1]) + os.sep, "runpy.py", "<frozen")
    kept = [each for each in frames if not any(part in each.file for part in here)]
    library = f"{os.sep}torch{os.sep}"
    return [each for place, each in enumerate(kept) if place == 0 or library not in each.file][:8]


def _short(file: str) -> str:
    """Return a path as a reader knows it: a package's from its name on, the program's from here."""
    packaged = file.rpartition(f"site-packages{os.sep}")[2]
    here = os.getcwd() + os.sep
    return packaged.removeprefix(here)


def _short_reads(plan: Any) -> dict[str, int]:
    found = {}
    for line, count in plan.value_reads().items():
        file, colon, number = line.rpartition(":")
        found[_short(file) + colon + number] = count
    return found


def _thinned(points: list[Any]) -> list[Any]:
    """Return at most MAX_POINTS of the points: of those that stand together, the highest."""
    if len(points) <= MAX_POINTS:
        return points
    step = len(points) / MAX_POINTS
    groups = (points[int(place * step) : int((place + 1) * step)] for place in range(MAX_POINTS))
    return [max(group, key=lambda each: sum(each.bytes.values())) for group in groups if group]


def _show(found: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Column, Table

    from torch_loom.image.report import duration
    from torch_loom.tools import console
    from torch_loom.tools.plan_text import (
        batch_text,
        busy_text,
        collectives_text,
        headline_text,
        interval_text,
        reads_text,
        size_text,
    )

    print_ = console.out.print
    model = f" ({escape(found['model'])})" if found["model"] else ""
    print_(f"[bold]{escape(found['script'])}[/bold]{model} on {found['chip']}: {headline_text(found)}")
    if ended := found["out_of_memory"]:
        print_(f"[bold red]out of memory:[/bold red] {escape(ended)}", highlight=False)
    if text := busy_text(found):
        print_(text, highlight=False)
    if text := interval_text(found):
        print_(text, style="dim", highlight=False)
    setup = found["setup"]
    busy = "busy, whole program"
    table = Table("device", "peak", "held", "of", busy, title="memory and use", title_justify="left")
    first = found["first_device"]
    for number, device in enumerate(found["devices"], first):
        table.add_row(
            str(number),
            size_text(device["peak_memory_bytes"]),
            size_text(device["peak_reserved_bytes"]),
            size_text(device["capacity_bytes"]),
            f"{device['utilisation']:.0%}",
        )
    print_(table)
    categories = found["devices"][0]["memory_by_category"]
    in_steps = found["devices"][0]["step_memory_by_category"]
    if in_steps is None:
        table = Table(f"memory at the peak of device {first}", "size")
    else:
        table = Table(f"memory of device {first}", "peak, in the setup", "peak after it")
    for name, size in categories.items():
        after = size_text(in_steps[name]) if in_steps and name in in_steps else None
        table.add_row(name, size_text(size), *([] if in_steps is None else [after]))
    print_(table)
    if found["collectives"]:
        print_(collectives_text(found), highlight=False)
    # A name that does not fit goes on in the next line: two ops may differ in their ends alone.
    table = Table(Column("op", overflow="fold"), "family", "calls", "time")
    if setup["calls"]:
        table.add_row("setup", "before the steps", str(setup["calls"]), duration(setup["device_seconds"]))
        table.add_section()
    for name, family, calls, seconds in found["ops"]:
        table.add_row(name, family, str(calls), duration(seconds))
    print_(table)
    if stack := found["devices"][0]["peak_stack"]:
        print_("most memory was in use here:")
        for file, line, function in stack[:4]:
            print_(f"  {file}:{line} {function}", highlight=False)
    if text := reads_text(found):
        print_(f"[bold yellow]note:[/bold yellow] {escape(text)}", highlight=False)
    if found["unwritten_files"]:
        paths = ", ".join(found["unwritten_files"][:3]) + (", …" if len(found["unwritten_files"]) > 3 else "")
        print_(f"not written, since a plan has no values: {escape(paths)}", highlight=False)
    if text := batch_text(found):
        print_(text, highlight=False)


if __name__ == "__main__":
    try:
        sys.exit(_main(sys.argv[1:], json.loads(os.environ.pop(OPTIONS))))
    except KeyboardInterrupt:  # before the script began, or after it ended
        sys.exit(128 + signal.SIGINT)
