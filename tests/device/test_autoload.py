"""Loading: what `import torch` does and does not do, and what goes wrong where."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from torch_loom import errors
from torch_loom._register import registration
from torch_loom.errors import ExtensionError

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


@pytest.mark.slow
def test_import_torch_is_enough(run_python: PythonRunner) -> None:
    done = run_python(
        """
        import sys, threading, torch
        assert torch.loom is sys.modules["torch.loom"] is sys.modules["torch_loom.device"]
        assert not torch.loom.is_initialized() and threading.active_count() == 1
        assert torch.loom.is_available() and torch.loom.device_count() == 2
        assert not torch.loom.is_initialized()
        x = torch.ones(2, device="loom") + 1
        assert x.tolist() == [2, 2] and x.is_loom and torch.loom.is_initialized()
        import torch_loom
        import torch.loom.amp
        assert torch.loom.amp is sys.modules["torch_loom.device.amp"]
        """,
        flags=("-W", "error"),
    )
    assert done.stdout == done.stderr == ""


def test_import_reads_only_code_and_starts_nothing(fork_python: PythonRunner) -> None:
    done = fork_python(
        """
        import os, sys
        opened = []
        def shared():
            with open("/proc/self/maps") as maps:
                return [line for line in maps if "/dev/shm" in line or "memfd" in line]
        before, shared_before = len(os.listdir("/proc/self/task")), shared()
        sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
        import torch_loom
        import torch_loom
        torch_loom._autoload()
        files = list(opened)
        assert len(os.listdir("/proc/self/task")) == before
        assert shared() == shared_before
        assert not torch.loom.is_initialized() and not torch_loom._C.is_initialized()
        print([file for file in files if not file.endswith((".py", ".pyc", ".so"))])
        """
    )
    assert done.stdout == "[]\n"
    assert done.stderr == ""


@pytest.mark.slow
def test_another_torch_is_one_clear_error_at_first_use(run_python: PythonRunner) -> None:
    done = run_python(
        """
        import sys, types
        built_with = sys.modules["torch_loom._built_with"] = types.ModuleType("torch_loom._built_with")
        built_with.TORCH_VERSION = "1.9.1+cpu"
        import torch
        assert "torch_loom._C" not in sys.modules
        for use in (
            lambda: torch.ones(2, device="loom"),
            lambda: torch.ones(2).to("loom:0"),
            lambda: torch.loom.current_device(),
            lambda: torch.loom.Stream,
        ):
            try:
                use()
            except Exception as error:
                assert type(error).__name__ == "VersionMismatchError", repr(error)
                assert isinstance(error, RuntimeError)
                assert "1.9.1+cpu" in str(error) and torch.__version__ in str(error)
            else:
                raise AssertionError
        # What does not use the device goes on.
        assert not torch.loom.is_available() and not torch.accelerator.is_available()
        torch.manual_seed(0)
        x = torch.ones(2, requires_grad=True)
        (x * x).sum().backward()
        # The profiler and others ask device modules what they have.
        assert not hasattr(torch.loom, "synchronize")
        """
    )
    assert done.stderr.count("torch-loom is not available") == 1


@pytest.mark.slow
def test_a_missing_extension_does_not_break_import(run_python: PythonRunner) -> None:
    done = run_python(
        """
        import sys
        sys.modules["torch_loom._C"] = None
        import torch
        try:
            torch.ones(2, device="loom")
        except RuntimeError as error:
            print(type(error).__name__, error)
        """,
        flags=("-W", "error"),
    )
    assert done.stdout.startswith("ExtensionError The extension torch_loom._C could not be loaded")
    assert done.stderr.count("torch-loom is not available") == 1


@pytest.mark.parametrize(
    ("is_built", "message"),
    [(False, "sources without the compiled extension"), (True, "could not be loaded (no symbol)")],
)
def test_sources_that_are_not_built_are_told_apart(
    is_built: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise ImportError("no symbol")

    monkeypatch.setattr(registration.importlib, "import_module", refuse)
    monkeypatch.setattr(registration, "_has_extension", lambda folder: is_built)
    with pytest.raises(ExtensionError, match=re.escape(message)):
        registration._load_extension()


def test_another_name(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import io, torch_loom
        x = torch.ones(2, device="rbln:1")
        assert str(x.device) == "rbln:1" and x.is_rbln and torch.loom is torch.rbln
        assert torch.rbln.current_device() == 0 and torch.accelerator.current_accelerator().type == "rbln"
        assert torch.nn.Linear(2, 2).rbln()(x.rbln()).device.type == "rbln"
        assert torch.from_dlpack(x).device == x.device
        # A checkpoint written under the default name.
        file = io.BytesIO()
        torch.save(x, file, _use_new_zipfile_serialization=False)
        assert file.getvalue().count(b"rbln:1") == 1
        loaded = torch.load(io.BytesIO(file.getvalue().replace(b"rbln:1", b"loom:1")))
        assert loaded.device == x.device and loaded.tolist() == [1, 1]
        """,
        {"TORCH_LOOM_DEVICE_NAME": "rbln"},
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["mps", "xla", "np0", "sum", "requires_grad", "two words", ""])
def test_names_that_cannot_be_had(fork_python: PythonRunner, name: str) -> None:
    fork_python(
        f"""
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import torch_loom
        assert len(caught) == 1
        text = "TORCH_LOOM_DEVICE_NAME={name!r}"
        assert text in str(caught[0].message)
        raises("ConfigurationError", text, lambda: torch.loom.current_device())
        raises("ConfigurationError", text, lambda: torch.ones(2, device="loom"))
        """,
        {"TORCH_LOOM_DEVICE_NAME": name},
    )


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
        f"""
        import torch_loom
        torch.manual_seed(0)
        for use in (
            lambda: torch.ones(2, device="loom"),
            lambda: torch.loom.init(),
            lambda: torch.loom.device_count(),
            lambda: torch.accelerator.is_available(),
            lambda: torch.accelerator.current_stream(),
            lambda: torch.Generator("loom"),
        ):
            raises("ConfigurationError", "{variable}={value!r}", use)
        assert not torch.loom.is_initialized()
        """,
        {variable: value},
    )


