"""Which chips have matrix instructions with a rule, and which instruction libraries take there."""

from __future__ import annotations

import functools

import torch

from torch_loom import _C
from torch_loom.errors import FormatError
from torch_loom.numerics.tensor_cores.rules import Rule, block_rules, instruction_depth, instruction_rule

# The architecture of the chips whose instructions have a rule. Those of the rtx5090 are not known.
ARCHITECTURES = {
    "v100": "Volta",
    "v100_pcie": "Volta",
    "t4": "Turing",
    "a100": "Ampere",
    "a100_pcie40": "Ampere",
    "a10": "Ampere",
    "a40": "Ampere",
    "rtx3090": "Ampere",
    "l4": "Ada Lovelace",
    "l40s": "Ada Lovelace",
    "rtx4090": "Ada Lovelace",
    "h100": "Hopper",
    "h200": "Hopper",
    "b200": "Blackwell",
}
# The instruction that libraries take, and its shape up to K.
_INSTRUCTIONS = {
    "Volta": ("mma", "m8n8"),
    "Turing": ("mma", "m16n8"),
    "Ampere": ("mma", "m16n8"),
    "Ada Lovelace": ("mma", "m16n8"),
    "Hopper": ("wgmma", "m64n8"),
    "Blackwell": ("tcgen05mma", "m64n8"),
}
NAMES = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "tf32",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
}


def chip_rule(chip: str, a: torch.dtype, b: torch.dtype, op: str = "tensor_core") -> Rule:
    """Return the rule of the instruction that libraries use for products of two dtypes on a chip.

    Raises:
        FormatError: the chip has no rule, or none for these dtypes.
    """
    if not isinstance(chip, str) or chip not in ARCHITECTURES:
        raise FormatError(
            f"{op}: chip is {chip!r}, whose matrix instructions have no rule; allowed: "
            f"{', '.join(ARCHITECTURES)}"
        )
    rule = _rule_of(ARCHITECTURES[chip], a, b)
    if rule is None:
        raise FormatError(f"{op}: no rule for {a} with {b} on {chip}; allowed: {_operands_of(chip)}")
    return rule


@functools.cache
def _rule_of(architecture: str, a: torch.dtype, b: torch.dtype) -> Rule | None:
    """The rule of the instruction for two dtypes; None: there is none."""
    if a not in NAMES or b not in NAMES:
        return None
    instruction, shape = _INSTRUCTIONS[architecture]
    depth = instruction_depth(architecture, NAMES[a])
    try:
        return instruction_rule(architecture, instruction, f"{shape}k{depth}.f32.{NAMES[a]}.{NAMES[b]}")
    except FormatError:
        return None


def _operands_of(chip: str) -> str:
    """The dtypes that a chip's instructions multiply, for an error."""
    known = [each for each in NAMES if _rule_of(ARCHITECTURES[chip], each, each) is not None]
    words = [f"{each} (as TF32)" if each is torch.float32 else str(each) for each in known]
    mixed = " (these two also with one another)" if torch.float8_e4m3fn in known else ""
    return f"two operands of {', '.join(words)}{mixed}"


@functools.cache
def block_rules_of(architecture: str) -> _C.BlockRules:
    """The rules of an architecture's instructions as launches take them. Each call of a module asks."""
    return _C.BlockRules(block_rules(architecture))
