"""`loom compile`: a model of a script, compiled for a chip; its report, image and netlist."""

from __future__ import annotations

import inspect
import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from rich.table import Table

from torch_loom import config
from torch_loom.chips import available, load
from torch_loom.config.boards import DEVICE_CONFIGS, board_name
from torch_loom.config.files import no_file
from torch_loom.errors import ChipError, CompilerOptionError, ExportError, LoomError
from torch_loom.image.file import whole_file
from torch_loom.image.report import duration
from torch_loom.tools import console

if TYPE_CHECKING:
    from torch_loom.image.executable import Executable

# The script runs under this name, so that what stands under `if __name__ == "__main__"` does not.
RUN_NAME = "__loom_compile__"
MAX_HOST_NODES = 10
# Of compile_module, which are no options, and what to do instead.
_ARGUMENTS = {
    "chip": ": give --chip",
    **dict.fromkeys(("module", "sample_inputs", "sample_kwargs", "args", "kwargs", "progress", "cache"), ""),
}


def run(
    model: Path,
    *,
    chip: str | None,
    default_chip: str,
    report: Path | None,
    out: Path | None,
    netlist: Path | None,
    inputs: Path | None,
    options: Sequence[str],
) -> None:
    """Compile a model and write what is asked for; prints what the plan predicts.

    Args:
        model: a script that defines ``model`` and ``inputs``, or an ONNX file.
        chip: the name or description of the chip, or a board; None: that of the option ``device_config``, or
            else ``default_chip``.
        inputs: safetensors by the names of the model's arguments, in the place of the script's ``inputs``, or
            of zeros of the sizes that an ONNX file has.
        options: of the compiler, each ``name=value``; the value as YAML has it.
    """
    console.check_folders(report, out, netlist)
    try:
        given = options_of(options)
        chip = _chip_of(chip, default_chip, given)
        module, args, kwargs = loaded(model, inputs)
        with console.err.status("compiling") as status:

            def show(name: str) -> None:
                status.update(f"compiling: {name}")

            executable = _compiled(model, module, args, kwargs, chip=chip, progress=show, **given)
        if model.suffix != ".onnx":
            executable.plan["model"] += f" ({model.name})"
        for path, write in ((report, executable.report), (out, executable.save)):
            if path is not None:
                write(path)
        if netlist is not None:
            with whole_file(netlist, "netlist") as unfinished:
                unfinished.write_text(executable.netlist(), encoding="utf-8")
    except (LoomError, OSError) as error:
        console.fail(error)
    console.out.print(summary(executable.plan))
    for name, reason in list(executable.host_nodes.items())[:MAX_HOST_NODES]:
        console.out.print(f"host: {name}: {reason}", markup=False)
    for path in (report, out, netlist):
        if path is not None:
            console.out.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)


def _chip_of(chip: str | None, default_chip: str, options: dict[str, Any]) -> str:
    """Return the chip to plan for; a board that is given in its place becomes an option."""
    asked = str(options.get("device_config") or "").lower()
    found = None if chip is None else board_name(chip)
    if found is not None:
        if asked and board_name(asked) != found:
            raise CompilerOptionError(f"--chip {chip} and device_config={asked} exclude one another")
        options["device_config"] = asked = found
        chip = None
    if (
        chip is not None
        and chip not in available()
        and Path(chip).name == chip
        and not chip.endswith(".toml")
    ):
        try:
            load(chip)
        except ChipError as error:
            boards = ", ".join(board.short_name for board in DEVICE_CONFIGS.values() if board.short_name)
            raise ChipError(f"{error} Boards are: {boards}.") from error
    board = DEVICE_CONFIGS.get(asked)
    if chip is not None and board is not None and board.chip != chip:
        raise CompilerOptionError(
            f"--chip {chip} and device_config={asked}, a board of {board.chip}, exclude one another"
        )
    return chip or (default_chip if board is None else board.chip)


