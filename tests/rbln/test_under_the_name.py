"""The device under the vendor's name: its tests in processes of their own, and its settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.rbln.vendor import EAGER, NAME
from tests.suite import ROOT, run_suite

NPUS = {**NAME, "TORCH_LOOM_DEVICES": "6", "TORCH_LOOM_DRIVER": "null"}


@pytest.mark.slow
def test_the_functions_and_the_lazy_rule(tmp_path: Path) -> None:
    assert run_suite(tmp_path, NAME, "tests/rbln/test_vendor_api.py", "tests/rbln/test_lazy_rule.py") == set()


@pytest.mark.slow
def test_the_allocator(tmp_path: Path) -> None:
    assert run_suite(tmp_path, EAGER, "tests/rbln/test_allocator_stats.py") == set()


@pytest.mark.slow
def test_the_vendors_package_is_found(run_python: PythonRunner) -> None:
    done = run_python(
        """
        import torch
        import torch_rbln
        import torch_rbln.memory as memory
        from torch_rbln.device import context_holder, device_count, device_of
        from torch_rbln.device.device import device_summary
        from torch_rbln.device.context_holder import out_tensor_context
        assert torch_rbln.device is torch.rbln and torch_rbln.device.empty_cache is torch.rbln.empty_cache
        assert device_summary is torch_rbln.device.device_summary is torch.rbln.device_summary
        out = torch.empty(2, device="rbln")
        with out_tensor_context(out):
            assert context_holder.helper.out_tensor is out
        assert context_holder.helper.out_tensor is None
        assert torch_rbln.current_device() == 0 and device_count() == 2
        assert memory is torch.rbln.memory and device_of is torch.rbln.device_of
        assert torch_rbln.__version__ == __import__("torch_loom").__version__
        print(hasattr(torch_rbln, "nothing"))
        """,
        NAME,
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


# What the wheel puts beside the packages, as an interpreter that starts reads it.
STARTED = f"import site; site.addsitedir({str(ROOT / 'torch_loom' / 'compat')!r})\n"


@pytest.mark.slow
def test_the_vendors_package_is_found_before_torch(run_python: PythonRunner) -> None:
    done = run_python(STARTED + "import torch_rbln, torch; print(torch_rbln.device is torch.rbln)", NAME)
    assert (done.stdout, done.stderr) == ("True\n", "")
    done = run_python(
        STARTED
        + "import sys, torch_rbln.diagnose; assert 'torch' not in sys.modules; torch_rbln.diagnose.main()",
        {**NAME, "TORCH_RBLN_DIAGNOSE": "1", "TORCH_LOOM_CHIP": "atom"},
    )
    assert "  TORCH_LOOM_CHIP=atom\n" in done.stdout
    assert done.stdout.endswith("The device works: atom\n")


def test_a_started_interpreter_finds_nothing_under_another_name() -> None:
    code = STARTED + "import sys; print([name for name in sys.modules if 'loom' in name])"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_diagnostics_tell_what_is_wrong(fork_python: PythonRunner) -> None:
    done = fork_python(
        """
        import torch_loom
        from torch_loom.compat.torch_rbln import diagnose
        assert diagnose.main() == 1
        """,
        {**NAME, "TORCH_RBLN_DIAGNOSE": "1", "TORCH_LOOM_MEMORY": "much"},
    )
    assert "A setting cannot be used: TORCH_LOOM_MEMORY='much'" in done.stdout


def test_eager_malloc_is_read_at_the_first_tensor(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import os, torch_loom
        torch.rbln.set_device(1)
        torch.rbln.reset_peak_memory_stats()
        assert torch.rbln.is_initialized()
        os.environ["TORCH_RBLN_EAGER_MALLOC"] = "1"
        x = torch.empty(1024, device="rbln")
        assert torch.rbln.memory_allocated() == x.nbytes
        os.environ["TORCH_RBLN_EAGER_MALLOC"] = "0"
        y = torch.empty(1024, device="rbln:0")
        assert torch.rbln.memory_allocated(0) == y.nbytes
        """,
        NAME,
    )
    fork_python(
        """
        import os, torch_loom
        torch.rbln.init()
        os.environ["TORCH_RBLN_EAGER_MALLOC"] = "perhaps"
        make = lambda: torch.empty(1, device="rbln")
        raises("ConfigurationError", "TORCH_RBLN_EAGER_MALLOC='perhaps'", make)
        del os.environ["TORCH_RBLN_EAGER_MALLOC"]
        x = torch.empty(1024, device="rbln")
        assert torch.rbln.memory_allocated() == 0
        """,
        NAME,
    )


def test_the_vendors_package_is_not_found_under_another_name(fork_python: PythonRunner) -> None:
    fork_python(
        """
        from torch_loom import compat
        compat._autoload()
        raises("ModuleNotFoundError", "No module named 'torch_rbln'", lambda: __import__("torch_rbln"))
        """
    )


