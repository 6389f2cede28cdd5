"""torch.loom.jiterator: a program's C++ text as one element-wise kernel."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import torch_loom.device as loom
from torch_loom import _C
from torch_loom.device.jiterator import (
    _common_dtype,
    _create_jit_fn,
    _create_multi_output_jit_fn,
)
from torch_loom.errors import CompilationError, ConfigurationError, DeviceTypeError, ShapeError
from torch_loom.kernels import host_compiler

PROGRAMS = Path(__file__).parent / "programs" / "jiterator"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner
    from tests.gate import Gate

AXPY = "template <typename T> T axpy(T x, T y, T alpha) { return x + alpha * y; }"
DIVIDE = "template <typename T> T divide(T x, T y) { return x / y; }"


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("kernels") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_LOOM_KERNEL_CACHE", str(folder))
        yield folder


def on(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.to("loom") for tensor in tensors]


@pytest.mark.long
@pytest.mark.exercises("torch.cuda.jiterator._create_jit_fn")
def test_broadcasting_strides_and_keywords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A folder and a kernel of its own: what a process has loaded is not compiled again.
    cache = tmp_path / "cache"
    monkeypatch.setenv("TORCH_LOOM_KERNEL_CACHE", str(cache))
    axpy = _create_jit_fn(AXPY.replace("axpy", "broadcast"), alpha=1.0)
    x, y = torch.randn(3, 4, 5), torch.randn(4, 1)
    a, b = on(x, y)
    assert torch.equal(axpy(a, b).cpu(), x + y)
    assert torch.equal(axpy(a, b, alpha=0.5).cpu(), x + 0.5 * y)
    assert torch.equal(axpy(a.permute(2, 0, 1), b.squeeze()[:3, None]).cpu(), x.permute(2, 0, 1) + y[:3])
    assert torch.equal(axpy(a[:, ::2, 1:4], b[::2]).cpu(), x[:, ::2, 1:4] + y[::2])
    lasting = axpy(a.mT, a.mT)
    assert lasting.stride() == a.mT.stride()
    assert torch.equal(lasting.cpu(), 2 * x.mT)
    assert axpy(*on(torch.tensor(2.0), torch.tensor(3.0))).item() == 5
    assert axpy(a[:0], b).shape == (0, 4, 5)
    assert not axpy(a.requires_grad_(), b).requires_grad
    # One library for all of these, and nothing left beside it but its seal and the lock.
    assert sorted(path.suffix for path in cache.iterdir()) == ["", ".sha256", ".so"]


@pytest.mark.long
@pytest.mark.exercises("torch.cuda.jiterator._create_jit_fn")
@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (torch.float16, torch.bool, torch.float16),
        (torch.complex64, torch.float64, torch.complex128),
    ],
)
def test_type_promotion(first: torch.dtype, second: torch.dtype, common: torch.dtype) -> None:
    axpy = _create_jit_fn(AXPY, alpha=1)
    x, y = torch.tensor([1.5, -2.0, 0.0]).to(first), torch.tensor([1, 0, 3]).to(second)
    result = axpy(*on(x, y), alpha=2)
    assert result.dtype == common
    wide = torch.complex128 if common.is_complex else torch.float64
    assert torch.equal(result.cpu(), (x.to(wide) + 2 * y.to(wide)).to(common))


def test_a_tensor_without_dimensions_does_not_widen() -> None:
    half, whole, double = torch.ones(2, dtype=torch.half), torch.ones(2).int(), torch.tensor(1.0).double()
    for tensors, expected in (
        ([half, double], torch.float16),
        ([whole, double], torch.float64),
        ([half, whole], torch.float16),
        ([double, torch.tensor(1)], torch.float64),
    ):
        assert _common_dtype(tensors) == expected


@pytest.mark.long
@pytest.mark.exercises("torch.cuda.jiterator._create_multi_output_jit_fn")
def test_multiple_outputs_and_helpers() -> None:
    code = """
    template <typename T> T twice(T x) { return 2 * x; }
    template <typename T> void both(T x, T y, T& sum, T& most) { sum = x + y; most = twice(::max(x, y)); }
    """
    both = _create_multi_output_jit_fn(code, 2)
    assert both.kernel_name == "both"
    x, y = on(torch.tensor([1, 5]).bfloat16(), torch.tensor([4, 2]).bfloat16())
    assert [r.tolist() for r in both(x, y)] == [[5, 7], [8, 10]]
    with pytest.raises(ValueError, match="9"):
        _create_multi_output_jit_fn(code, 9)


@pytest.mark.long
@pytest.mark.exercises("torch.cuda.jiterator._create_jit_fn")
def test_it_is_one_kernel_on_the_current_stream(gate: Gate) -> None:
    axpy = _create_jit_fn(AXPY, alpha=1.0)
    x, y = on(torch.ones(4), torch.ones(4))
    axpy(x, y)
    kernels = []

    def read(kind: int, device: int, stream: int, name: str, operands: Any, *rest: Any) -> None:
        if kind == _C.TapeReader.KERNEL:
            kernels.append((name, stream, [operand[-1] for operand in operands]))

    reader = _C.TapeReader(read)
    side = loom.Stream()
    gate.hold(side)
    reader.attach()
    try:
        with side:
            z = axpy(x, y, alpha=3.0)
    finally:
        reader.detach()
    assert kernels == [("axpy", side.stream_id, [True, False, False])]
    assert not side.query()
    gate.open()
    side.synchronize()
    assert z.tolist() == [4.0] * 4


@pytest.mark.long
@pytest.mark.exercises("torch.cuda.jiterator._create_jit_fn")
def test_in_a_graph() -> None:
    axpy = _create_jit_fn(AXPY, alpha=1.0)
    x, y = on(torch.ones(4), torch.ones(4))
    graph = loom.LoomGraph()
    with loom.graph(graph):
        z = axpy(x, y)
    x.fill_(5)
    graph.replay()
    assert z.tolist() == [6.0] * 4


@pytest.mark.long
def test_what_fails_in_the_code_is_raised_where_it_is_waited_for() -> None:
    divide = _create_jit_fn(DIVIDE)
    x, zero, lowest, minus = on(*(torch.tensor([v]) for v in (1, 0, -(2**63), -1)))
    with pytest.raises(RuntimeError, match="'divide' failed: integer division by zero"):
        divide(x, zero)
    with pytest.raises(RuntimeError, match="most negative"):
        divide(lowest, minus)
    side = loom.Stream()
    with side:
        divide(x, zero)
    with pytest.raises(RuntimeError, match=r"test_jiterator\.py"):
        side.synchronize()
    assert divide(x, minus).tolist() == [-1]


@pytest.mark.long
def test_errors_name_what_is_wrong() -> None:
    (x,) = on(torch.ones(2))
    axpy = _create_jit_fn(AXPY, alpha=1.0)
    broken = _create_jit_fn("template <typename T> T broken(T x) { return undeclared; }")
    for call, kind, message in (
        (lambda: broken(x), CompilationError, "(?s)undeclared.*The code:.*T broken"),
        (lambda: _create_jit_fn("int f(int x) { return x; }"), CompilationError, "int f"),
        (lambda: _create_jit_fn(b""), TypeError, "bytes"),  # type: ignore[arg-type]
        (lambda: _create_jit_fn(AXPY, alpha="1"), TypeError, "alpha"),  # type: ignore[arg-type]
        (lambda: axpy(x, x, beta=1), KeyError, "beta"),
        (lambda: axpy(), ValueError, "got 0"),
        (lambda: axpy(*[x] * 9), ValueError, "got 9"),
        (lambda: axpy(x, 1), TypeError, "Argument 1"),
        (lambda: axpy(x, torch.ones(2)), DeviceTypeError, "argument 1.*loom:0.*cpu"),
        (lambda: axpy(x, x.to("loom:1")), DeviceTypeError, "loom:1"),
        (lambda: axpy(x, torch.ones(3, device="loom")), ShapeError, r"\(2,\), \(3,\)"),
        (lambda: axpy(x, x, alpha=1j), TypeError, "complex"),
        (lambda: axpy(x, x.to_sparse()), TypeError, "sparse"),
    ):
        with pytest.raises(kind, match=message):
            call()


def test_the_cache_survives_a_killed_process(cache: Path) -> None:
    # This may be the first test of its process.
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [sys.executable, str(PROGRAMS / "holds_the_cache.py"), str(cache)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with (cache / "lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder.kill()
    text = f'extern "C" const char* {host_compiler.ENTRY}(void* const*, const long*, const char*)'
    text += "{ return nullptr; }"
    assert host_compiler.compiled(text, text, divides_whole_numbers=False) != 0
    assert not (cache / "building.so").exists()


def entry(number: int) -> str:
    """A text of its own for each number, so that each is compiled."""
    text = (
        f'/* {number} */ extern "C" const char* {host_compiler.ENTRY}(void* const*, const long*, const char*)'
    )
    return text + "{ return nullptr; }"


def compiled(number: int) -> int:
    """Compile the text of a number as a process does that has compiled nothing yet."""
    host_compiler._functions.clear()
    return host_compiler.compiled(entry(number), entry(number), divides_whole_numbers=False)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one library in a cache of its own."""
    monkeypatch.setattr(host_compiler, "_functions", {})
    monkeypatch.setenv("TORCH_LOOM_KERNEL_CACHE", os.fspath(tmp_path / "cache"))
    compiled(0)
    (path,) = (tmp_path / "cache").glob("*.so")
    return path


