"""A TensorFlow model as a PyTorch module: its variables are parameters, its gradients PyTorch's."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import nn


def to_tensorflow(tensorflow: Any, value: torch.Tensor) -> Any:
    """Return a copy as a TensorFlow tensor; bfloat16, which numpy lacks, as float32."""
    host = value.detach().cpu()
    return tensorflow.convert_to_tensor((host.float() if host.dtype is torch.bfloat16 else host).numpy())


def from_tensorflow(value: Any) -> torch.Tensor:
    """Return a copy of a TensorFlow tensor."""
    return torch.tensor(value.numpy())


class TFRunner(nn.Module):
    """Runs a TensorFlow model in a stage.

    Its parameters are copies of the model's trainable variables, which get the parameters' values before each
    run. A copy of this module has parameters of its own and runs the same model.

    Args:
        tensorflow: the package.
        model: called with TensorFlow tensors.
    """

    def __init__(self, tensorflow: Any, model: Any) -> None:
        super().__init__()
        self._tensorflow, self._model = tensorflow, model
        self._lock = threading.Lock()
        for name, variable in named_variables(model).items():
            self.register_parameter(name, nn.Parameter(from_tensorflow(variable)))

    def __deepcopy__(self, memo: dict[int, Any]) -> TFRunner:
        made = TFRunner(self._tensorflow, self._model)
        made._lock = self._lock
        for own, copy in zip(self.parameters(), made.parameters(), strict=True):
            copy.data = own.detach().clone()
        memo[id(self)] = made
        return made

    def forward(self, *values: torch.Tensor) -> Any:
        """Run the model, and let PyTorch's autograd reach its variables and the inputs."""
        if any(value.is_meta for value in values):
            return self._shapes(values)
        made = _Bridge.apply(self, len(values), *values, *self.parameters())  # type: ignore[no-untyped-call]
        return made[0] if len(made) == 1 else made

    def compute(self, inputs: tuple[torch.Tensor, ...], parameters: tuple[torch.Tensor, ...]) -> Any:
        """Return the tape, what it watched, and the outputs, as TensorFlow has them."""
        tensorflow = self._tensorflow
        with self._lock:
            self.assign(parameters)
            given = [to_tensorflow(tensorflow, value) for value in inputs]
            with tensorflow.GradientTape() as tape:
                for value in given:
                    if value.dtype.is_floating:
                        tape.watch(value)
                outputs = tensorflow.nest.flatten(self._model(*given))
            return tape, [*given, *named_variables(self._model).values()], outputs

    def gradients(
        self, tape: Any, watched: list[Any], outputs: list[Any], losses: list[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """Return the gradient of each that was watched; None: nothing depends on it."""
        pairs = [
            (output, to_tensorflow(self._tensorflow, loss))
            for output, loss in zip(outputs, losses, strict=True)
            if loss is not None
        ]
        found = tape.gradient(
            [output for output, _ in pairs], watched, output_gradients=[g for _, g in pairs]
        )
        # A gather's gradient is of slices; converting makes it a tensor.
        dense = [None if each is None else self._tensorflow.convert_to_tensor(each) for each in found]
        return [None if each is None else from_tensorflow(each) for each in dense]

    def assign(self, parameters: tuple[torch.Tensor, ...]) -> None:
        """Give the model's variables these values."""
        for variable, value in zip(named_variables(self._model).values(), parameters, strict=True):
            variable.assign(to_tensorflow(self._tensorflow, value))

    def _shapes(self, values: tuple[torch.Tensor, ...]) -> Any:
        tensorflow = self._tensorflow
        specs = [
            tensorflow.TensorSpec(tuple(value.shape), to_tensorflow(tensorflow, _empty(value)).dtype)
            for value in values
        ]
        traced = tensorflow.function(lambda *given: self._model(*given)).get_concrete_function(*specs)
        outputs = tensorflow.nest.flatten(traced.structured_outputs)
        made = tuple(
            torch.empty(
                tuple(output.shape),
                dtype=from_tensorflow(tensorflow.zeros((), output.dtype)).dtype,
                device="meta",
            )
            for output in outputs
        )
        return made[0] if len(made) == 1 else made


def named_variables(model: Any) -> dict[str, Any]:
    """Return the trainable variables by names of parameters, ``dense_kernel``."""
    found: dict[str, Any] = {}
    for variable in model.trainable_variables:
        path = getattr(variable, "path", None) or variable.name
        name = "".join(each if each.isalnum() else "_" for each in path.partition(":")[0])
        unique, number = name, 0
        while unique in found:
            number += 1
            unique = f"{name}_{number}"
        found[unique] = getattr(variable, "value", variable) if hasattr(variable, "path") else variable
    return found


def _empty(value: torch.Tensor) -> torch.Tensor:
    return torch.zeros((), dtype=value.dtype)


class _Bridge(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, runner: TFRunner, num_inputs: int, *tensors: torch.Tensor) -> Any:
        inputs, parameters = tensors[:num_inputs], tensors[num_inputs:]
        ctx.runner = runner
        ctx.kept = runner.compute(inputs, parameters)
        ctx.dtypes = [tensor.dtype for tensor in tensors]
        return tuple(from_tensorflow(output) for output in ctx.kept[2])

    @staticmethod
    def backward(ctx: Any, *losses: Any) -> Any:
        tape, watched, outputs = ctx.kept
        found = ctx.runner.gradients(tape, watched, outputs, list(losses))
        cast = [
            None if each is None else each.to(dtype) for each, dtype in zip(found, ctx.dtypes, strict=True)
        ]
        return (None, None, *cast)
