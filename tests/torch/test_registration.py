"""The device is registered once, at its name's choice, and nothing of it when the extension is loaded."""

from __future__ import annotations

import re

import pytest

from tests.conftest import PythonRunner
from tests.test_layers import ROOT, cpp_files

# What would register before anybody could choose the device type.
STATIC = re.compile(
    r"\bTORCH_LIBRARY(_IMPL|_FRAGMENT)?\s*\(|\bC10_REGISTER_\w+\s*\(|\bREGISTER_\w+\s*\(|\bC10_DECLARE_REGISTRY"
    r"|\bregistered\s*="
    r"|^(?!constexpr)\S.*=\s*\[[^\]]*\]\s*(\(\s*\))?\s*\{",  # a value by a function, outside of any
    re.MULTILINE,
)


def test_no_file_registers_in_static_initialisers() -> None:
    found = {
        str(path.relative_to(ROOT)): match[0]
        for path in cpp_files()  # no other room includes a header of PyTorch's: tests/test_layers.py
        if "torch" in path.parts and (match := STATIC.search(path.read_text(encoding="utf-8")))
    }
    assert found == {}
    assert STATIC.search("TORCH_LIBRARY_IMPL(aten, CUDA, m) {")
    assert STATIC.search("REGISTER_PRIVATEUSE1_DISPATCH(stub, &f)")
    assert STATIC.search("C10_REGISTER_GUARD_IMPL(CUDA, GuardImpl);")
    assert STATIC.search("[[maybe_unused]] const bool hooked = [] {")
    assert not STATIC.search("  static const bool is_done = [] {")


def test_only_core_names_pytorchs_device_type() -> None:
    core = ROOT / "csrc" / "torch" / "core"
    named = [path for path in cpp_files() if "privateuse" in path.read_text(encoding="utf-8").lower()]
    assert named
    assert [str(path) for path in named if core not in path.parents] == []


@pytest.mark.slow
def test_loading_the_extension_registers_nothing(run_python: PythonRunner) -> None:
    program = """
        import importlib.util, sysconfig, torch
        from pathlib import Path

        def registered():
            kinds = ("", "Autograd", "Autocast", "Sparse", "SparseCsr", "Quantized", "NestedTensor")
            keys = [kind + "PrivateUse1" for kind in kinds]
            return [torch._C._dispatch_get_registrations_for_dispatch_key(key) for key in keys]

        before = registered()
        path = Path(importlib.util.find_spec("torch_loom").origin).parent
        file = path / ("_C" + sysconfig.get_config_var("EXT_SUFFIX"))
        spec = importlib.util.spec_from_file_location("_C", file)
        extension = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(extension)
        assert registered() == before
        assert torch._C._get_privateuse1_backend_name() == "privateuseone"
        assert not extension.is_initialized() and extension.device_count() == 0

        extension.register_device("npu")
        assert len(registered()[0]) > 1000
        assert torch._C._get_privateuse1_backend_name() == "npu"
        for name in ("npu", "cuda"):
            try:
                extension.register_device(name)
            except RuntimeError as error:
                assert f"'{name}' cannot be registered" in str(error)
                assert "this process has the device 'npu' already" in str(error)
            else:
                raise AssertionError(name)
    """
    run_python(program, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loom", "rbln", "npu"])
def test_torch_loom_is_the_module_under_every_name(warm_python: PythonRunner, name: str) -> None:
    program = f"""
        import sys, torch
        import torch.loom.memory, torch.{name}.memory
        assert torch.loom is torch.{name} is torch.get_device_module("{name}")
        assert sys.modules["torch.loom.memory"] is sys.modules["torch.{name}.memory"] is torch.loom.memory
        with torch.loom.explain() as report:
            assert (torch.ones(2, device="{name}") + 1).tolist() == [2, 2]
        assert torch.loom.memory_allocated() == torch.{name}.memory_allocated()
    """
    warm_python(program, {"TORCH_LOOM_DEVICE_NAME": name})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cpu", "sparse"])
def test_torch_loom_says_why_there_is_no_device(warm_python: PythonRunner, name: str) -> None:
    program = f"""
        import warnings
        warnings.simplefilter("ignore")
        import torch
        try:
            torch.loom.memory_allocated()
        except AttributeError as error:
            assert "TORCH_LOOM_DEVICE_NAME" in str(error) and "{name}" in str(error), error
        else:
            raise AssertionError("no error")
    """
    warm_python(program, {"TORCH_LOOM_DEVICE_NAME": name})