def truncate(path: Path) -> None:
    os.truncate(path, 1000)


def replace(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"\xff\xfe damaged")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "truncated": truncate,
    "replaced": replace,
    "empty": lambda path: os.truncate(path, 0),
    "without its seal": lambda path: path.with_suffix(".sha256").unlink(),
    "with the seal of another": lambda path: path.with_suffix(".sha256").write_bytes(b"\xff"),
    # Whole, and a library, but with no kernel in it.
    "another library": lambda path: host_compiler.kept.keep(copied(path, torch._C.__file__), path),
}


def copied(path: Path, source: str) -> Path:
    return Path(shutil.copy(source, path.with_name("other.so")))


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_made_again(fork_loom: PythonRunner, tmp_path: Path, damage: str) -> None:
    env = {"TORCH_LOOM_KERNEL_CACHE": os.fspath(tmp_path / "cache")}
    fork_loom(PROGRAMS / "a_damaged_library_is_made_again.py", env, given=entry(0))
    (library,) = (tmp_path / "cache").glob("*.so")
    DAMAGES[damage](library)
    fork_loom(PROGRAMS / "a_damaged_library_is_made_again.py", env, given=entry(0))
    assert host_compiler.kept.is_whole(library)


def test_code_that_others_may_write_is_not_loaded(library: Path) -> None:
    folder, moved = library.parent, library.with_suffix(".moved")
    for mode in (0o777, 0o1777, 0o770):
        folder.chmod(mode)
        with pytest.raises(ConfigurationError, match=f"TORCH_LOOM_KERNEL_CACHE.*mode {mode:04o}"):
            compiled(0)
    folder.chmod(0o755)
    library.chmod(0o766)
    with pytest.raises(ConfigurationError, match="others may write"):
        compiled(0)
    library.rename(moved)
    library.symlink_to(moved)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        compiled(0)
    library.unlink()
    library.mkdir()
    with pytest.raises(ConfigurationError, match="is no file"):
        compiled(0)
    library.rmdir()
    assert compiled(0) != 0


