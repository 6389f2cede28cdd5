"""Compiled models on disk, so that a second compilation of the same is a matter of reading a file.

An entry has program and plan, but no parameters: those are the module's. One for runs has no plan. It is an
image, so it is whole or not there at all, and its checksum says whether it is damaged. Several
processes may use one folder.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torch_loom import config
from torch_loom.compiler import overrides
from torch_loom.compiler.fingerprint import fingerprint
from torch_loom.compiler.frontend import folded_of, live_sources, state_of
from torch_loom.compiler.ir import placed
from torch_loom.compiler.options import Options
from torch_loom.compiler.predicates import Predicate
from torch_loom.compiler.target import Target
from torch_loom.errors import ImageError
from torch_loom.image import file
from torch_loom.image.executable import Executable
from torch_loom.image.program import Program

log = logging.getLogger("torch_loom.compiler")

MAX_BYTES = 512 << 20
"""What the entries of a folder may take; the least recently used go first."""
ABANDONED_SECONDS = 3600
"""A file that is written for longer than this has no writer any more."""
_SUFFIX = ".loomc"
# Options that say where something is written, and not what is compiled.
_WRITES = (
    "backend_output_dir",
    "performance_trace",
    "store_backend_db_to_yaml",
    "backend_runtime_params_path",
)


class Entry:
    """The place of one compiled model in the cache.

    Args:
        path: its file, which may not be there.
        module: whose parameters it has.
        device: where it runs.
        plans_later: whether entries have no plan.
    """

    def __init__(
        self, path: Path, module: nn.Module, device: torch.device, *, plans_later: bool = False
    ) -> None:
        self.path = path
        self._module = module
        self._device = device
        self._plans_later = plans_later

    def load(self, plan: Callable[[], dict[str, Any]] | None = None) -> Executable | None:
        """Return what was compiled earlier; None: nothing, or nothing that is whole. What is damaged goes.

        Args:
            plan: makes the plan at the first call for it, where the entry has none.
        """
        if not self.path.exists():
            return None
        try:
            body, constants = file.read(self.path)
            own = state_of(self._module)
            values = {name: placed(own[source], self._device) for name, source in body["sources"].items()}
            values |= {name: tensor.to(self._device) for name, tensor in constants.items()}
            folded = Program.from_json(body["folded"])
            with torch.no_grad():
                results = folded.bind({name: values[name] for name in folded.tensors}, self._device)()
            values.update(zip(body["folded_names"], results, strict=True))
            program = Program.from_json(body["program"])
            used = {name: values[name] for name in program.tensors}
            again = folded_of(
                self._module, self._device, body["sources"], values, folded, body["folded_names"]
            )
            executable = Executable(
                program,
                used,
                plan if self._plans_later and plan is not None else body["plan"],
                body["specs"],
                self._device,
                replays=body["replays"],
                folded=again,
                sources=live_sources(body["sources"], folded, again),
            )
            os.utime(self.path)
            return executable
        except (ImageError, KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
            # The text alone: a kept log record would keep alive the tensors of the frames that raised.
            log.warning("a compiled model in the cache is dropped, and compiled anew: %s", str(error))
            self.path.unlink(missing_ok=True)
            return None

    def store(
        self,
        executable: Executable,
        sources: Mapping[str, str],
        parameters: Mapping[str, torch.Tensor],
        folded: tuple[Program, list[str]],
    ) -> None:
        """Keep what was compiled; a folder that cannot be written is logged, and no error.

        Args:
            sources: names in the module, by placeholder.
            parameters: values by placeholder, with those that ``folded`` makes.
            folded: what computes parts of parameters alone, and the names of its results.
        """
        program, names = folded
        needed = {*executable.program.tensors, *program.tensors} - {*names}
        body = {
            "program": executable.program.to_json(),
            "plan": None if self._plans_later else executable.plan,
            "specs": executable.specs,
            "replays": executable.replays,
            "sources": {name: sources[name] for name in sorted(needed & sources.keys())},
            "folded": program.to_json(),
            "folded_names": names,
        }
        constants = {name: parameters[name].cpu() for name in sorted(needed - sources.keys())}
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write(self.path, body, constants)
            _prune(self.path.parent)
        except (OSError, ImageError) as error:
            log.warning("the compiled model cannot be kept in the cache: %s", error)


def entry_for(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Options,
    target: Target,
    device: torch.device,
    folder: Path,
    *,
    plans_later: bool = False,
) -> Entry | None:
    """Return the place of a model in the cache; None where what it computes cannot be known beforehand.

    Args:
        plans_later: whether its program is one for runs, whose plan is not kept.
    """
    graph = fingerprint(module, args, kwargs)
    if not graph or not _are_whole(overrides.current()):
        log.info("not cached: what the module computes, or what a predicate asks, cannot be told beforehand")
        return None
    asked = {name: value for name, value in vars(options).items() if name not in _WRITES}
    whole = {
        "graph": graph,
        "options": asked,
        "overrides": _told(overrides.current()),
        "chip": {name: str(value) for name, value in vars(target.chip).items()},
        "target": {
            name: str(value) for name, value in vars(target).items() if name not in ("chip", "_models")
        },
        "device": str(device),
        "plans_later": plans_later,
        "version": [str(torch.__version__), str(file.VERSION), _sources_digest()],
    }
    text = json.dumps(whole, sort_keys=True, default=str)
    path = folder / (hashlib.sha256(text.encode()).hexdigest() + _SUFFIX)
    return Entry(path, module, device, plans_later=plans_later)


def _told(given: overrides.Overrides) -> dict[str, Any]:
    return {name: _as_text(value) for name, value in vars(given).items()}


def _as_text(value: Any) -> Any:
    if isinstance(value, set):
        return sorted(value)
    # A function's own text has its address.
    return f"{value.__module__}.{value.__qualname__}" if inspect.isfunction(value) else value


def _are_whole(given: overrides.Overrides) -> bool:
    """Whether the texts of all predicates say what they ask."""
    asked = [*given.epoch_breaks, *given.chip_breaks, *(predicate for predicate, _ in given.precisions)]
    return all(each.is_whole for each in asked if isinstance(each, Predicate))


@functools.cache
def _sources_digest() -> str:
    """What this package's sources and figures are: another state of them compiles otherwise."""
    root = Path(config.__file__).parents[1]
    digest = hashlib.sha256()
    for part in ("compiler", "image", "ops", "chips", "numerics"):
        for path in sorted((*(root / part).rglob("*.py"), *(root / part).glob("*.json"))):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _prune(folder: Path) -> None:
    entries = []
    for left in folder.glob(f".*{_SUFFIX}.*"):
        # What a process that was killed was writing.
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
                left.unlink()
    for path in folder.glob(f"*{_SUFFIX}"):
        try:
            state = path.stat()
        except OSError:  # another process has dropped it
            continue
        entries.append((state.st_mtime_ns, state.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= MAX_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= size