@pytest.mark.parametrize("variable", ["TORCH_LOOM_DEVICES=0", "TORCH_LOOM_VISIBLE_DEVICES="])
def test_no_device_breaks_nothing_else(fork_python: PythonRunner, variable: str) -> None:
    name, value = variable.split("=")
    fork_python(
        f"""
        import torch.utils.data, torch_loom
        assert not torch.loom.is_available() and torch.loom.device_count() == 0
        assert not torch.accelerator.is_available() and torch.accelerator.device_count() == 0
        torch.manual_seed(1)
        torch.seed()
        torch.loom.manual_seed_all(1)
        torch.loom.seed_all()
        x = torch.ones(2, requires_grad=True)
        (x * x).sum().backward()
        with torch.random.fork_rng():
            torch.rand(2)
        with torch.autocast("cpu"):
            torch.ones(2, 2) @ torch.ones(2, 2)
        assert len(list(torch.utils.data.DataLoader(range(4), batch_size=2))) == 2
        assert torch.loom.memory_stats() == {{}} and torch.loom.memory_allocated() == 0
        assert torch.loom.get_rng_state_all() == [] and list(torch.loom.default_generators) == []
        assert not torch.loom.is_bf16_supported()
        torch.loom.empty_cache()
        torch.loom.reset_peak_memory_stats()
        for use in (
            lambda: torch.ones(2, device="loom"),
            lambda: torch.ones(2).to("loom:0"),
            lambda: torch.loom.current_device(),
            lambda: torch.loom.synchronize(),
            lambda: torch.accelerator.synchronize(),
            lambda: torch.Stream(device="loom"),
            lambda: torch.loom.memory_allocated(0),
        ):
            raises("NoDeviceError", "No loom devices are available: {name}={value!r}", use)
        """,
        {name: value},
    )


def test_visible_devices_are_numbered_anew(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        assert torch.loom.device_count() == torch.accelerator.device_count() == 2
        assert torch.ones(1, device="loom:1").device.index == 1
        raises("InvalidDeviceError", "Invalid device index 2", lambda: torch.loom.set_device(2))
        assert torch.loom.mem_get_info(1)[1] == 64 << 20
        """,
        {
            "TORCH_LOOM_DEVICES": "4",
            "TORCH_LOOM_VISIBLE_DEVICES": "3,1",
            "TORCH_LOOM_MEMORY": "64MiB",
        },
    )


def test_configure(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        torch.loom.configure(devices=3, memory="32MiB", visible_devices=(2,))
        assert torch.loom.device_count() == 1 and not torch.loom.is_initialized()
        assert torch.loom.get_device_properties().total_memory == 32 << 20
        raises("AlreadyInitializedError", "configure(devices=2)", lambda: torch.loom.configure(devices=2))
        assert torch.loom.device_count() == 1
        """,
        {"TORCH_LOOM_DEVICES": "2"},
    )


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
    fork_python(
        f"""
        import torch_loom
        torch.loom.manual_seed(11)
        {use}
        assert torch.loom.is_initialized()
        assert torch.loom.initial_seed() == 11
        """
    )


def test_errors_have_the_builtin_types_of_cuda() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, errors.LoomError)
        builtin = (RuntimeError, ValueError, TypeError, OSError, AttributeError)
        assert kind is errors.LoomError or issubclass(kind, builtin)


# What no GPU raises: settings, chips, plans, compilers, pipelines, the extension itself.
OWN = {
    *("ChipError", "CompilerOptionError", "ConfigurationError", "DryRunError", "ExportError"),
    *("ExtensionError", "FallbackError", "FormatError", "HostOpError", "IllegalGraphError", "ImageError"),
    *("LoomError", "OnnxError", "OperandError", "PackedDataError", "PinnedMemoryError", "PipelineError"),
    *("NotApplicableError", "PipelineStoppedError", "PlacementError", "PyBudaError", "QueueFullError"),
    *("QueueTypeError", "RankError", "StageError", "UnknownOpError", "VersionMismatchError"),
}


def test_what_a_gpu_raises_is_one_of_the_bases() -> None:
    """Of each other class, under the name cuda: ``tests/cuda/test_error_types.py``."""
    kinds = {name: getattr(errors, name).cuda_type for name in errors.__all__}
    assert {name for name, kind in kinds.items() if kind is None} == OWN
    for name, kind in kinds.items():
        assert kind is None or issubclass(getattr(errors, name), kind)


def test_first_use_from_many_threads(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import threading, torch_loom
        torch.loom.manual_seed_all(3)
        uses = (
            lambda: torch.empty(4, device="loom:1"),
            lambda: torch.Generator("loom"),
            lambda: torch.accelerator.current_stream(),
            lambda: torch.loom.mem_get_info(),
        )
        start = threading.Barrier(8)
        failures = []
        def work(use):
            start.wait()
            try:
                use()
            except Exception as error:
                failures.append(error)
        threads = [threading.Thread(target=work, args=(uses[i % 4],), daemon=True) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive(), "deadlock"
        assert not failures, failures
        assert [generator.initial_seed() for generator in torch.loom.default_generators] == [3, 3]
        """
    )
