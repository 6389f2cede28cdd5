"""Files of tensors that a dry run would write: kept aside, so that no good file is replaced by zeros.

``torch.save`` and ``safetensors.torch.save_file`` leave the file that they are given as it is. What they
would write goes to a folder that ends with the dry run, tensors' bytes as holes; loading the same path finds
it there, as do ``open`` and the functions of ``os`` that move, remove and examine files. Python has no
extension point for these: they are replaced while there is such a file, and only in the threads that save
files of tensors or entered the dry run do they differ.
"""

from __future__ import annotations

import builtins
import functools
import json
import os
import shutil
import sys
import tempfile
import threading
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch

from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device.plan.host import LEAST_BYTES, CostlessHost
from torch_loom.patches.declared import DRY_RUNS

# What a file of safetensors begins with: the length of its header.
_LENGTH_BYTES = 8
# Functions of os that are given such a path, to look at what was saved. shutil.copy calls most of them.
_EXAMINING = ("stat", "lstat", "access", "chmod", "utime", "listxattr")
# As many symbolic links in a path as Linux follows.
_MOST_LINKS = 40
_LIBRARIES = ("torch.", "torch_loom.", "safetensors.", "contextlib", "shutil")


class KeptFiles:
    """From :meth:`start` to :meth:`stop` files of tensors are kept aside.

    Attributes:
        paths: those that were not written, in the order in which they were first given.
    """

    def __init__(self, host: CostlessHost) -> None:
        self._host = host
        self._folder: str | None = None
        self._number = 0
        self._kept: dict[str, str] = {}
        self._lstat = os.lstat
        self._replaced: list[tuple[Any, str, Any]] = []
        self._here = threading.local()
        self._outside: WeakSet[threading.Thread] = WeakSet()
        self.paths: list[str] = []

    def start(self) -> None:
        """Begin to keep files aside: those of this thread and of threads that start from now on."""
        global _current
        _current = self
        self._here.is_redirected = True
        self._outside = WeakSet(
            each for each in threading.enumerate() if each is not threading.current_thread()
        )
        self._replace(torch.storage._StorageBase, "cpu", self._storage_on_host)
        self._replace(torch.serialization, "_open_zipfile_writer", self._open_writer)
        self._replace(torch.serialization, "_open_file_like", self._open_file)
        load = self._within(torch.load, self._load(torch.load))
        self._replace(torch.serialization, "load", lambda _: load)
        try:
            import safetensors
            import safetensors.torch as safe
        except ImportError:
            return
        self._replace(safe, "serialize_file", self._serializing)
        self._replace(safetensors, "safe_open", self._opening)

    def _redirect(self) -> None:
        """Have this thread find what is kept by way of ``open`` and ``os``."""
        self._here.is_redirected = True
        if self._folder is not None:
            return
        for name in ("replace", "rename"):
            self._replace(os, name, self._moving)
        for name in ("remove", "unlink"):
            self._replace(os, name, self._removing)
        for name in _EXAMINING:
            self._replace(os, name, self._examining)
        self._replace(os, "rmdir", self._removing_folder)
        self._replace(shutil, "copyfile", self._copying)
        self._replace(builtins, "open", self._opening_file)

    def stop(self) -> None:
        """Restore what was there before, and forget what was kept."""
        global _current
        _current = None
        while self._replaced:
            owner, name, original = self._replaced.pop()
            for functions in _supporting(getattr(owner, name)):
                functions.discard(getattr(owner, name))
            DRY_RUNS.restore([(owner, name, original)])
        # What a module has imported meanwhile still asks.
        self._kept.clear()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        is_of_system = owner in (os, shutil, builtins)
        replacement = (self._redirected if is_of_system else self._within)(original, make(original))
        for functions in _supporting(original):
            functions.add(replacement)
        for each in [owner, *_importers(owner, name, original)]:
            self._replaced += DRY_RUNS.put(each, **{name: replacement})

    def _redirected(self, original: Any, replacement: Any) -> Any:
        """Return a function that other threads find as it was."""

        @functools.wraps(original)
        def chosen(*args: Any, **kwargs: Any) -> Any:
            is_redirected = getattr(self._here, "is_redirected", False)
            return (replacement if is_redirected else original)(*args, **kwargs)

        return chosen

    def _within(self, original: Any, replacement: Any) -> Any:
        """Return a function that threads find as it was which are not of the dry run."""

        @functools.wraps(original)
        def chosen(*args: Any, **kwargs: Any) -> Any:
            return (original if self.is_outside() else replacement)(*args, **kwargs)

        return chosen

    def is_outside(self) -> bool:
        """Return whether the current thread was there before the dry run began, and did not begin it."""
        return threading.current_thread() in self._outside

    def _withhold(self, path: str | os.PathLike[str]) -> str:
        """Return where the content of a path goes instead."""
        self._redirect()
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="loom-dry-run-")
        # A new file each time: what was loaded from an earlier file may still be mapped.
        self._number += 1
        kept = os.path.join(self._folder, str(self._number) + os.path.splitext(os.fspath(path))[1])
        self._keep(path, kept)
        return kept

    def _keep(self, path: str | os.PathLike[str], kept: str) -> None:
        self._kept[self._key(path)] = kept
        text = os.fspath(path)
        if text in self.paths:
            return
        if not self.paths:
            warnings.warn(
                f"{text}: a dry run writes no files of tensors, whose values do not exist. The path is left "
                "as it is (unless open() emptied it), and loading it before the dry run ends gives what was "
                "saved, with zeros for values. plan.unwritten_files lists all such paths.",
                stacklevel=_program_level(),
            )
        self.paths.append(text)

    def _found(self, path: Any) -> Any:
        """Return where a path's content is: the path itself if nothing was kept for it."""
        if not self._kept or not _is_path(path):
            return path
        return self._kept.get(self._key(path), path)

    def _key(self, path: str | os.PathLike[str]) -> str:
        """Return the path under which a file is kept: that of the file which a symbolic link names."""
        given = _absolute(path)
        return given if given in self._kept else _resolved(given)

    def _cannot_be_written(self, path: str | os.PathLike[str]) -> bool:
        """Return whether writing a path fails: then it is tried, for its error."""
        target = self._key(path)
        return os.path.isdir(target) or not os.access(os.path.dirname(target), os.W_OK)

    def _path_of(self, target: Any) -> Any:
        """Return the path of a path or an open file; None of what is in memory, has no name, or is kept."""
        if not _is_path(target):
            try:
                target.fileno()
            except (AttributeError, OSError):
                return None
            target = getattr(target, "name", None)
            if not isinstance(target, str):
                return None
        is_kept = self._folder is not None and os.path.dirname(_absolute(target)) == self._folder
        return None if is_kept else target

    def _target_of(self, target: Any) -> Any:
        """Return the path of what is written, as :meth:`_path_of`; None also of one that cannot be."""
        path = self._path_of(target)
        return None if path is not None and _is_path(target) and self._cannot_be_written(path) else path

    # torch.save and torch.load

    def _storage_on_host(self, original: Any) -> Any:
        def cpu(storage: Any) -> Any:
            if storage.device.type != DEVICE_TYPE:
                return original(storage)
            return self._host.storage(storage.nbytes())

        return cpu

    def _open_writer(self, original: Any) -> Any:
        @contextmanager
        def open_writer(target: Any) -> Iterator[Any]:
            path = self._target_of(target)
            with original(target if path is None else self._withhold(path)) as writer:
                yield writer if path is None else _HoleWriter(writer, self._host)

        return open_writer

    def _open_file(self, original: Any) -> Any:
        def open_file(target: Any, mode: str) -> Any:
            if "w" not in mode:
                return original(self._found(target), mode)
            path = self._target_of(target)
            return original(target if path is None else self._withhold(path), mode)

        return open_file

    def _load(self, original: Any) -> Any:
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            path = self._path_of(f)
            found = self._found(path)
            if found is path:
                return original(f, *args, **kwargs)
            if kwargs.get("mmap") is None and zipfile.is_zipfile(found):
                kwargs["mmap"] = True  # holes then take no memory
            return original(found, *args, **kwargs)

        return load

    # os and shutil

    def _moving(self, original: Any) -> Any:
        def move(src: Any, dst: Any, **kwargs: Any) -> None:
            if not (_is_path(src) and _is_path(dst)) or _is_relative(kwargs):
                original(src, dst, **kwargs)
                return
            kept = self._kept.pop(_entry(src), None)
            if kept is not None:
                self._keep(dst, kept)
                return
            original(src, dst, **kwargs)
            self._kept.pop(_entry(dst), None)
            inside = _entry(src) + os.sep
            for path in [each for each in self._kept if each.startswith(inside)]:
                self._keep(os.path.join(_entry(dst), path[len(inside) :]), self._kept.pop(path))

        return move

    def _removing(self, original: Any) -> Any:
        def remove(path: Any, **kwargs: Any) -> None:
            is_named = _is_path(path) and not _is_relative(kwargs)
            kept = self._kept.pop(_entry(path), None) if is_named and self._kept else None
            original(path if kept is None else kept, **kwargs)

        return remove

    def _removing_folder(self, original: Any) -> Any:
        def rmdir(path: Any, **kwargs: Any) -> None:
            original(path, **kwargs)
            if _is_path(path) and not _is_relative(kwargs):
                inside = _entry(path) + os.sep
                for each in [each for each in self._kept if each.startswith(inside)]:
                    del self._kept[each]

        return rmdir

    def _opening_file(self, original: Any) -> Any:
        def open_(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            if self._kept and _is_path(file) and isinstance(mode, str):
                if "w" in mode or "x" in mode:
                    opened = original(file, mode, *args, **kwargs)
                    self._kept.pop(self._key(file), None)
                    return opened
                file = self._found(file)
            return original(file, mode, *args, **kwargs)

        return open_

    def _examining(self, original: Any) -> Any:
        is_of_links = original is self._lstat

        def examine(path: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._kept or not _is_path(path) or _is_relative(kwargs):
                return original(path, *args, **kwargs)
            key = _entry(path) if is_of_links else self._key(path)
            return original(self._kept.get(key, path), *args, **kwargs)

        return examine

    def _copying(self, original: Any) -> Any:
        def copyfile(src: Any, dst: Any, **kwargs: Any) -> Any:
            found = self._found(src)
            if found is src or self._cannot_be_written(dst):
                return original(found, dst, **kwargs)
            os.link(found, self._withhold(dst))
            return dst

        return copyfile

    @contextmanager
    def stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        """Open a file of a checkpoint: where it is kept."""
        with open(self._found(path) if "r" in mode else self._withhold(path), mode) as file:
            yield file

    def forget(self, path: str | os.PathLike[str]) -> None:
        """Remove what was kept for a path, if anything was."""
        self._kept.pop(_entry(path), None)

    # safetensors

    def _serializing(self, original: Any) -> Any:
        def serialize_file(tensors: Any, filename: Any, metadata: Any = None) -> None:
            if self._cannot_be_written(filename):
                original(tensors, filename, metadata)
                return
            header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
            end = 0
            for name, spec in tensors.items():
                begin, end = end, end + spec.data_len
                header[name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": [begin, end]}
            text = json.dumps(header).encode()
            with open(self._withhold(filename), "wb") as file:
                file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
                file.truncate(_LENGTH_BYTES + len(text) + end)

        return serialize_file

    def _opening(self, original: Any) -> Any:
        return lambda filename, *args, **kwargs: original(self._found(filename), *args, **kwargs)


# That of the dry run that is under way.
_current: KeptFiles | None = None


def watch_checkpoints() -> None:
    """Let dry runs keep aside what ``torch.distributed.checkpoint`` writes; call it when that is imported."""
    from torch.distributed.checkpoint.filesystem import FileSystem

    create, remove = FileSystem.create_stream, FileSystem.rm_file

    @functools.wraps(create)
    def create_stream(self: Any, path: str | os.PathLike[str], mode: str) -> Any:
        if _current is None or _current.is_outside():
            return create(self, path, mode)
        return _current.stream(path, mode)

    @functools.wraps(remove)
    def rm_file(self: Any, path: str | os.PathLike[str]) -> None:
        if _current is None or _current.is_outside():
            remove(self, path)
        else:
            _current.forget(path)

    DRY_RUNS.put(FileSystem, create_stream=create_stream, rm_file=rm_file)


class _HoleWriter:
    """Writes the records of a file; a storage that has only zeros becomes a hole."""

    def __init__(self, writer: Any, host: CostlessHost) -> None:
        self._writer = writer
        self._host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def write_record(self, name: str, content: Any, size_bytes: int) -> None:
        if isinstance(content, torch.UntypedStorage) and self._is_zero(content):
            self._writer.write_record_metadata(name, size_bytes)
        else:
            self._writer.write_record(name, content, size_bytes)

    def _is_zero(self, storage: torch.UntypedStorage) -> bool:
        if storage.nbytes() < LEAST_BYTES:
            return False
        if self._host.has_made(storage):
            return True
        return not torch.empty(0, dtype=torch.uint8).set_(storage).any()


def _is_path(target: object) -> bool:
    return isinstance(target, (str, os.PathLike))


def _supporting(function: Any) -> list[set[Any]]:
    """Return the sets of ``os`` that have a function, by which programs learn what arguments it takes."""
    sets = (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks, os.supports_effective_ids)
    return [functions for functions in sets if function in functions]


def _is_relative(kwargs: dict[str, Any]) -> bool:
    """Whether a path of a call of os is one within an open folder."""
    return any(kwargs.get(name) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd"))


def _resolved(path: str) -> str:
    """Return an absolute path without symbolic links."""
    # os.path.realpath calls os.lstat, which is replaced.
    for _ in range(_MOST_LINKS):
        parts = path.split(os.sep)
        for end in range(2, len(parts) + 1):
            link = os.sep.join(parts[:end])
            try:
                target = os.readlink(link)
            except OSError:
                continue
            path = os.path.normpath(os.path.join(os.path.dirname(link), target, *parts[end:]))
            break
        else:
            return path
    return path


def _importers(owner: Any, name: str, value: Any) -> list[Any]:
    """Return the modules that have imported a function, as by ``from safetensors import safe_open``."""
    if not isinstance(owner, types.ModuleType):
        return []
    modules = [module for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)]
    return [module for module in modules if module is not owner and module.__dict__.get(name) is value]


def _entry(path: str | os.PathLike[str]) -> str:
    """Return the path of what a folder has by this name: of a symbolic link, the link itself."""
    folder, name = os.path.split(_absolute(path))
    return os.path.join(_resolved(folder), name)


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(os.fspath(path))


def _program_level() -> int:
    """Return the ``stacklevel`` of the program in the caller: the first frame that is no library's."""
    frame = sys._getframe(1)
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_LIBRARIES):
        frame = frame.f_back
        level += 1
    return level