def test_a_real_package_of_that_name_wins(fork_python: PythonRunner, tmp_path: Path) -> None:
    (tmp_path / "torch_rbln.py").write_text("WHOSE = 'the vendor'\n")
    fork_python(
        f"""
        import sys
        from torch_loom import compat
        compat._autoload()
        sys.path.insert(0, {str(tmp_path)!r})
        import torch_rbln
        assert torch_rbln.WHOSE == "the vendor"
        """,
        NAME,
    )


def test_no_npu(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        rbln = torch.rbln
        assert (rbln.is_available(), rbln.device_count(), rbln.physical_device_count()) == (False, 0, 0)
        assert rbln.memory_stats() == {}
        assert rbln.memory_allocated() == rbln.max_memory_allocated() == 0
        assert rbln.memory_reserved() == rbln.max_memory_reserved() == 0
        assert rbln.get_amp_supported_dtype() == [torch.float16]
        rbln.empty_cache()
        rbln.reset_peak_memory_stats()
        rbln.reset_accumulated_memory_stats()
        for use in (rbln.current_device, lambda: torch.ones(2, device="rbln"), rbln.mem_get_info):
            raises("NoDeviceError", "No rbln devices are available: RBLN_DEVICES=''", use)
        assert not rbln.is_initialized()
        """,
        {**NAME, "RBLN_DEVICES": ""},
    )


def test_npus_in_groups(fork_python: PythonRunner) -> None:
    done = fork_python(
        """
        import torch_loom
        assert (torch.rbln.device_count(), torch.rbln.physical_device_count()) == (1, 6)
        torch.rbln.device_summary()
        alone = 16857746636
        assert torch.rbln.get_device_properties(0).total_memory == 4 * alone
        assert torch.empty(50 << 30, dtype=torch.uint8, device="rbln").data_ptr() != 0
        """,
        {**NPUS, "RBLN_NPUS_PER_DEVICE": "4"},
    )
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


def test_a_map_of_visible_npus_wins(fork_python: PythonRunner) -> None:
    done = fork_python(
        """
        import torch_loom
        torch.rbln.device_summary()
        assert torch.rbln.get_device_properties(0).extra["physical_index"] == 5
        assert torch.rbln.get_device_properties(1).extra["physical_index"] == 4
        assert torch.ones(2, device="rbln:1").device.index == 1
        """,
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


def test_groups_of_different_sizes_have_the_memory_of_their_npus(fork_python: PythonRunner) -> None:
    done = fork_python(
        """
        import torch, torch_loom
        from torch_loom import chips
        torch.rbln.device_summary()
        assert torch.rbln.device_count() == 2
        one = chips.load("atom").memory_bytes
        totals = [torch.rbln.get_device_properties(i).total_memory for i in range(2)]
        assert totals == [2 * one, 4 * one], totals
        assert [torch.rbln.mem_get_info(i)[1] for i in range(2)] == totals
        big = torch.empty(40 << 30, dtype=torch.uint8, device="rbln:0")
        raises("OutOfMemoryError", "capacity of 31.4", big.data_ptr)
        x = torch.empty(40 << 30, dtype=torch.uint8, device="rbln:1")
        assert x.data_ptr() != 0
        y = torch.ones(4, device="rbln:0").to("rbln:1")
        assert y.device.index == 1
        """,
        {**NPUS, "RBLN_DEVICE_MAP": "[0,1],[2,3,4,5]"},
    )
    rows = [line.split("|")[1:4] for line in done.stdout.splitlines() if "[ " in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["rbln:0", "[ 0, 1 ]", "Active (Aggregated)"],
        ["rbln:1", "[ 2, 3, 4, 5 ]", "Active (Aggregated)"],
    ]


def test_npus_of_a_list_of_memories(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch, torch_loom
        totals = [torch.rbln.get_device_properties(i).total_memory for i in range(2)]
        assert totals == [3 << 30, 8 << 30], totals
        """,
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
        f"""
        import torch_loom
        for use in (torch.rbln.device_count, torch.rbln.device_summary, lambda: torch.ones(1, device="rbln")):
            raises("ConfigurationError", {message!r}, use)
            raises("ConfigurationError", {f"{variable}={value!r}"!r}, use)
        """,
        {**NPUS, variable: value},
    )


def test_the_vendors_settings_mean_nothing_under_another_name(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        assert torch.loom.device_count() == torch.loom.physical_device_count() == 2
        assert torch.ones(2, device="loom:1").tolist() == [1, 1]
        """,
        {"RBLN_DEVICES": "9", "RBLN_NPUS_PER_DEVICE": "x", "RBLN_DEVICE_MAP": "x"},
    )


@pytest.mark.slow
def test_the_vendors_backend_of_torch_compile_is_ours(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        x = torch.arange(4.0, device="rbln")
        compiled = torch.compile(lambda x: x + 1, backend="rbln")
        assert compiled(x).tolist() == [1, 2, 3, 4]
        """,
        NAME,
    )
