"""Prints a digest of random numbers of each kind, and the offset of the generator afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = "cuda"
FLOATS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
INTEGERS = {
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}
KEPT = 8192  # elements of a mask that were kept
SIZES = {"3x5x7": (3, 5, 7), "270341": (270_341,), "1M": (1 << 20,), "255x1025": (255, 1025)}

found: dict[str, list[object]] = {}


def put(name: str, draw: Callable[[], torch.Tensor], seed: int) -> None:
    torch.manual_seed(seed)
    result = draw().detach()
    raw = result.contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    offset = torch.cuda.default_generators[0].get_offset()
    found[name] = [hashlib.sha256(raw.tobytes()).hexdigest()[:16], int(offset)]


def floats(name: str, sizes: tuple[int, ...]) -> None:
    dtype = FLOATS[name.split("/")[-1]]
    ones = torch.ones(sizes, device=DEVICE, dtype=dtype)
    shares = torch.linspace(0, 1, ones.numel(), device=DEVICE).reshape(sizes)
    put(f"rand/{name}", lambda: torch.rand(sizes, device=DEVICE, dtype=dtype), 0)
    put(f"uniform/{name}", lambda: torch.empty_like(ones).uniform_(-2, 5), 3)
    put(f"bernoulli_p/{name}", lambda: torch.empty_like(ones).bernoulli_(0.3), 3)
    put(f"bernoulli_tp/{name}", lambda: torch.empty_like(ones).bernoulli_(shares), 3)
    put(f"dropout0.1/{name}", lambda: functional.dropout(ones, 0.1), 11)
    put(f"dropout0.5/{name}", lambda: functional.dropout(ones, 0.5), 11)
    put(f"native_dropout/{name}", lambda: torch.native_dropout(ones, 0.25, True)[1], 11)


def integers(name: str, sizes: tuple[int, ...]) -> None:
    dtype = INTEGERS[name.split("/")[-1]]
    put(f"random_/{name}", lambda: torch.empty(sizes, device=DEVICE, dtype=dtype).random_(), 9)
    if dtype != torch.bool:
        put(f"random_from/{name}", lambda: torch.empty(sizes, device=DEVICE, dtype=dtype).random_(3, 77), 9)
        put(f"randint/{name}", lambda: torch.randint(0, 50, sizes, device=DEVICE, dtype=dtype), 9)


def layouts(name: str, dtype: torch.dtype) -> None:
    def ones(*sizes: int) -> torch.Tensor:
        return torch.ones(*sizes, device=DEVICE, dtype=dtype)

    def dropped(kind: str, x: torch.Tensor) -> None:
        put(f"lay/dropout_{kind}/{name}", lambda: functional.dropout(x, 0.5), 1)

    dropped("t", ones(301, 500).t())
    dropped("step", ones(100_000)[::2])
    dropped("off", ones(100_000)[1:])
    dropped("cl", ones(4, 5, 30, 30).to(memory_format=torch.channels_last))
    dropped("exp", ones(1, 500).expand(300, 500))


def choices() -> None:
    for size in (2, 1000, 2049, 65_536, 1 << 20):
        put(f"randperm/{size}", lambda size=size: torch.randperm(size, device=DEVICE), 4)
    for size in (3, 1000, 5000):
        weights = torch.linspace(0.1, 2, size, device=DEVICE)
        rows = weights.repeat(7, 1)
        put(f"multinomial_repl/{size}", lambda w=weights: torch.multinomial(w, 50, True), 4)
        put(f"multinomial_norepl/{size}", lambda w=weights: torch.multinomial(w, 3, False), 4)
        put(f"multinomial_2d_repl/{size}", lambda w=rows: torch.multinomial(w, 50, True), 4)


def masks_of_attention() -> None:
    """Of scores that are all equal and values that tell places apart: zeros say what was dropped."""
    for name in ("f16", "bf16"):
        for batch, heads, length, width in ((2, 3, 128, 64), (1, 2, 257, 32), (2, 2, 512, 128)):
            sizes = batch, heads, length, width
            query = torch.zeros(sizes, device=DEVICE, dtype=FLOATS[name])
            value = torch.eye(length, width, device=DEVICE, dtype=FLOATS[name]).expand(sizes).contiguous()
            for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):

                def attend(query=query, value=value, backend=backend) -> torch.Tensor:
                    with sdpa_kernel(backend):
                        return functional.scaled_dot_product_attention(query, query, value, dropout_p=0.3)

                case = f"{batch}x{heads}x{length}x{width}"
                put(
                    f"mask/{backend.name}/{name}/{case}",
                    lambda attend=attend: attend().flatten()[:KEPT] != 0,
                    6,
                )


if __name__ == "__main__":
    for size_name, sizes in SIZES.items():
        for dtype_name in FLOATS:
            floats(f"{size_name}/{dtype_name}", sizes)
        for dtype_name in INTEGERS:
            integers(f"{size_name}/{dtype_name}", sizes)
    for dtype_name, dtype in FLOATS.items():
        layouts(dtype_name, dtype)
    choices()
    masks_of_attention()
    print(json.dumps(found))
