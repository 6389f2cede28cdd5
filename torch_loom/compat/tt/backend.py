"""``torch.compile(backend="tt")``: graphs in the formats of a Tensix chip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from torch_loom.compat.tt.options import FIDELITIES, WEIGHT_FORMATS, TTOptions, parsed
from torch_loom.compiler import artifacts
from torch_loom.compiler.backend import chip_of, loom_backend
from torch_loom.compiler.overrides import Overrides, applied
from torch_loom.compiler.passes.formats import OPERANDS
from torch_loom.compiler.predicates import Named, Predicate
from torch_loom.config.files import whole_file
from torch_loom.errors import CompilerOptionError
from torch_loom.ops import family_of


def tt_backend(
    graph: fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None, options: Any = None
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's: floats in the format of their dtype, products as the options say.

    Args:
        mode: one of PyTorch's; it changes nothing.
        options: of :data:`~torch_loom.compat.tt.options.EFFECTS`.

    Raises:
        CompilerOptionError: an option or mode that does not exist, or an option that is declined or has a bad
            value.
    """
    own = parsed(options, mode)
    overrides = Overrides(is_partial=True)
    if own.experimental_weight_dtype:
        # As in tt-mlir: of a product's operands the second is the weight, and what is no parameter stays.
        rule = {OPERANDS: {1: (WEIGHT_FORMATS[own.experimental_weight_dtype], False)}}
        overrides.precisions.append((Predicate(_is_product, "products"), rule))
    if own.export_path is not None:
        _export(graph, own)
    with applied(overrides):
        run = loom_backend(
            graph,
            example_inputs,
            options={
                "numerics": "formats",
                "math_fidelity": FIDELITIES[own.math_fidelity],
                "accumulate_df": "Float32" if own.fp32_dest_acc_en else "Float16_b",
                "enable_auto_fusing": own.optimization_level > 0,
                "replay": own.enable_trace,
            },
        )
    return _zeros(run) if own.dry_run else run


def _is_product(op: Named) -> bool:
    return family_of(op.kind).shape_class == "matmul"


def _export(graph: fx.GraphModule, own: TTOptions) -> None:
    assert own.export_path is not None
    written = artifacts.write(graph, chip_of(graph), own.export_path, option="export_path")
    stem = "_".join(filter(None, (own.export_model_name, written.stem)))
    try:
        written.replace(own.export_path / f"{stem}.json")
        with whole_file(own.export_path / f"{stem}.py") as unfinished:
            unfinished.write_text(f"import torch\n{graph.code}", encoding="utf-8")
    except OSError as error:
        path = str(own.export_path)
        raise CompilerOptionError(f"export_path={path!r} cannot be written: {error}") from error


def _zeros(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a graph's inputs that returns zeros in the shapes of its results.

    What has a gradient has one of zeros.
    """
    from torch._subclasses import FakeTensorMode

    def results(*inputs: Any) -> Any:
        with FakeTensorMode(allow_non_fake_inputs=True):
            made = run(*inputs)
        found, tree = torch.utils._pytree.tree_flatten(made)
        places = [n for n, each in enumerate(found) if isinstance(each, torch.Tensor)]
        zeros = _Zeros.apply([found[n] for n in places], *inputs)  # type: ignore[no-untyped-call]
        for place, zero in zip(places, zeros, strict=True):
            found[place] = zero
        return torch.utils._pytree.tree_unflatten(found, tree)

    return results


class _Zeros(torch.autograd.Function):
    """Zeros in the shapes of tensors, with gradients where these have some."""

    @staticmethod
    def forward(ctx: Any, like: Sequence[torch.Tensor], *inputs: Any) -> tuple[torch.Tensor, ...]:
        made = tuple(torch.zeros(each.shape, dtype=each.dtype, device=each.device) for each in like)
        ctx.mark_non_differentiable(*(a for a, b in zip(made, like, strict=True) if not b.requires_grad))
        # Not saved: their values may change, and only shapes are asked for.
        ctx.shapes = [
            (each.shape, each.dtype, each.device) if isinstance(each, torch.Tensor) else None
            for each in inputs
        ]
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        found: list[torch.Tensor | None] = []
        for known, is_asked in zip(ctx.shapes, ctx.needs_input_grad[1:], strict=True):
            shape, dtype, device = known or ((), None, None)
            found.append(torch.zeros(shape, dtype=dtype, device=device) if known and is_asked else None)
        return (None, *found)
