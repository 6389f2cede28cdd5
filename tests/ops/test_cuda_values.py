"""The tables of CUDA's values and of ops that draw random numbers say what the core has."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from torch_loom.ops import facts_of
from torch_loom.ops.cuda_values import CUDA_VALUES

CSRC = Path(__file__).parents[2] / "csrc" / "torch"


def names_in(text: str) -> set[str]:
    return set(re.findall(r'\{"aten::([\w.]+)",', text))


def test_the_core_has_a_kernel_for_each_value() -> None:
    text = (CSRC / "cuda" / "values" / "values.cpp").read_text(encoding="utf-8")
    assert names_in(text) == {op for value in CUDA_VALUES for op in value.ops}
    assert all(value.source and value.where and value.value for value in CUDA_VALUES)


def test_the_table_names_what_draws() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (CSRC / "random").glob("*.cpp"))
    drawing = names_in(text)
    assert drawing == {op for op in drawing if "draws" in facts_of(f"aten::{op}")}
    named = {
        name
        for schema in torch._C._jit_get_all_schemas()
        for name in [
            schema.name.removeprefix("aten::") + f".{schema.overload_name}" * bool(schema.overload_name)
        ]
        if schema.name.startswith("aten::") and "draws" in facts_of(f"aten::{name}")
    }
    assert named <= drawing
