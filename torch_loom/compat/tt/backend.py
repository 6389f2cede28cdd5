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
from torch_loom.ops import family_of


def tt_backend(
    graph: fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None, options: Any = None
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's: floats in the format of their dtype, products as the options say.

    Args:
        options: of :data:`~torch_loom.compat.tt.options.EFFECTS`.

    Raises:
        CompilerOptionError: an option that does not exist, is declined, or has a bad value.
    """
    own = parsed(options)
    overrides = Overrides(is_partial=True)
    if own.experimental_weight_dtype:
        # Of a product's operands the second is the weight; what is no parameter stays as it is.
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
    written.replace(own.export_path / f"{stem}.json")
    (own.export_path / f"{stem}.py").write_text(f"import torch\n{graph.code}", encoding="utf-8")


def _zeros(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a graph's inputs that returns zeros in the shapes of its results."""
    from torch._subclasses import FakeTensorMode

    def results(*inputs: Any) -> Any:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            made = run(*inputs)
        return torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda one: torch.zeros(one.shape, dtype=one.dtype, device=one.device), made
        )

    return results
