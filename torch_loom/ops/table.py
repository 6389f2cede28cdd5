"""Which family an op belongs to."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from torch_loom.ops.families import data, elementwise, numerics, products
from torch_loom.ops.model import Family

FAMILIES: tuple[Family, ...] = (*elementwise.FAMILIES, *products.FAMILIES, *data.FAMILIES, *numerics.FAMILIES)
"""All entries of the table."""

DEFAULT = Family("other", "bytes_moved", "")
"""What holds for an op that has no entry: it costs the bytes of its operands."""

PUBLIC_NAMES = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": (
        "aten::_scaled_dot_product_fused_attention_overrideable"
    ),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (
        "aten::_scaled_dot_product_fused_attention_overrideable_backward"
    ),
}
"""Names that chips and reports have for ops of the engine."""

_LISTS = "_foreach_"
_OF_KERNELS = frozenset({"engine_infers", "python_infers"})
_GRADIENTS = ("_double_backward", "_backward_backward", "_backward_data", "_backward")


@functools.cache
def _entries() -> dict[str, Family]:
    entries: dict[str, Family] = {}
    for family in FAMILIES:
        for pattern in family.patterns:
            if entries.setdefault(pattern, family) is not family:
                raise ValueError(f"{pattern!r} stands in {entries[pattern].name!r} and in {family.name!r}")
    return entries


@functools.cache
def _prefixes() -> tuple[tuple[str, Family], ...]:
    found = [(name[:-1], family) for name, family in _entries().items() if name.endswith("*")]
    return tuple(sorted(found, key=lambda entry: -len(entry[0])))  # the longest first


def _split(op: str) -> tuple[str, str]:
    """Return name and overload; the namespace stays unless it is aten's."""
    name, _, overload = op.removeprefix("aten::").partition(".")
    return name, overload


def _forms(name: str) -> Iterator[str]:
    """Yield the names under which an op may stand: its own, then those that it is a form of."""
    yield name
    while True:
        if name.endswith("_") and not name.endswith("__"):
            name = name[:-1]
        elif name.startswith(_LISTS):
            name = name.removeprefix(_LISTS)
        elif gradient := next((end for end in _GRADIENTS if name.endswith(end)), None):
            name = name.removesuffix(gradient)
        else:
            return
        yield name


@functools.cache
def _find(op: str) -> tuple[str, Family] | None:
    """Return the pattern that an op stands under, and its family."""
    name, overload = _split(op)
    for form in _forms(name):
        prefixes = (f"{prefix}*" for prefix, _ in _prefixes() if form.startswith(prefix))
        for pattern in (f"{form}.{overload}", form, *prefixes):
            if pattern in _entries():
                return pattern, _entries()[pattern]
    return None


def family_of(op: str) -> Family:
    """Return the entry of an op, ``"aten::add.Tensor"``; :data:`DEFAULT` where the table has none."""
    found = _find(op)
    return DEFAULT if found is None else found[1]


def has_entry(op: str) -> bool:
    """Return whether the table has an entry for the op."""
    return _find(op) is not None


def fused_kernel_of(op: str) -> str | None:
    """Return the one of :data:`FUSED_KERNELS` without which an op is its parts; None: it needs none."""
    pattern, family = _find(op) or ("", DEFAULT)
    return next((kernel for kernel, ops in family.fused.items() if pattern in ops.split()), None)


@functools.cache
def _facts() -> dict[str, frozenset[str]]:
    facts: dict[str, set[str]] = {}
    for family in FAMILIES:
        for fact, ops in family.facts.items():
            for op in ops.split():
                facts.setdefault(op, set()).add(fact)
    return {op: frozenset(own) for op, own in facts.items()}


def facts_of(op: str) -> frozenset[str]:
    """Return which of :data:`torch_loom.ops.FACTS` hold for an op, ``"aten::index.Tensor"``.

    There, a name without an overload is the overload without a name, and ``"copy_.*"`` is all of them. What
    says how outputs are inferred holds for all overloads of a name, which share a kernel.
    """
    name, overload = _split(op)
    own = _facts().get(f"{name}.{overload}" if overload else name, frozenset())
    own = own | _facts().get(f"{name}.*", frozenset()) | (_facts().get(name, frozenset()) & _OF_KERNELS)
    # Optimizers pass learning rate and step as CPU scalars to whole lists of device tensors.
    return own | {"host_scalars"} if name.startswith((_LISTS, "_fused_")) else own
