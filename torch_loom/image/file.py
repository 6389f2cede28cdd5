"""Images on disk: a file of safetensors; its header has program and plan as JSON, version and checksum."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from torch_loom.config import files
from torch_loom.errors import ImageError

VERSION = 2
"""1 had constants in place of the parameters that they are made of, and is read, too."""
_KIND = "torch-loom image"


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], what: str) -> Iterator[Path]:
    """As :func:`torch_loom.config.files.whole_file`; ``what`` is what a message calls it.

    Raises:
        ImageError: it cannot be written: the disk is full, or the folder is missing or not writable.
    """
    try:
        with files.whole_file(path) as unfinished:
            yield unfinished
    except Exception as error:
        raise ImageError(f"{path!s}: the {what} cannot be written ({error})") from error


def folder(path: str | os.PathLike[str], what: str) -> Path:
    """Make a folder, where it is not there yet; ``what`` is what a message calls it.

    Raises:
        ImageError: it cannot be made.
    """
    made = Path(path)
    try:
        made.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ImageError(f"{made}: the {what} cannot be made ({error})") from error
    return made


def write(path: str | os.PathLike[str], body: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Write an image; the file is there whole or not at all.

    Args:
        body: program and plan, as JSON has them.
        tensors: on the host; their strides are kept.

    Raises:
        ImageError: it cannot be written: the disk is full, or the folder is missing or not writable. What
            was at the path stays.
    """
    save_file = _safetensors().torch.save_file
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    strides = json.dumps({name: list(tensor.stride()) for name, tensor in tensors.items()}, sort_keys=True)
    flat = {name: _flat(tensor) for name, tensor in tensors.items()}
    metadata = {
        "kind": _KIND,
        "version": str(VERSION),
        "torch": str(torch.__version__).partition("+")[0],
        "body": text,
        "strides": strides,
        "checksum": _checksum(text, strides, flat),
    }
    with whole_file(path, "image") as unfinished:
        save_file(flat, str(unfinished), metadata=metadata)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return body and tensors of an image.

    Raises:
        ImageError: the file is missing, no image, damaged, or of another version.
    """
    target = Path(path)
    if (reason := files.no_file(target)) is not None:
        raise ImageError(f"{target}: {reason}")
    safe_open = _safetensors().safe_open
    try:
        with safe_open(str(target), framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("kind") != _KIND:
                raise ImageError(f"{target}: no image of a compiled model; save one with Executable.save")
            _check_version(target, metadata)
            flat = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(f"{target}: the file is damaged or no image ({error})") from error
    try:
        text, strides = metadata["body"], metadata["strides"]
        if _checksum(text, strides, flat) != metadata["checksum"]:
            raise ImageError(
                f"{target}: the file is damaged: its checksum differs. Compile and save it again"
            )
        return json.loads(text), {
            name: _shaped(flat[name], strides_of) for name, strides_of in json.loads(strides).items()
        }
    except ImageError:
        raise
    except (KeyError, ValueError, RuntimeError, TypeError, AttributeError) as error:
        raise ImageError(f"{target}: the file is damaged ({error!r})") from error


def _check_version(target: Path, metadata: Mapping[str, str]) -> None:
    if metadata.get("version", "") not in [str(each) for each in range(1, VERSION + 1)]:
        raise ImageError(
            f"{target}: an image of version {metadata.get('version')}, but this torch-loom reads versions 1 "
            f"to {VERSION}. Compile the model again"
        )
    running = str(torch.__version__).partition("+")[0]
    if metadata.get("torch", "").split(".")[:2] != running.split(".")[:2]:
        raise ImageError(
            f"{target}: made with torch {metadata.get('torch')}, but torch {running} is running. Compile the "
            "model again"
        )


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().clone()


def _shaped(flat: torch.Tensor, stride: list[int]) -> torch.Tensor:
    if list(flat.stride()) == stride:
        return flat
    sizes = list(flat.shape)
    if len(stride) != len(sizes) or not all(type(each) is int and 0 <= each < 2**62 for each in stride):
        raise ValueError(f"strides {stride!r} of a tensor of shape {sizes}")
    # An image's tensors have no gaps: strides may not ask for more memory than the file has values.
    span = 1 + sum((size - 1) * each for size, each in zip(sizes, stride, strict=True))
    if flat.numel() and span != flat.numel():
        raise ValueError(f"strides {stride!r} of a tensor of shape {sizes}")
    return torch.empty_strided(tuple(flat.shape), tuple(stride), dtype=flat.dtype).copy_(flat)


def _checksum(text: str, strides: str, tensors: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256(f"{text}\0{strides}".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        if tensor.numel():
            digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ImageError("images need the package safetensors: pip install safetensors") from error
    return safetensors