def _compiled(
    path: Path, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], **how: Any
) -> Executable:
    """Compile it; what the model's own code raises is one sentence with its line."""
    from torch_loom.compiler.api import compile_module
    from torch_loom.compiler.failures import IN_MODEL, line_of

    try:
        return compile_module(module, args, kwargs, **how)
    except LoomError:
        raise
    except torch.OutOfMemoryError as error:
        raise CompilerOptionError(f"{path}: memory ran out while it was compiled: {error}") from error
    except Exception as error:
        text, _, line = str(error).partition(IN_MODEL)
        line, first = line or line_of(error) or "", text.strip().partition("\n")[0]
        if not line:
            _check_inputs(path, module, args, kwargs)
            raise  # the compiler's own
        raise ExportError(f"{path}: the model failed: {type(error).__name__}: {first} ({line})") from error


def _check_inputs(path: Path, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise what is wrong with the inputs of a model that fails without the compiler, too."""
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        names = f"{len(args)} by position" + (f" and {', '.join(kwargs)}" if kwargs else "")
        raise CompilerOptionError(
            f"{path}: the inputs do not fit the model ({error}): they are {names}, and its forward takes "
            f"{signature}"
        ) from error
    try:
        with torch.no_grad():
            module(*args, **kwargs)
    except Exception as error:  # eager mode's, of a module that has no line of the program
        first = str(error).strip().partition("\n")[0]
        raise ExportError(f"{path}: the model failed: {type(error).__name__}: {first}") from error


def options_of(given: Sequence[str]) -> dict[str, Any]:
    """Return options of ``name=value``.

    Raises:
        CompilerOptionError: an option has no ``=``, or its value is no YAML.
    """
    found = {}
    for each in given:
        name, equals, text = each.partition("=")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            equals = ""
        if not equals:
            raise CompilerOptionError(f"--option {each!r}: expected NAME=VALUE, as in math_fidelity=LoFi")
        if name in _ARGUMENTS:
            raise CompilerOptionError(
                f"--option {each}: {name!r} is no option of the compiler{_ARGUMENTS[name]}"
            )
        found[name] = value
    return found


def loaded(path: Path, inputs: Path | None) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Return a model with its sample inputs.

    Raises:
        CompilerOptionError: the script fails, or does not define what is needed.
    """
    if (reason := no_file(path)) is not None:
        raise CompilerOptionError(f"{path}: {reason}")
    if path.suffix == ".onnx":
        return _onnx(path, inputs)
    names = _script(path)
    module = _made(path, names, "model")
    if not isinstance(module, torch.nn.Module):
        raise CompilerOptionError(f"{path}: model is a {type(module).__name__}; expected a torch.nn.Module")
    if inputs is not None:
        return module, (), _named(module, tensors_of(inputs), inputs)
    return module, *_arguments(path, _made(path, names, "inputs"))


def _onnx(path: Path, inputs: Path | None) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    from torch_loom.compiler import load_onnx

    module = load_onnx(path)
    if inputs is not None:
        return module, (), _named(module, tensors_of(inputs), inputs)
    declared = module.meta["inputs"]
    unknown = [each for each in declared if each.dtype is None or not each.is_fixed]
    if unknown:
        raise CompilerOptionError(
            f"{path}: the sizes of {', '.join(str(each) for each in unknown)} are not fixed: give --inputs, "
            "a file of safetensors of the sizes to compile for"
        )
    return module, tuple(_zeros(each, path) for each in declared), {}


def _zeros(declared: Any, path: Path) -> torch.Tensor:
    try:
        return torch.zeros(declared.dims, dtype=declared.dtype)
    except RuntimeError as error:  # a negative size, or more bytes than there can be
        reason = str(error).partition("\n")[0]
        raise CompilerOptionError(f"{path}: no input can be as {declared} is declared: {reason}") from error


def _script(path: Path) -> Mapping[str, Any]:
    import sys

    # As for `python SCRIPT`: modules beside the script can be imported, and the arguments are the script's.
    sys.path.insert(0, str(path.resolve().parent))
    own, sys.argv = sys.argv, [str(path)]
    try:
        return runpy.run_path(str(path), run_name=RUN_NAME)
    except Exception as error:
        raise _failed(path, "the script failed", error) from error
    finally:
        sys.argv = own
        sys.path.pop(0)


def _made(path: Path, names: Mapping[str, Any], name: str) -> Any:
    if name not in names:
        raise CompilerOptionError(
            f"{path}: the script does not define {name!r}. It defines model, a torch.nn.Module, and inputs, "
            "a tuple or a dictionary of what its forward takes; or functions that return them"
        )
    value = names[name]
    is_maker: bool = callable(value) and not isinstance(value, torch.nn.Module | torch.Tensor)
    maker: Callable[[], Any] = value
    try:
        return maker() if is_maker else value
    except Exception as error:
        raise _failed(path, f"{name}() failed", error) from error


def _failed(path: Path, what: str, error: Exception) -> CompilerOptionError:
    from torch_loom.compiler.failures import line_of

    line = line_of(error)
    hint = ""
    if "not compiled with CUDA" in str(error):
        hint = ". Leave the model on the CPU, or set TORCH_LOOM_DEVICE_NAME=cuda"
    return CompilerOptionError(
        f"{path}: {what}: {type(error).__name__}: {error}" + (f" ({line})" if line else "") + hint
    )


def _arguments(path: Path, value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(value, torch.Tensor):
        return (value,), {}
    if isinstance(value, Mapping):
        return (), dict(value)
    if isinstance(value, tuple | list):
        return tuple(value), {}
    raise CompilerOptionError(
        f"{path}: inputs is a {type(value).__name__}; expected a tensor, or a tuple or dictionary of them"
    )


def _named(module: torch.nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
    signature = inspect.signature(module.forward)
    try:
        signature.bind(**tensors)
    except TypeError as error:
        raise CompilerOptionError(f"{path}: {error}; the model's forward takes {signature}") from error
    return tensors


def tensors_of(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a file of safetensors.

    Raises:
        CompilerOptionError: it cannot be read.
    """
    from safetensors.torch import load_file

    if (reason := no_file(path)) is not None:
        raise CompilerOptionError(f"{path}: {reason}")
    try:
        return load_file(path)
    except Exception as error:
        raise CompilerOptionError(f"{path}: the file of inputs cannot be read ({error})") from error


def summary(plan: Mapping[str, Any]) -> Table:
    """Return a table of what a plan predicts and what compiling took."""
    totals = plan["totals"]
    took = sum(record["milliseconds"] for record in plan["passes"])
    table = Table(show_header=False, box=None)
    rows, columns = plan["grid"]
    interval, throughput, whole = "none: no op runs on the chip", "none", "none"
    reached = []
    if plan["epochs"]:
        interval = f"{duration(totals['interval_seconds'])}, predicted"
        throughput = f"{totals['samples_per_second']:,.0f} samples/s, predicted"
        whole = f"{plan['end_to_end']['samples_per_second']:,.0f} samples/s, predicted"
        rates = plan["end_to_end"]["reached"]
        reached = [(f"under {stack}", f"{rate:,.0f} samples/s, fitted") for stack, rate in rates.items()]
    for name, text in (
        ("chip", f"{plan['num_chips']} x {plan['chip']}, {rows} x {columns} cores"),
        ("kernels", f"{sum(len(epoch['ops']) for epoch in plan['epochs'])} in {len(plan['epochs'])} epochs"),
        ("on the host", f"{len(plan['host'])} ops"),
        ("interval", interval),
        ("throughput", throughput),
        ("with the host", whole),
        *reached,
        ("utilisation", f"{totals['utilisation']:.0%} of the cores' time"),
        ("compiled in", f"{took / 1e3:.2f} s, {len(plan['passes'])} passes"),
        ("runs on", f"{config.device_name()} devices"),
    ):
        table.add_row(name, text)
    return table
