"""What a kernel must not do is named by kernel, block, thread and line, before it happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import torch_loom.device as loom

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs"
SOURCE = (PROGRAMS / "faults.cu").read_text(encoding="utf-8")


@pytest.fixture(autouse=True, scope="module")
def _checked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_LOOM_CHECK_KERNELS", "1")
        yield


def kernel(name: str) -> Callable[..., Any]:
    return loom._compile_kernel(SOURCE, name)


def line_of(mark: str) -> int:
    """The number of the line that ends with a comment."""
    return next(i for i, line in enumerate(SOURCE.splitlines(), 1) if line.endswith(f"// {mark}"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "size", "grid", "n", "message"),
    [
        (
            "writes_behind",
            100,
            (4,),
            100,
            r"block \(3, 0, 0\), thread \(4, 0, 0\) writes 4 bytes at 0x\w+, at code:{}: "
            r"0 bytes after the end of argument 2 \(400 bytes\)",
        ),
        (
            "reads_before",
            32,
            (1,),
            32,
            r"thread \(0, 0, 0\) reads 4 bytes.*code:{}: 4 bytes before argument 1",
        ),
        ("reads_null", 32, (1,), 1, r"thread \(0, 0, 0\) reads 4 bytes.*code:{}: a null pointer"),
        (
            "writes_behind_shared",
            32,
            (1,),
            1,
            r"thread \(31, 0, 0\) writes.*code:{}: 0 bytes after the block's 128 bytes of dynamic shared",
        ),
        (
            "writes_behind_array",
            8,
            (1,),
            1,
            r"index 8 is outside of its array at code:{}.*thread \(7, 0, 0\)",
        ),
    ],
)
def test_accesses_out_of_bounds(name: str, size: int, grid: tuple[int], n: int, message: str) -> None:
    x, y = torch.ones(size, device="loom"), torch.zeros(size, device="loom")
    block = min(size, 32)
    with pytest.raises(torch.AcceleratorError, match="(?s)" + message.format(line_of(name))) as error:
        kernel(name)(grid, (block,), (x, y, n), shared_mem=4 * block)
    assert "an illegal memory access was encountered" in str(error.value)
    assert error.value.error_code == 700


@pytest.mark.long
def test_of_blocks_that_fail_the_first_is_named() -> None:
    x, y = torch.ones(100, device="loom"), torch.zeros(3200, device="loom")
    kernel("writes_behind")((100,), (32,), (x, y, 100))
    # From block 100 on, all fail: in whichever order the threads of the host run them.
    with pytest.raises(torch.AcceleratorError, match=r"block \(100, 0, 0\), thread \(0, 0, 0\) writes"):
        kernel("writes_behind")((4000,), (32,), (x, y, 100))


@pytest.mark.long
def test_an_overrun_into_a_live_tensor_is_found() -> None:
    x, *blocks = (torch.ones(128, device="loom") for _ in range(200))
    by_address = {block.data_ptr(): block for block in blocks}
    y, other = next(
        (block, by_address[address + 512])
        for address, block in by_address.items()
        if address + 512 in by_address
    )
    with pytest.raises(torch.AcceleratorError, match="0 bytes after the end of argument 2"):
        kernel("writes_behind")((5,), (32,), (x, y, 128))
    assert torch.equal(other.cpu(), torch.ones(128))


@pytest.mark.long
def test_a_table_of_pointers_gives_what_it_points_to() -> None:
    rows = [torch.arange(4.0, device="loom") + 10 * i for i in range(2)]
    table = torch.tensor([row.data_ptr() for row in rows], device="loom")
    y = torch.zeros(4, device="loom")
    kernel("by_table")((1,), (4,), (table, y, 0))
    assert y.tolist() == [10, 11, 12, 13]
    with pytest.raises(
        torch.AcceleratorError, match=rf"thread \(3, 0, 0\) reads.*code:{line_of('by_table')}"
    ):
        kernel("by_table")((1,), (4,), (table, y, 1))


@pytest.mark.long
def test_right_kernels_are_silent() -> None:
    x, y = torch.ones(96, device="loom"), torch.zeros(96, device="loom")
    kernel("writes_behind")((3,), (32,), (x, y, 96))
    assert y.sum().item() == 192
    kernel("writes_behind_shared")((1,), (32,), (x, y, 0), shared_mem=128)
    kernel("writes_behind_array")((1,), (8,), (x, y, 0))


@pytest.mark.long
def test_asserts_traps_and_divisions() -> None:
    x, y = torch.full((8,), 2e9, device="loom"), torch.zeros(8, device="loom")
    with pytest.raises(
        torch.AcceleratorError, match=r"(?s)device-side assert.*code:\d+: void asserts.*: block.*\(3, 0, 0\)"
    ):
        kernel("asserts")((1,), (8,), (x, y, 0))
    with pytest.raises(
        torch.AcceleratorError, match=r"unspecified launch failure\ntraps: __trap\(\) in block"
    ):
        kernel("traps")((1,), (8,), (x, y, 0))
    with pytest.raises(
        torch.AcceleratorError, match=f"integer division by zero at code:{line_of('divides')}"
    ):
        kernel("divides")((1,), (8,), (x, y, 2))
    kernel("divides")((1,), (8,), (x, y, 1))
    assert y.tolist() == [-8] * 8


@pytest.mark.long
@pytest.mark.parametrize("checks", ["0", "1"])
def test_the_smallest_number_divided_by_minus_one_is_itself(
    checks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_LOOM_CHECK_KERNELS", checks)
    x, y = torch.zeros(1, device="loom"), torch.zeros(8, dtype=torch.int32, device="loom")
    kernel("divides_smallest")((1,), (2,), (x, y, -1))
    assert y.tolist() == [-(2**31), 0, -(2**31), -7] * 2


@pytest.mark.long
def test_divisions_by_zero_go_on_in_builds_without_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_CHECK_KERNELS", "0")
    x, y = torch.zeros(8, device="loom"), torch.zeros(28, dtype=torch.int64, device="loom")
    kernel("divides_by_zero")((1,), (1,), (x, y, 7))
    all_bits, of_32_bits = [-1] * 3, [2**32 - 1] * 3
    wide = 2**40 + 7
    assert y.reshape(7, 4).tolist() == [
        [*all_bits, 10],
        [*of_32_bits, 10],
        [255, 255, 255, 10],
        [*all_bits, 10],
        [*of_32_bits, 10],
        [*all_bits, 3 - wide],
        [*all_bits, wide + 3],
    ]


@pytest.mark.long
@pytest.mark.parametrize(("name", "thread"), [("recurses", 3), ("keeps_much", 0)])
def test_a_stack_that_is_used_up(name: str, thread: int) -> None:
    x, y = torch.ones(8, device="loom"), torch.zeros(8, device="loom")
    for _ in range(2):
        with pytest.raises(
            torch.AcceleratorError,
            match=rf"(?s)unspecified launch failure\n{name}.*1024 KiB of stack.*thread \({thread}, 0, 0\)",
        ):
            kernel(name)((1,), (8,), (x, y, 1 << 20))
    kernel("recurses")((1,), (8,), (x, y, 100))
    assert y.tolist()[4:] == [1] * 4


@pytest.mark.long
def test_printf(capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(4, device="loom")
    kernel("prints")((2,), (4,), (x, x, 7))
    assert capfd.readouterr().out == "n is 7\nn is 7\n"


@pytest.mark.long
def test_errors_stay_under_the_name_cuda(fork_cuda: PythonRunner, cache: Path) -> None:
    done = fork_cuda(PROGRAMS / "sticky.py", {"TORCH_LOOM_KERNEL_CACHE": str(cache)}, given=(SOURCE,))
    assert "an illegal memory access was encountered" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(("name", "at"), [("reads_null", "0x0"), ("writes_far", r"0x\w+")])
def test_addresses_without_memory_in_builds_without_checks(
    name: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_LOOM_CHECK_KERNELS", "0")
    x, y = torch.ones(64, device="loom"), torch.zeros(64, device="loom")
    for _ in range(3):
        message = (
            rf"(?s)illegal memory access.*{name}: block \(0, 0, 0\), thread \(0, 0, 0\) accesses {at}, where"
        )
        with pytest.raises(torch.AcceleratorError, match=message):
            kernel(name)((2,), (32,), (x, y, 1))
    assert (x + 1).sum().item() == 128


@pytest.mark.long
def test_lines_are_the_programs_where_it_calls_functions_of_the_headers() -> None:
    x, y = torch.ones(64, device="loom"), torch.zeros(64, device="loom")
    with pytest.raises(torch.AcceleratorError, match=rf"at code:{line_of('adds_behind')}: "):
        kernel("adds_behind")((1,), (64,), (x, y, 1))
