"""The device is registered once, at its name's choice, and nothing of it when the extension is loaded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.test_layers import ROOT, cpp_files

PROGRAMS = Path(__file__).parent / "programs" / "registration"

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
    run_python(
        PROGRAMS / "loading_the_extension_registers_nothing.py", {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "program",
    [
        "fake_tensors_are_cast_before_first_use",
        "a_kernel_of_the_programs_own_stays",
        "what_the_program_casts_with_stays",
        "the_first_op_makes_a_tensor",
    ],
)
def test_before_first_use(warm_python: PythonRunner, program: str) -> None:
    warm_python(PROGRAMS / f"{program}.py")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loom", "rbln", "npu"])
def test_torch_loom_is_the_module_under_every_name(warm_python: PythonRunner, name: str) -> None:
    program = PROGRAMS / "torch_loom_is_the_module_under_every_name.py"
    warm_python(program, {"TORCH_LOOM_DEVICE_NAME": name}, given=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cpu", "sparse"])
def test_torch_loom_says_why_there_is_no_device(warm_python: PythonRunner, name: str) -> None:
    program = PROGRAMS / "torch_loom_says_why_there_is_no_device.py"
    warm_python(program, {"TORCH_LOOM_DEVICE_NAME": name}, given=name)
