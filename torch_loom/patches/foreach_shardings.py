"""How tensors of a list are sharded, found once for those that are alike.

A step of an optimizer is a few ops over all parameters. For each of them DTensor finds a strategy of its own,
and looks at the whole list again: seconds an op of 700 parameters, while few of them differ.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from torch_loom.patches.declared import Place, patch

_SHARDING = "torch.distributed.tensor._sharding_prop"
# Ops whose tensors of one place in their lists belong together, as PyTorch knows them.
_BY_ELEMENT = ("aten::_foreach_", "aten::_amp_foreach_", "aten::_fused_")


def apply() -> None:
    """Apply both patches; imports DTensor."""
    telling_specs.apply()
    strategies_of_alike.apply()


@patch(f"{_SHARDING}:_propagate_use_strided_shard_flag")
def telling_specs(place: Place) -> Any:
    """PyTorch looks for strided shards among all tensors of a list, again for each of them: the time of an op
    grows by the square of the list.
    """
    original = place.original
    last = threading.local()

    @functools.wraps(original)
    def propagate(strategy: Any, schema: Any) -> None:
        if getattr(last, "schema", lambda: None)() is not schema:
            last.specs = _telling(schema)
            last.schema = weakref.ref(schema)
        if last.specs:
            original(strategy, SimpleNamespace(args_spec=last.specs))

    return propagate


def _telling(schema: Any) -> tuple[Any, ...]:
    """Return specs with strided shards, one of each flag: all that decides."""
    from torch.distributed.tensor.placement_types import _StridedShard

    found: dict[object, Any] = {}
    for spec in schema.args_spec:
        if any(isinstance(placement, _StridedShard) for placement in spec.placements):
            found.setdefault(spec.use_strided_shard_as_shard_order, spec)
    return tuple(found.values())


@patch(f"{_SHARDING}:_expand_single_dim_strategy_to_mesh")
def strategies_of_alike(place: Place) -> Any:
    """PyTorch finds a strategy for each tensor of a list, with what the whole list has in its key, and most
    tensors of a list are like another one.
    """
    original = place.original

    @functools.wraps(original)
    def expand(mesh: Any, schema: Any, info: Any, output_meta: Any) -> Callable[..., Any]:
        from torch.distributed.tensor._op_schema import OpSchema, TupleStrategy

        alike = _alike(schema, output_meta)
        if alike is None:
            return original(mesh, schema, info, output_meta)  # type: ignore[no-any-return]
        firsts, places = alike
        arguments = tuple(
            TupleStrategy([argument.children[first] for first in firsts])
            if isinstance(argument, TupleStrategy)
            else argument
            for argument in schema.args_schema
        )
        few = OpSchema(schema.op, arguments, schema.kwargs_schema, schema_info=schema.schema_info)
        metas = None if output_meta is None else tuple(output_meta[first] for first in firsts)
        expanded = original(mesh, few, info, metas)

        def of_all(op: Any, _args: Any, _kwargs: Any) -> Any:
            found = expanded(op, few.args_meta, few.kwargs_meta).children
            return TupleStrategy([found[place] for place in places])

        return of_all

    return expand


def _alike(schema: Any, output_meta: Any) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return the first of each kind of element, and the kind of each; None where PyTorch is to be asked."""
    from torch.distributed.tensor._op_schema import OpStrategy, TupleStrategy

    lists = [argument.children for argument in schema.args_schema if isinstance(argument, TupleStrategy)]
    if not lists or not schema.op.name().startswith(_BY_ELEMENT):
        return None
    if len({len(children) for children in lists}) != 1:
        return None
    kinds: dict[object, int] = {}
    firsts: list[int] = []
    places: list[int] = []
    for number, elements in enumerate(zip(*lists, strict=True)):
        if not all(isinstance(each, OpStrategy) and len(each.strategies) == 1 for each in elements):
            return None
        specs = tuple(each.strategies[0].output_specs for each in elements)
        try:
            kind = kinds.setdefault((specs, output_meta and output_meta[number]), len(kinds))
        except TypeError:  # sizes that are symbols
            return None
        if kind == len(firsts):
            firsts.append(number)
        places.append(kind)
    return firsts, places
