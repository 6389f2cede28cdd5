"""Operators that random graphs are made of: those of ``pybuda.op``, and those of PyTorch."""

from __future__ import annotations

from torch_loom.pybuda.op_repo.datatypes import (
    OperandNumRange,
    OperatorDefinition,
    OperatorParam,
    OperatorParamNumber,
    OperatorRepository,
    ShapeCalculationContext,
    TensorShape,
)

__all__ = [
    "OperandNumRange",
    "OperatorDefinition",
    "OperatorParam",
    "OperatorParamNumber",
    "OperatorRepository",
    "ShapeCalculationContext",
    "TensorShape",
    "pybuda_operator_repository",
    "pytorch_operator_repository",
]

_UNARY = {
    "exp": "Exp",
    "reciprocal": "Reciprocal",
    "buffer": "Buffer",
    "sqrt": "Sqrt",
    "relu": "Relu",
    "leaky_relu": "LeakyRelu",
    "nop": "Identity",
    "gelu": "Gelu",
    "log": "Log",
    "sigmoid": "Sigmoid",
    "clip": "Clip",
    "sine": "Sine",
    "cosine": "Cosine",
    "abs": "Abs",
    "tanh": "Tanh",
    "cumsum": "CumSum",
    "argmax": "Argmax",
    "logical_not": "LogicalNot",
    "dropout": "Dropout",
    "pow": "Pow",
    "tilizer": "Tilize",
}
_BINARY = {
    "add": "Add",
    "divide": "Divide",
    "subtract": "Subtract",
    "multiply": "Multiply",
    "maximum": "Max",
    "minimum": "Min",
    "heaviside": "Heaviside",
    "binary_stack": "BinaryStack",
    "power": "Power",
    "greater": "Greater",
    "greater_equal": "GreaterEqual",
    "less": "Less",
    "less_equal": "LessEqual",
    "equal": "Equal",
    "not_equal": "NotEqual",
    "logical_and": "LogicalAnd",
    "matmul": "Matmul",
}
_NARY = {
    "where": ("Where", (3, 3)),
    "interleave": ("Interleave", (1, 10)),
    "concatenate": ("Concatenate", (1, 10)),
    "stack": ("Stack", (2, 4)),
}
_NUMBERS: dict[str, list[OperatorParamNumber]] = {
    "leaky_relu": [OperatorParamNumber("alpha", float, 0, 100)],
    "clip": [OperatorParamNumber("min", float, 0, 100), OperatorParamNumber("max", float, 0, 100)],
    "pow": [OperatorParamNumber("exponent", float, 0, 100)],
    "interleave": [OperatorParamNumber("axis", int, -3, -3), OperatorParamNumber("stride", int, 1, 1)],
    "concatenate": [OperatorParamNumber("axis", int, -10, 10)],
    "stack": [OperatorParamNumber("axis", int, 1, 10)],
}
_OPERANDS = {
    **{name: (op, (1, 1)) for name, op in _UNARY.items()},
    **{name: (op, (2, 2)) for name, op in _BINARY.items()},
    **_NARY,
}
pybuda_operator_repository = OperatorRepository(
    [
        OperatorDefinition(name, f"pybuda.op.{op}", operands, forward_params=_NUMBERS.get(name, []))
        for name, (op, operands) in _OPERANDS.items()
    ]
)

_SIZES = [OperatorParamNumber("in_features", int, 10, 50), OperatorParamNumber("out_features", int, 10, 50)]
_KERNEL = [
    OperatorParamNumber("in_channels", int, 10, 50),
    OperatorParamNumber("out_channels", int, 10, 50),
    OperatorParamNumber("kernel_size", int, 3, 3),
    OperatorParamNumber("stride", int, 1, 1),
    OperatorParamNumber("padding", int, 1, 1),
]
_FUNCTIONS = {"relu": 1, "sqrt": 1, "tanh": 1, "add": 2, "sub": 2, "mul": 2, "div": 2, "ge": 2, "matmul": 2}
pytorch_operator_repository = OperatorRepository(
    [
        OperatorDefinition("linear", "torch.nn.Linear", 1, True, constructor_params=_SIZES),
        OperatorDefinition("conv2d", "torch.nn.Conv2d", 1, True, constructor_params=_KERNEL),
        *(OperatorDefinition(name, f"torch.{name}", number) for name, number in _FUNCTIONS.items()),
        OperatorDefinition("eltwise", "torch.add", 2),
    ]
)