@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser can give files to another user")
def test_code_of_another_user_is_not_loaded(library: Path) -> None:
    os.chown(library, 12345, -1)
    with pytest.raises(ConfigurationError, match="belongs to user 12345"):
        compiled(0)
    os.chown(library.parent, 12345, -1)
    with pytest.raises(ConfigurationError, match="not this user's to write"):
        compiled(0)


@pytest.mark.parametrize("text", [".", "kernels", ""])
def test_the_cache_is_any_folder(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", os.fspath(tmp_path / "home"))
    monkeypatch.setenv("TORCH_LOOM_KERNEL_CACHE", text)
    monkeypatch.setattr(host_compiler, "_functions", {})
    assert compiled(1) != 0
    (path,) = tmp_path.rglob("*.so")
    assert path.parent == tmp_path / (text or "home/.cache/torch-loom/kernels")


@pytest.mark.parametrize(
    ("compiler", "message"),
    [
        ("/bin/true", r"'/bin/true' succeeded, but wrote no building\.o"),
        ("writes-nothing-useful", "cannot be loaded.*TORCH_LOOM_COMPILER"),
    ],
)
def test_compilers_that_make_no_library(
    compiler: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "writes-nothing-useful"
    script.write_text(
        "#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\necho no library > $1\n", encoding="utf-8"
    )
    script.chmod(0o700)
    path = compiler if "/" in compiler else os.fspath(script)
    monkeypatch.setattr(host_compiler, "_functions", {})
    monkeypatch.setenv("TORCH_LOOM_KERNEL_CACHE", os.fspath(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_LOOM_COMPILER", path)
    for _ in range(2):
        with pytest.raises(CompilationError, match=message):
            compiled(0)


def test_bad_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (x,) = on(torch.ones(2))
    monkeypatch.setenv("TORCH_LOOM_COMPILER", "no-such-compiler")
    with pytest.raises(CompilationError, match="TORCH_LOOM_COMPILER"):
        _create_jit_fn(AXPY.replace("axpy", "other"), alpha=1.0)(x, x)
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("TORCH_LOOM_KERNEL_CACHE", os.fspath(tmp_path / "file"))
    with pytest.raises(ConfigurationError, match="TORCH_LOOM_KERNEL_CACHE"):
        _create_jit_fn(AXPY.replace("axpy", "other"), alpha=1.0)(x, x)


@pytest.mark.long
@pytest.mark.parametrize(
    "setting",
    [
        "TORCH_LOOM_PROTECT=1",
        "TORCH_LOOM_MEMORY_POLICY=lazy",
        "TORCH_LOOM_LAUNCH=chaos",
        "TORCH_LOOM_DRIVER=null",
    ],
)
def test_under_other_settings(fork_loom: PythonRunner, cache: Path, setting: str) -> None:
    name, _, value = setting.partition("=")
    fork_loom(
        PROGRAMS / "under_other_settings.py",
        {"TORCH_LOOM_KERNEL_CACHE": str(cache), name: value},
        given=(AXPY, value),
    )


KERNEL = """
extern "C" __global__ void add(const float* a, const float* b, float* c, int n, double factor) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i < n) c[i] = a[i] + factor * b[i];
}
"""


@pytest.mark.long
@pytest.mark.exercises("torch.cuda._compile_kernel")
def test_compile_kernel() -> None:
    add = loom._compile_kernel(KERNEL, "add")
    a, b = on(torch.randn(100), torch.randn(100))
    c = torch.zeros(100, device="loom")
    add(grid=(3, 1, 1), block=(32, 1, 1), args=[a, b, c, 90, 2.0])
    expected = torch.cat([a + 2 * b, torch.zeros(10, device="loom")])
    expected[90:] = 0
    torch.testing.assert_close(c, expected[:100])
    for call, kind, message in (
        (lambda: add((1,), (1,), [a, b, c]), RuntimeError, "takes 5 arguments, but got 3"),
        (lambda: add((1,), (1,), [a, b, 1, 1, 1.0]), RuntimeError, "pointer"),
        (lambda: add((1,), (1,), [a, torch.ones(1), c, 1, 1.0]), DeviceTypeError, "argument 1"),
        (lambda: add((0,)), ValueError, "grid"),
        (lambda: add(shared_mem=-1), ValueError, "shared_mem"),
        (lambda: add((1,), (32, 33)), ValueError, "1024 threads"),
        (lambda: add((1,), (1, 1, 65)), ValueError, "64 threads along z"),
        (lambda: add((1, 65536)), ValueError, "65535"),
        (lambda: add(shared_mem=48 << 10), RuntimeError, "not configured.*set_shared_memory_config"),
        (lambda: add.set_shared_memory_config(1 << 20), RuntimeError, "exceeds device limit"),
        (lambda: add(args=(2**64,)), ValueError, "64 bits"),
        (lambda: add(args=["x"]), TypeError, "'x'"),
        (
            lambda: loom._compile_kernel("__global__ void f() {\nextern __shared__ int x;}", "f"),
            CompilationError,
            "code:2.*declares an array",
        ),
        (lambda: loom._compile_kernel("__global__ void f() {", "f"), CompilationError, "expected"),
    ):
        with pytest.raises(kind, match=message):
            call()
