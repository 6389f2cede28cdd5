"""Triton's compiler for the host: Triton's own front end, then torch_loom's reader, lowering and emission."""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton._C.libtriton import ir, passes
from triton.backends.compiler import GPUTarget, Language
from triton.backends.nvidia.compiler import CUDABackend

from torch_loom import config, late
from torch_loom.errors import UnsupportedKernelError
from torch_loom.kernels.triton.float_reductions import as_sums, named_again

# Dynamo imports Triton, and any optimizer Dynamo: these are for programs that have kernels.
emission = late.lazily("torch_loom.kernels.emission")
library = late.lazily("torch_loom.kernels.triton.library")
outline = late.lazily("torch_loom.kernels.outline")
ttir = late.lazily("torch_loom.kernels.ttir")


class HostBackend(CUDABackend):  # type: ignore[misc]
    """Compiles kernels for the host. What programs ask of the target, NVIDIA's backend answers."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self.binary_ext = "cpp"

    def hash(self) -> str:
        """Return what identifies the compiler: Triton keeps what it makes under this name."""
        return f"torch-loom-{_sources()}-{self.target.arch}{'-watched' if config.watches_kernels() else ''}"

    def add_stages(self, stages: dict[str, Any], options: Any, language: Any = None) -> None:
        """Name the stages: Triton's own IR, then C++."""
        if language is not None and getattr(language, "name", "TRITON") != "TRITON":
            raise UnsupportedKernelError(
                "Gluon kernels are written for the registers and barriers of one GPU and not compiled for "
                "the host. Write them with Triton's language."
            )
        capability = self._parse_arch(options.arch) if hasattr(self, "_parse_arch") else self.target.arch
        stages["ttir"] = lambda module, metadata: self._make_ttir(module, metadata, options, capability)
        stages["cpp"] = lambda module, metadata: self._make_cpp(module, metadata, options)

    def _make_ttir(self, module: Any, metadata: dict[str, Any], options: Any, capability: int) -> Any:
        module = as_sums(module)
        manager = ir.pass_manager(module.context)
        manager.enable_debug()
        passes.common.add_inliner(manager)
        # Before others make loads of descriptors that no pass turns into addresses.
        _add_rewrites(manager)
        passes.common.add_canonicalizer(manager)
        passes.ttir.add_combine(manager)
        passes.ttir.add_reorder_broadcast(manager)
        passes.common.add_cse(manager)
        passes.common.add_symbol_dce(manager)
        passes.ttir.add_loop_unroll(manager)
        _run(manager, module, "make_ttir")
        return module

    def _make_cpp(self, module: Any, metadata: dict[str, Any], options: Any) -> bytes:
        is_watched = config.watches_kernels()
        known = ttir.read(named_again(str(_with_addresses(module))))
        emitted = emission.emit(known, is_watched=is_watched, num_threads=32 * options.num_warps)
        metadata["name"] = emitted.name
        for key, value in _NO_GPU.items():
            metadata[key] = value
        header = {
            "parameters": emitted.parameters,
            "are_written": list(emitted.are_written),
            "block_bytes": emitted.block_bytes,
            "is_watched": is_watched,
            "checks": emitted.checks,
            "outline": outline.outline_of(known),
            "fuses": bool(getattr(options, "enable_fp_fusion", True)),
            "options": {key: value for key, value in vars(options).items() if _is_plain(value)},
            "arch": self.target.arch,
        }
        return f"{library.HEADER}{json.dumps(header)}\n{emitted.text}".encode()


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def made_for_gpu(asm: Any, key: str) -> str | bytes:
    """Return what NVIDIA's backend makes of a kernel, for programs that look at it.

    Args:
        asm: the texts that Triton keeps of a kernel.
        key: which one: ttgir, llir, ptx, cubin.
    """
    header = library.header_of(asm["cpp"].decode())
    target = GPUTarget("cuda", header["arch"], 32)
    backend = CUDABackend(target)
    options = backend.parse_options(header["options"])
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with tempfile.NamedTemporaryFile("w", suffix=".ttir") as file:
        file.write(asm["source"] if "source" in asm else asm["ttir"])
        file.flush()
        module = ir.parse_mlir_module(file.name, context)
    module.context = context
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, Language.TRITON)
    metadata: dict[str, Any] = {}
    for name, stage in stages.items():
        module = stage(module, metadata)
        if name == key:
            return module if isinstance(module, bytes) else str(module)
    raise KeyError(f"Unknown key: {key!r}")


# What Triton's launcher asks of a kernel and no kernel here needs.
_NO_GPU = {
    "shared": 0,
    "tmem_size": 0,
    "global_scratch_size": 0,
    "global_scratch_align": 1,
    "profile_scratch_size": 0,
    "profile_scratch_align": 1,
    "tensordesc_meta": None,
}


def _add_rewrites(manager: Any) -> None:
    """Have blocks in memory, which block pointers and descriptors name, become blocks of addresses."""
    for name in ("add_rewrite_tensor_pointer", "add_rewrite_tensor_descriptor_to_pointer"):
        rewrite = getattr(passes.ttir, name, None)
        if rewrite is not None:
            rewrite(manager)


def _with_addresses(module: Any) -> Any:
    """Return a module without descriptors: one that a program has given as text may have them."""
    text = str(module)
    if "!tt.tensordesc" not in text and "tt.make_tensor_ptr" not in text:
        return module
    module = as_sums(module)
    manager = ir.pass_manager(module.context)
    manager.enable_debug()
    _add_rewrites(manager)
    passes.common.add_canonicalizer(manager)
    passes.ttir.add_combine(manager)
    passes.ttir.add_reorder_broadcast(manager)
    passes.common.add_cse(manager)
    _run(manager, module, "make_cpp")
    return module


def _run(manager: Any, module: Any, name: str) -> None:
    try:
        try:
            manager.run(module, name)
        except TypeError:  # before Triton 3.5
            manager.run(module)
    except RuntimeError as error:
        raise UnsupportedKernelError(
            "Triton's own passes cannot bring this kernel into blocks of addresses; what they say of it "
            "stands above, with its line. A reduction by a descriptor can be written with tl.atomic_add."
        ) from error


@functools.cache
def _sources() -> str:
    """Return the digest of what makes the text of a kernel."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256(triton.__version__.encode())
    parts = [
        path
        for part in ("ttir", "lowering", "ptx", "emission", "triton")
        for path in (folder / part).rglob("*")
    ]
    for path in sorted([folder / "outline.py", *parts]):
        if path.suffix in (".py", ".h"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:32]
