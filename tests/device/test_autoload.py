"""Loading: what `import torch` does and does not do, and what goes wrong where."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from torch_loom import errors
from torch_loom._register import fitness, origin
from torch_loom.errors import ExtensionError

PROGRAMS = Path(__file__).parent / "programs" / "autoload"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


@pytest.mark.slow
def test_import_torch_is_enough(run_python: PythonRunner) -> None:
    done = run_python(PROGRAMS / "import_torch_is_enough.py", flags=("-W", "error"))
    assert done.stdout == done.stderr == ""


def test_import_reads_only_code_and_starts_nothing(fork_python: PythonRunner) -> None:
    done = fork_python(PROGRAMS / "import_reads_only_code_and_starts_nothing.py")
    assert done.stdout == "[]\n"
    assert done.stderr == ""


@pytest.mark.slow
def test_a_missing_extension_does_not_break_import(run_python: PythonRunner) -> None:
    done = run_python(PROGRAMS / "a_missing_extension_does_not_break_import.py", flags=("-W", "error"))
    assert done.stdout.startswith("ExtensionError The extension torch_loom._C could not be loaded")
    assert done.stderr.count("torch-loom is not available") == 1


@pytest.mark.parametrize(
    ("is_checkout", "message"),
    [(True, "sources without the compiled extension"), (False, "has no extension for this Python (.none)")],
)
def test_sources_that_are_not_built_are_told_apart(
    is_checkout: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitness, "EXTENSION_SUFFIXES", [".none"])
    monkeypatch.setattr(origin, "is_checkout", lambda: is_checkout)
    with pytest.raises(ExtensionError, match=re.escape(message)):
        fitness.check(torch)


def test_another_name(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "another_name.py", {"TORCH_LOOM_DEVICE_NAME": "rbln"})


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["mps", "xla", "np0", "sum", "requires_grad", "two words", ""])
def test_names_that_cannot_be_had(fork_python: PythonRunner, name: str) -> None:
    fork_python(PROGRAMS / "names_that_cannot_be_had.py", {"TORCH_LOOM_DEVICE_NAME": name}, given=name)


@pytest.mark.long
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TORCH_LOOM_DEVICES", "many"),
        ("TORCH_LOOM_MEMORY", "1"),
        ("TORCH_LOOM_VISIBLE_DEVICES", "2"),
        ("TORCH_LOOM_DRIVER", "gpu"),
        ("TORCH_LOOM_DEVICE", "2"),
    ],
)
def test_bad_settings_are_raised_at_first_use(fork_python: PythonRunner, variable: str, value: str) -> None:
    fork_python(
        PROGRAMS / "bad_settings_are_raised_at_first_use.py", {variable: value}, given=(variable, value)
    )


@pytest.mark.parametrize("variable", ["TORCH_LOOM_DEVICES=0", "TORCH_LOOM_VISIBLE_DEVICES="])
def test_no_device_breaks_nothing_else(fork_python: PythonRunner, variable: str) -> None:
    name, value = variable.split("=")
    fork_python(PROGRAMS / "no_device_breaks_nothing_else.py", {name: value}, given=(name, value))


def test_visible_devices_are_numbered_anew(fork_python: PythonRunner) -> None:
    fork_python(
        PROGRAMS / "visible_devices_are_numbered_anew.py",
        {
            "TORCH_LOOM_DEVICES": "4",
            "TORCH_LOOM_VISIBLE_DEVICES": "3,1",
            "TORCH_LOOM_MEMORY": "64MiB",
        },
    )


def test_configure(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "configure.py", {"TORCH_LOOM_DEVICES": "2"})


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "use",
    [
        "torch.empty(2, device='loom')",
        "torch.ones(2).to('loom:1')",
        "torch.ones(2).loom()",
        "torch.nn.Linear(2, 2).loom()",
        "torch.loom.init()",
        "torch.loom.set_device(0)",
        "torch.loom.current_device()",
        "torch.loom.get_device_name(1)",
        "torch.loom.mem_get_info()",
        "torch.loom.memory_stats()",
        "torch.loom.get_rng_state()",
        "torch.loom.default_generators[1]",
        "torch.loom.current_stream()",
        "torch.loom.default_stream()",
        "torch.loom.device(1).__enter__(); torch.loom.set_device(0)",
        "torch.Generator('loom')",
        "torch.Stream(device='loom')",
        "torch.Event(device='loom').record()",
        "torch.accelerator.set_device_index(0)",
        "torch.accelerator.current_device_index()",
        "torch.accelerator.current_stream()",
        "torch.accelerator.synchronize()",
        "torch.accelerator.get_memory_info(1)",
        "torch.UntypedStorage(8, device='loom')",
        "torch.ones(2).pin_memory(); torch.loom.init()",
    ],
)
def test_every_way_to_touch_a_device_first(fork_python: PythonRunner, use: str) -> None:
    fork_python(PROGRAMS / "every_way_to_touch_a_device_first.py", given=use)


def test_errors_have_the_builtin_types_of_cuda() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, errors.LoomError)
        builtin = (RuntimeError, ValueError, TypeError, OSError, AttributeError)
        assert kind is errors.LoomError or issubclass(kind, builtin)


# What no GPU raises: settings, chips, plans, compilers, pipelines, the extension itself.
OWN = {
    "KernelCheckError",
    "KernelTextError",
    "UnsupportedKernelError",
    *("ChipError", "CompilerOptionError", "ConfigurationError", "DeviceLayoutError", "DryRunError"),
    *("DummyDeviceError", "ExportError", "RegionError"),
    *("ExtensionError", "FallbackError", "FormatError", "HostOpError", "IllegalGraphError", "ImageError"),
    *("LoomError", "OnnxError", "OperandError", "PackedDataError", "PinnedMemoryError", "PipelineError"),
    *("NotApplicableError", "PipelineStoppedError", "PlacementError", "PyBudaError", "QueueFullError"),
    "TopologyError",
    *("QueueTypeError", "RankError", "StageError", "UnknownOpError", "VerificationError"),
    "VersionMismatchError",
}


def test_what_a_gpu_raises_is_one_of_the_bases() -> None:
    """Of each other class, under the name cuda: ``tests/cuda/test_error_types.py``."""
    kinds = {name: getattr(errors, name).cuda_type for name in errors.__all__}
    assert {name for name, kind in kinds.items() if kind is None} == OWN
    for name, kind in kinds.items():
        assert kind is None or issubclass(getattr(errors, name), kind)


def test_first_use_from_many_threads(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "first_use_from_many_threads.py")
