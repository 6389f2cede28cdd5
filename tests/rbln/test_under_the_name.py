"""The device under the vendor's name: its tests in processes of their own, and its settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.rbln.vendor import EAGER, NAME
from tests.suite import ROOT, run_suite

PROGRAMS = Path(__file__).parent / "programs" / "under_the_name"

NPUS = {**NAME, "TORCH_LOOM_DEVICES": "6", "TORCH_LOOM_DRIVER": "null"}


@pytest.mark.slow
def test_the_functions_and_the_lazy_rule(tmp_path: Path) -> None:
    assert run_suite(tmp_path, NAME, "tests/rbln/test_vendor_api.py", "tests/rbln/test_lazy_rule.py") == set()


@pytest.mark.slow
def test_the_allocator(tmp_path: Path) -> None:
    assert run_suite(tmp_path, EAGER, "tests/rbln/test_allocator_stats.py") == set()


@pytest.mark.slow
def test_the_vendors_package_is_found(run_python: PythonRunner) -> None:
    done = run_python(PROGRAMS / "the_vendors_package_is_found.py", NAME)
    assert (done.stdout, done.stderr) == ("False\n", "")


# What the wheel puts beside the packages, as an interpreter that starts reads it.
STARTED = f"import site; site.addsitedir({str(ROOT / 'torch_loom' / 'compat')!r})\n"


@pytest.mark.slow
def test_the_vendors_package_is_found_before_torch(run_python: PythonRunner) -> None:
    done = run_python(
        PROGRAMS / "the_vendors_package_is_found_before_torch.py",
        NAME,
        given=str(ROOT / "torch_loom" / "compat"),
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
    done = run_python(
        PROGRAMS / "the_vendors_package_is_found_before_torch_2.py",
        {**NAME, "TORCH_RBLN_DIAGNOSE": "1", "TORCH_LOOM_CHIP": "atom"},
        given=str(ROOT / "torch_loom" / "compat"),
    )
    assert "  TORCH_LOOM_CHIP=atom\n" in done.stdout
    assert done.stdout.endswith("The device works: RBLN-CA12\n")


def test_a_started_interpreter_finds_nothing_under_another_name() -> None:
    code = STARTED + "import sys; print([name for name in sys.modules if 'loom' in name])"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_diagnostics_tell_what_is_wrong(fork_python: PythonRunner) -> None:
    done = fork_python(
        PROGRAMS / "diagnostics_tell_what_is_wrong.py",
        {**NAME, "TORCH_RBLN_DIAGNOSE": "1", "TORCH_LOOM_MEMORY": "much"},
    )
    assert "A setting cannot be used: TORCH_LOOM_MEMORY='much'" in done.stdout


@pytest.mark.long
def test_eager_malloc_is_read_at_the_first_tensor(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "eager_malloc_is_read_at_the_first_tensor.py", NAME)
    fork_python(PROGRAMS / "eager_malloc_is_read_at_the_first_tensor_2.py", NAME)


def test_the_vendors_package_is_not_found_under_another_name(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "the_vendors_package_is_not_found_under_another_name.py")


@pytest.mark.long
def test_a_real_package_of_that_name_wins(fork_python: PythonRunner, tmp_path: Path) -> None:
    (tmp_path / "torch_rbln.py").write_text("WHOSE = 'the vendor'\n")
    fork_python(PROGRAMS / "a_real_package_of_that_name_wins.py", NAME, given=str(tmp_path))


@pytest.mark.long
def test_no_npu(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "no_npu.py", {**NAME, "RBLN_DEVICES": ""})


@pytest.mark.long
def test_npus_in_groups(fork_python: PythonRunner) -> None:
    done = fork_python(PROGRAMS / "npus_in_groups.py", {**NPUS, "RBLN_NPUS_PER_DEVICE": "4"})
    assert done.stdout.splitlines() == [
        "[RBLN] Device Topology Initialized:",
        "+----------------+------------------+---------------------+",
        "| Logical Device | Physical NPU IDs | Status              |",
        "+----------------+------------------+---------------------+",
        "| rbln:0         | [ 0, 1, 2, 3 ]   | Active (Aggregated) |",
        "| -              | [ 4, 5 ]         | Unused              |",
        "+----------------+------------------+---------------------+",
        "[Warning] 2 physical NPU(s) belong to no device.",
    ]


@pytest.mark.long
def test_a_map_of_visible_npus_wins(fork_python: PythonRunner) -> None:
    done = fork_python(
        PROGRAMS / "a_map_of_visible_npus_wins.py",
        {
            **NPUS,
            "RBLN_DEVICES": "5,4,3,2",
            "RBLN_DEVICE_MAP": "[0,2],[1,3]",
            "RBLN_NPUS_PER_DEVICE": "4",
        },
    )
    rows = [line.split("|")[1:4] for line in done.stdout.splitlines() if "[ " in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["rbln:0", "[ 0, 2 ]", "Active (Aggregated)"],
        ["rbln:1", "[ 1, 3 ]", "Active (Aggregated)"],
    ]


@pytest.mark.long
def test_groups_of_different_sizes_have_the_memory_of_their_npus(fork_python: PythonRunner) -> None:
    done = fork_python(
        PROGRAMS / "groups_of_different_sizes_have_the_memory_of_their_npus.py",
        {**NPUS, "RBLN_DEVICE_MAP": "[0,1],[2,3,4,5]"},
    )
    rows = [line.split("|")[1:4] for line in done.stdout.splitlines() if "[ " in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["rbln:0", "[ 0, 1 ]", "Active (Aggregated)"],
        ["rbln:1", "[ 2, 3, 4, 5 ]", "Active (Aggregated)"],
    ]


@pytest.mark.long
def test_npus_of_a_list_of_memories(fork_python: PythonRunner) -> None:
    fork_python(
        PROGRAMS / "npus_of_a_list_of_memories.py",
        {
            "TORCH_LOOM_DEVICE_NAME": "rbln",
            "TORCH_LOOM_MEMORY": "1GiB,2GiB,8GiB",
            "RBLN_DEVICE_MAP": "[0,1],[2]",
        },
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("RBLN_DEVICE_MAP", "0,1", "Invalid RBLN_DEVICE_MAP format. Expected '[' at position 0. Format: "),
        ("RBLN_DEVICE_MAP", "[0,1],x", "Expected '[' at position 6"),
        (
            "RBLN_DEVICE_MAP",
            "[0,a]",
            "Invalid RBLN_DEVICE_MAP format. Unexpected character 'a' at position 3",
        ),
        ("RBLN_DEVICE_MAP", "[0,1", "Invalid RBLN_DEVICE_MAP format. Expected ']' at position 4"),
        ("RBLN_DEVICE_MAP", "", "RBLN_DEVICE_MAP must contain at least one logical device mapping"),
        ("RBLN_DEVICE_MAP", "[0,1,2]", "Valid sizes are: 1, 2, 4, 8, 16, 32. Mapping with 3 physical NPU(s)"),
        ("RBLN_DEVICE_MAP", "[0],[1],[0]", "Physical NPU 0 is already assigned to another logical device"),
        ("RBLN_DEVICE_MAP", "[0,6]", "Physical NPU 6 out of range (this process has 6 physical NPU(s)"),
        ("RBLN_NPUS_PER_DEVICE", "0", "RBLN_NPUS_PER_DEVICE must be a positive integer"),
        ("RBLN_NPUS_PER_DEVICE", "3", "must be one of the valid sizes: 1, 2, 4, 8, 16, 32. Got 3"),
        ("RBLN_NPUS_PER_DEVICE", "8", "No logical device (this process has 6 physical NPU(s), need 8 per"),
        ("RBLN_NPUS_PER_DEVICE", "two", "not a whole number"),
        ("RBLN_DEVICES", "0,0", "an index appears twice"),
        ("RBLN_DEVICES", "6", "no device 6"),
    ],
)
def test_settings_that_cannot_be(fork_python: PythonRunner, variable: str, value: str, message: str) -> None:
    fork_python(
        PROGRAMS / "settings_that_cannot_be.py",
        {**NPUS, variable: value},
        given=(message, f"{variable}={value!r}"),
    )


def test_the_vendors_settings_mean_nothing_under_another_name(fork_python: PythonRunner) -> None:
    fork_python(
        PROGRAMS / "the_vendors_settings_mean_nothing_under_another_name.py",
        {"RBLN_DEVICES": "9", "RBLN_NPUS_PER_DEVICE": "x", "RBLN_DEVICE_MAP": "x"},
    )


@pytest.mark.slow
def test_the_vendors_backend_of_torch_compile_is_ours(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "the_vendors_backend_of_torch_compile_is_ours.py", NAME)
