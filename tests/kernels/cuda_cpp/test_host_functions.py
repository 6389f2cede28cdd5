"""Functions of CUDA's runtime library over rows and boxes of memory, and headers that programs include."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

from tests.conftest import PythonRunner
from tests.kernels.cuda_cpp.test_thrust import PROGRAMS, library_of, pointer
from torch_loom.kernels.cuda_cpp import nvcc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = library_of("host", tmp_path_factory.mktemp("host"))
    names = "rows", "boxes", "shared_with_the_host", "facts_of_devices_and_streams", "names_of_errors"
    for name in (*names, "driver"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


@pytest.mark.parametrize("width", [1, 7])
def test_rows_with_a_pitch(program: ctypes.CDLL, width: int) -> None:
    x, out = torch.randn(5, width), torch.zeros(5, width)
    assert program.rows(pointer(x), pointer(out), width, 5) is None
    x[4] = 0
    assert torch.equal(out, x + 1)


def test_boxes_of_rows(program: ctypes.CDLL) -> None:
    out = torch.zeros(2, 3, 4, dtype=torch.uint8)
    assert program.boxes(pointer(out)) is None
    expected = torch.ones_like(out)
    expected[:, 1:3, 1:3] = 7
    assert torch.equal(out, expected)


def test_the_driver_library(program: ctypes.CDLL) -> None:
    assert program.driver() is None


def test_memory_of_the_host_and_callbacks(program: ctypes.CDLL) -> None:
    x = torch.tensor([1.0, 0.0])
    assert program.shared_with_the_host(pointer(x)) is None
    assert x.tolist() == [3, 5]


def test_facts_of_devices_and_streams(program: ctypes.CDLL) -> None:
    assert program.facts_of_devices_and_streams() is None


def test_the_order_of_the_default_stream(tmp_path: Path) -> None:
    library = library_of("default_stream", tmp_path)
    library.order.restype = ctypes.c_char_p
    assert library.order() is None


def test_names_of_errors(program: ctypes.CDLL) -> None:
    assert program.names_of_errors() is None


def test_complex_numbers(program: ctypes.CDLL) -> None:
    a, b = 3 - 4j, 0.5 + 2j
    z = torch.tensor([a.real, a.imag, b.real, b.imag], dtype=torch.float64)
    out = torch.zeros(4, 2, dtype=torch.float64)
    program.complex_numbers(pointer(z), pointer(out))
    expected = torch.view_as_real(torch.tensor([a * b, a / b, a.conjugate(), abs(a)]).to(torch.cdouble))
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize(("chip", "threads"), [("p4", 2048), ("t4", 1024), ("a10", 1536), ("h100", 2048)])
def test_sizes_of_cards(program: ctypes.CDLL, fork_cuda: PythonRunner, chip: str, threads: int) -> None:
    fork_cuda(PROGRAMS / "sizes_of_cards.py", {"TORCH_LOOM_CHIP": chip}, given=(program._name, threads))


def compiles(code: str, folder: Path, *options: str) -> bool:
    source = folder / "code.cu"
    source.write_text(code)
    return nvcc.main(["-c", str(source), *options, "-o", str(source.with_suffix(".o"))]) == 0


def test_a_header_of_cuda_by_an_option(tmp_path: Path) -> None:
    header = tmp_path / "first.h"
    header.write_text("#include <cublas_v2.h>\n")
    code = "__global__ void k(int* x) { __shared__ int s; s = CUBLAS_OP_N; *x = s; }\n"
    assert compiles(code, tmp_path, "-include", str(header))


def test_more_shared_memory_than_a_block_has(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = "__global__ void k(int* x) {{ __shared__ int a[64][64], b[{}]; b[0] = a[0][1]; *x = b[0]; }}\n"
    assert compiles(code.format(8192), tmp_path)
    assert not compiles(code.format(8193), tmp_path)
    assert "code.cu:1:" in (said := capfd.readouterr().err)
    assert "uses too much shared data" in said


TEMPLATES = """
template <typename T> struct Cast {
  template <int n> static __device__ void to(T* x) { *x = n; }
};
template <typename T, int n> __global__ void k(T* x) { Cast<T>::to<n>(x); }
void f(float* x) { k<float, 2><<<1, 1>>>(x); }
"""


def test_member_templates_without_the_word(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert compiles(TEMPLATES, tmp_path)
    assert capfd.readouterr().err == ""
    assert not compiles(TEMPLATES + "void g() { h(); }", tmp_path)
    assert "'h' was not declared" in capfd.readouterr().err.replace("\u2018", "'").replace("\u2019", "'")


UNKNOWN = """
static constexpr __device__ double wide(float x) {
  double y = 0;
  asm("ctv.f64.f32 %0, %1;" : "=d"(y) : "f"(x));
  return y;
}
template <int arch> __device__ void wait(unsigned at) {
  if constexpr (arch >= 900) asm("mbarrier.inval.b64 [%0];" ::"r"(at));
}
__global__ void one() { wait<ARCH>(0); }
"""


def test_unknown_ptx_is_refused_where_it_is_called(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert compiles(UNKNOWN, tmp_path, "-DARCH=800")
    assert not compiles(UNKNOWN, tmp_path, "-DARCH=900")
    what = "inline PTX 'mbarrier.inval.b64 [%0]': not supported by torch-loom's CUDA C++"
    assert capfd.readouterr().err.endswith(f"code.cu:8: error: {what}\n")
