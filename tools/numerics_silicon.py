"""Measures how far ``fast`` is from ``silicon`` and what both cost, and writes both into docs/numerics.md.

python -m tools.numerics_silicon
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tools.blocks import markdown_table, replace_block
from torch_loom import numerics
from torch_loom.numerics import DataFormat, MathFidelity
from torch_loom.numerics._ops import ops
from torch_loom.numerics.tensor_cores import chip_rule

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "numerics.md"
DEPTHS = (256, 1024, 4096)
SUMS = (DataFormat.Float16_b, DataFormat.Float32)
KINDS = ("normal", "ReLU", "softmax", "magnitudes")
FIDELITIES = (MathFidelity.LoFi, MathFidelity.HiFi2, MathFidelity.HiFi4)
SIZE = 1024
ROUNDS = 5


def relative(found: Tensor, exact: Tensor) -> float:
    """The norm of the error over that of the exact result."""
    return float((found.double() - exact).norm() / exact.norm())


def distance(depth: int, accumulate: DataFormat) -> list[str]:
    """Errors of one row: Bfp8_b operands from a normal distribution, HiFi2."""
    generator = torch.Generator().manual_seed(depth)
    a = numerics.quantize(torch.randn(128, depth, generator=generator), DataFormat.Bfp8_b, rule="packer")
    b = torch.randn(128, depth, generator=generator)
    b = numerics.quantize(b, DataFormat.Bfp8_b, rule="host").T
    exact = a.double() @ b.double()
    how = {"fidelity": MathFidelity.HiFi2, "accumulate": accumulate}
    fast = numerics.matmul(a, b, **how)  # type: ignore[arg-type]
    silicon = numerics.matmul(a, b, mode="silicon", **how)  # type: ignore[arg-type]
    equal = float((fast == silicon).double().mean())
    return [
        str(depth),
        accumulate.name,
        f"{relative(silicon, exact):.1e}",
        f"{relative(fast, exact):.1e}",
        f"{equal:.1%}",
    ]


def activations(kind: str, depth: int, generator: torch.Generator) -> Tensor:
    """Operands of a kind, 128 rows."""
    values = torch.randn(128, depth, generator=generator)
    made = {"ReLU": values.relu(), "softmax": (2 * values).softmax(-1), "magnitudes": values.abs()}
    return made.get(kind, values)


def products_of_hifi3(kind: str, depth: int, accumulate: DataFormat) -> list[str]:
    """One row: how far ``fast`` is from ``silicon`` in HiFi3, of two products and of one of all bits."""
    generator = torch.Generator().manual_seed(depth)
    a = activations(kind, depth, generator)
    b = activations("magnitudes" if kind == "magnitudes" else "", depth, generator)
    a, b = (numerics.quantize(item, DataFormat.Float16_b) for item in (a, b))
    silicon = numerics.matmul(a, b.T, fidelity=MathFidelity.HiFi3, accumulate=accumulate, mode="silicon")
    found = [
        numerics.quantize(
            numerics.matmul(a, b.T, fidelity=fidelity, accumulate=DataFormat.Float32), accumulate
        )
        for fidelity in (MathFidelity.HiFi3, MathFidelity.HiFi4)
    ]
    in_pairs, alone = (relative(each, silicon.double()) for each in found)
    return [
        kind,
        str(depth),
        accumulate.name,
        f"{in_pairs:.2e}",
        f"{alone:.2e}",
        f"{alone / in_pairs - 1:+.1%}",
    ]


def seconds(call: Callable[[], object]) -> float:
    """The shortest CPU time of a few calls."""
    call()
    taken = []
    for _ in range(ROUNDS):
        began = time.process_time()
        call()
        taken.append(time.process_time() - began)
    return min(taken)


def costs() -> list[list[str]]:
    """Rows of what a product of 1024 x 1024 x 1024 costs, over PyTorch's float32 product, on one thread."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(SIZE, SIZE, generator=generator).bfloat16().float() for _ in range(2))
    plain = seconds(lambda: a @ b)
    rows = []
    for accumulate in SUMS:
        for fidelity in FIDELITIES:
            how = {"fidelity": fidelity, "accumulate": accumulate, "mode": "silicon"}
            taken = seconds(lambda how=how: numerics.matmul(a, b, **how))  # type: ignore[misc]
            rows.append([f"Tensix, {fidelity.name}, sums in {accumulate.name}", f"{taken / plain:.1f}"])
    for chip, dtype in (("h100", torch.float16), ("a100", torch.float16), ("h100", torch.float8_e4m3fn)):
        rule = chip_rule(chip, dtype, dtype)
        left, right = a.to(dtype).float(), b.to(dtype).float()
        taken = seconds(
            lambda left=left, right=right, rule=rule: ops.tensor_core_matmul(  # type: ignore[misc]
                left, right, *rule.arguments[:6], rule.depth
            )
        )
        rows.append([f"{chip}, {str(dtype).removeprefix('torch.')}", f"{taken / plain:.1f}"])
    return rows


def main() -> None:
    distances = [distance(depth, accumulate) for depth in DEPTHS for accumulate in SUMS]
    errors = markdown_table(["K", "sums", "silicon, error", "fast, error", "equal results"], distances)
    rows = [products_of_hifi3(kind, depth, sums) for sums in SUMS for kind in KINDS for depth in DEPTHS]
    hifi3 = markdown_table(["operand 0", "K", "sums", "two products", "one", "growth"], rows)
    times = markdown_table(["product", "over float32"], costs())
    body = (
        "`python -m tools.numerics_silicon` compares both modes with the exact product of the same operands "
        "(Bfp8_b, normally distributed, HiFi2): norm of the error over that of the result, and the share of "
        f"results that are equal.\n\n{errors}\n\n"
        "`fast` computes HiFi3 by two products, or by one that sees all bits. The distance of both from "
        "`silicon`, of Float16_b operands: with sums of 16 bits one is as near, and is what `fast` takes; "
        f"with sums in Float32 it takes two.\n\n{hifi3}\n\n"
        f"A product of {SIZE} x {SIZE} x {SIZE} on one thread with the {ops._kernels()} kernels, over "
        f"PyTorch's float32 product:\n\n{times}"
    )
    print(body)
    PAGE.write_text(replace_block(PAGE.read_text(), "silicon", body))


if __name__ == "__main__":
    main()
