"""Random numbers in kernels that Inductor compiles: Triton's, where eager ones are CUDA's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_loom.patches.declared import Place, patch

NO_OTHER = "never: no other backend has GPUs' numbers"
_BOUNDS = ", int64_t low, int64_t high"

# Triton's language reference, tl.rand and tl.randn: 31 bits of a word, the sign folded in; Box and Muller's
# cosine of two of them, the first kept above 0.
_UNIFORM = (
    "const auto uniform = [](uint32_t word) { const int32_t whole = static_cast<int32_t>(word); "
    "return static_cast<float>(whole < 0 ? -whole - 1 : whole) * 4.6566127342e-10f; }; "
)
_WORDS = (
    "at::Philox4_32 philox(seed, 0, {call}); uint32_t words[4]; "
    "for (uint32_t& word : words) word = philox(); "
)
_RAND = _WORDS + _UNIFORM + "return uniform(words[{place}]);"
_RANDN = (
    _WORDS
    + _UNIFORM
    + "const uint32_t pair = {place} / 2 * 2; const float first = std::max(1.0e-7f, uniform(words[pair])); "
    "const float angle = 6.283185307179586f * uniform(words[pair + 1]); "
    "const float radius = std::sqrt(-2.0f * std::log(first)); "
    "return radius * ({place} % 2 == 0 ? std::cos(angle) : std::sin(angle));"
)
_RANDINT = (
    _WORDS + "const uint64_t both = words[0] | static_cast<uint64_t>(words[1]) << 32; "
    "return static_cast<int64_t>(both % static_cast<uint64_t>(high - low)) + low;"
)


def _draws_in_fours() -> bool:
    """Whether Triton's kernel would have one dimension: four neighbours then share a call of Philox."""
    from torch._inductor.virtualized import V

    kernel = V.kernel
    return bool(len(kernel.itervars) <= kernel.reduction_depth)


def _lambda(body: str, result: str, parameters: str = "") -> str:
    in_fours = _draws_in_fours() and not parameters
    call, place = ("offset / 4", "(offset % 4)") if in_fours else ("offset", "0")
    text = body.replace("{call}", call).replace("{place}", place)
    return f"[](uint64_t seed, uint32_t offset{parameters}) -> {result} {{ {text} }}"


def _on_device(place: Place) -> bool:
    from torch._inductor.virtualized import V

    from torch_loom import _C

    device = V.graph.current_device
    return (
        device is not None and device.type == place.device and bool(_C.draws_cuda_numbers(device.index or 0))
    )


def _scalar(place: Place, body: str, result: str) -> Callable[..., Any]:
    original = place.original

    def draw(seed: Any, offset: Any, *bounds: Any) -> Any:
        if not _on_device(place):
            return original(seed, offset, *bounds)
        function = _lambda(body, result, _BOUNDS if bounds else "")
        return f"({function})({', '.join(str(given) for given in (seed, offset, *bounds))})"

    return draw


def _vector(place: Place, body: str, result: str) -> Callable[..., Any]:
    original = place.original

    def draw(seed: Any, offset: Any, *bounds: Any) -> Any:
        if not _on_device(place):
            return original(seed, offset, *bounds)
        import torch
        from torch._inductor.codegen.cpp import BracesBuffer, codegen_rand  # type: ignore[attr-defined]

        function = _lambda(body, result, _BOUNDS if bounds else "")
        given = ", ".join(str(given) for given in (seed, "offset[offset_idx]", *bounds))
        line = f"result[offset_idx] = ({function})({given});"
        dtype = torch.int64 if bounds else torch.float32
        return codegen_rand(offset, BracesBuffer(), line, dtype)  # type: ignore[no-untyped-call]

    return draw


@patch("torch._inductor.codegen.cpp:CppOverrides.rand", until=NO_OTHER)
def rand(place: Place) -> Any:
    """From the same seeds, kernels in C++ draw other numbers than Triton's, which are a GPU's."""
    return _scalar(place, _RAND, "float")


@patch("torch._inductor.codegen.cpp:CppVecOverrides.rand", until=NO_OTHER)
def rand_vector(place: Place) -> Any:
    """The same of vectors."""
    return _vector(place, _RAND, "float")


@patch("torch._inductor.codegen.cpp:CppOverrides.randn", until=NO_OTHER)
def randn(place: Place) -> Any:
    """The same of normal numbers."""
    return _scalar(place, _RANDN, "float")


@patch("torch._inductor.codegen.cpp:CppVecOverrides.randn", until=NO_OTHER)
def randn_vector(place: Place) -> Any:
    """The same of vectors of normal numbers."""
    return _vector(place, _RANDN, "float")


@patch("torch._inductor.codegen.cpp:CppOverrides.randint64", until=NO_OTHER)
def randint(place: Place) -> Any:
    """The same of whole numbers, whose seeds have 64 bits in Triton's kernels and 32 in C++."""
    return _scalar(place, _RANDINT, "int64_t")


@patch("torch._inductor.codegen.cpp:CppVecOverrides.randint64", until=NO_OTHER)
def randint_vector(place: Place) -> Any:
    """The same of vectors of whole numbers."""
    return _vector(place, _RANDINT, "int64_t")


def draw_as_triton() -> None:
    """Apply all of them."""
    for each in (rand, rand_vector, randn, randn_vector, randint, randint_vector):
        each.apply()
