"""Sources that are linked into one library, and have functions of the device alike."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from torch_loom import _C
from torch_loom.kernels.cuda_cpp import nvcc
from torch_loom.kernels.cuda_cpp.own_functions import keep_own_functions

SOURCES = Path(__file__).parent / "programs" / "sources"


def linked(folder: Path, *names: str, options: Sequence[str] = ()) -> ctypes.CDLL:
    """Compile sources one by one, and link them into a library."""
    objects = []
    for name in names:
        objects.append(str(folder / f"{name}.o"))
        words = ["-c", "-Xcompiler", "-fPIC", *options, str(SOURCES / f"{name}.cu"), "-o", objects[-1]]
        assert nvcc.main(words) == 0
    output = folder / "linked.so"
    assert nvcc.main(["-shared", *objects, _C.__file__, "-o", str(output)]) == 0
    return ctypes.CDLL(str(output))


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("--loom-checked",), ("--loom-races",)])
def test_functions_of_the_device_are_their_sources_own(tmp_path: Path, options: tuple[str, ...]) -> None:
    library = linked(tmp_path, "first", "second", options=options)
    listed = subprocess.run(["nm", str(tmp_path / "second.o")], check=True, capture_output=True, text=True)
    checks = re.findall(r" (\w) __[at]san_\w*(?:read|load)", listed.stdout)
    assert set(checks) == ({"t"} if options else set()), "what is called before accesses is the source's, too"
    x = torch.zeros(512, dtype=torch.int32, device="loom")
    assert library.both(ctypes.c_void_p(x.data_ptr())) == 0
    sums = torch.arange(128).view(4, 32).sum(1).repeat_interleave(32)
    expected = torch.cat([sums + 1, 3 * sums, -sums, 5 * sums])
    assert torch.equal(x.cpu().long(), expected)


@pytest.mark.long
@pytest.mark.parametrize("options", [("-rdc=true",), ("-rdc=true", "--loom-checked")])
def test_relocatable_code_calls_functions_of_other_sources(tmp_path: Path, options: tuple[str, ...]) -> None:
    library = linked(tmp_path, "called", "callee", options=options)
    x = torch.full((128,), -1, dtype=torch.int32, device="loom")
    assert library.called_from_another(ctypes.c_void_p(x.data_ptr())) == 0
    assert x.tolist() == list(range(128))


def test_objects_without_functions_of_the_device_stay_as_they_are(tmp_path: Path) -> None:
    source, made = tmp_path / "host.cpp", tmp_path / "host.o"
    source.write_text("template <typename T> T twice(T x) { return 2 * x; }\nint f() { return twice(1); }\n")
    subprocess.run(["c++", "-c", str(source), "-o", str(made)], check=True)
    before = made.read_bytes()
    keep_own_functions(made)
    assert made.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host.cpp", "host.o"]
