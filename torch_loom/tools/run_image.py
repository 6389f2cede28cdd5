"""`loom run-image`: runs a compiled model from its file; the compiler is not needed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import torch
from rich.table import Table

from torch_loom.errors import ImageError, LoomError
from torch_loom.image.executable import Executable
from torch_loom.image.file import whole_file
from torch_loom.tools import console


def run(image: Path, inputs: Path | None, out: Path | None, device: str | None, repeat: int) -> None:
    """Run an image on the tensors of a file, print its outputs, and write them where asked.

    Args:
        inputs: safetensors, one for each input, by its name; None: an error names what the image takes.
        out: where outputs are written: ``output_0``, ``output_1``, …
        repeat: how many times it runs; the shortest host time is printed.
    """
    console.check_folders(out)
    try:
        executable = Executable.load(image, device)
        if inputs is None:
            raise ImageError(f"give --inputs, a file of safetensors; the image takes {_taken(executable)}")
        given = ordered(executable, _read(inputs), inputs)
        shortest = float("inf")
        for _ in range(repeat):
            begun = time.perf_counter()
            try:
                results = executable.run_flat(given)
                outputs = [result.cpu() for result in results if isinstance(result, torch.Tensor)]
            except IndexError as error:  # of an embedding, say
                raise ImageError(f"{inputs}: a value of the inputs is out of range ({error})") from error
            shortest = min(shortest, time.perf_counter() - begun)
        if out is not None:
            _write(out, outputs)
    except (LoomError, OSError, RuntimeError, ValueError) as error:
        console.fail(error)
    console.out.print(_table(outputs))
    console.out.print(
        f"{executable.num_ops} calls of ATen ops, views and fused ones among them, on {executable.device}, "
        f"{shortest * 1e3:.2f} ms of the host"
    )
    console.out.print(
        f"predicted on {executable.plan['chip']}: {executable.latency_seconds * 1e3:.3f} ms", markup=False
    )


def ordered(executable: Executable, given: Mapping[str, torch.Tensor], path: Path) -> list[torch.Tensor]:
    """Return the tensors in the order of the image's inputs.

    Raises:
        ImageError: names are missing or too many.
    """
    names = [each["name"] for each in executable.inputs]
    if set(given) != set(names):
        raise ImageError(
            f"{path} has the tensors {', '.join(sorted(given))}; the image takes {_taken(executable)}"
        )
    return [given[name] for name in names]


def _taken(executable: Executable) -> str:
    return ", ".join(f"{each['name']}: {each['dtype']} {each['shape']}" for each in executable.inputs)


def _read(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except Exception as error:
        raise ImageError(f"{path}: the file of inputs cannot be read ({error})") from error


def _write(path: Path, outputs: list[torch.Tensor]) -> None:
    from safetensors.torch import save_file

    # Outputs may be views of one another, which the format does not have.
    with whole_file(path, "file of outputs") as unfinished:
        save_file(
            {f"output_{i}": output.contiguous().clone() for i, output in enumerate(outputs)}, unfinished
        )


def _table(outputs: list[torch.Tensor]) -> Table:
    table = Table("output", "dtype", "shape", "least", "mean", "largest", box=None)
    for number, output in enumerate(outputs):
        numbers = output.double() if output.numel() and not output.is_complex() else None
        figures = [numbers.min(), numbers.mean(), numbers.max()] if numbers is not None else []
        table.add_row(
            f"output_{number}",
            str(output.dtype).removeprefix("torch."),
            str(list(output.shape)),
            *(f"{float(figure):.6g}" for figure in figures),
        )
    return table
