"""Modules of other frameworks."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from torch import nn

from torch_loom.compiler.onnx import load_onnx
from torch_loom.errors import PyBudaError
from torch_loom.pybuda.module import Module, PyTorchModule
from torch_loom.pybuda.parameter import Parameter
from torch_loom.pybuda.tensor import to_torch
from torch_loom.pybuda.tf_runner import TFRunner, to_tensorflow


class OnnxModule(PyTorchModule):
    """An ONNX model, which runs as the PyTorch module that is made of it; needs the package onnx.

    Its weights, the initialisers of floating point that have dimensions, are trained as any parameters.

    Args:
        name: unique among the modules that are placed.
        module: an ``onnx.ModelProto``; None: ``onnx_path`` is read.
        onnx_path: of its file, beside which its external data lies.

    Raises:
        OnnxError: the package is not installed, or the model cannot be read.
    """

    def __init__(self, name: str, module: Any, onnx_path: str | os.PathLike[str] | None) -> None:
        if module is None and onnx_path is None:
            raise PyBudaError(f"OnnxModule {name!r} takes an onnx.ModelProto, or the path of a file")
        if isinstance(module, str | os.PathLike):  # in the place of the model
            module, onnx_path = None, module
        folder = None if onnx_path is None else Path(onnx_path).parent
        super().__init__(name, load_onnx(onnx_path) if module is None else load_onnx(module, folder))
        self.onnx_model, self.onnx_path = module, onnx_path

    def __getstate__(self) -> dict[str, Any]:
        # Another process gets the graph and its weights, not the file once more.
        return {**super().__getstate__(), "onnx_model": None}


class TFModule(Module):
    """A TensorFlow (Keras) model, on CPU devices only; needs TensorFlow.

    On a device its trainable variables are parameters of PyTorch's, which optimizers and checkpoints take;
    the variables get their values at the next run, or by ``update``.

    Raises:
        PyBudaError: TensorFlow is not installed.
    """

    def __init__(self, name: str, module: Any) -> None:
        super().__init__(name)
        try:
            tensorflow = importlib.import_module("tensorflow")
        except ImportError as error:
            raise PyBudaError(
                f"TFModule {name!r} needs TensorFlow, which is not installed: pip install "
                "tensorflow-cpu, or use PyTorchModule"
            ) from error
        self.module, self._tensorflow = module, tensorflow
        self._tape: Any = None
        self._runner: TFRunner | None = None
        self.gradients: list[Any] = []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model on TensorFlow tensors made of the arguments."""
        with self._tensorflow.GradientTape(persistent=True) as self._tape:
            return self.call(
                *map(self._converted, args), **{k: self._converted(v) for k, v in kwargs.items()}
            )

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model on TensorFlow tensors."""
        return self.module(*args, **kwargs)

    def backward(self, *args: tuple[Any, Any]) -> None:
        """Run backward from each (output, incoming loss) pair, as ``PyTorchModule.backward``.

        Raises:
            PyBudaError: the outputs come from no ``forward`` of this module, which records the tape.
        """
        if self._tape is None:
            raise PyBudaError(f"TFModule {self.name!r}: backward() needs forward() first")
        outputs, losses = [output for output, _ in args], [loss for _, loss in args]
        variables = self.module.trainable_variables
        self.gradients = self._tape.gradient(outputs, variables, output_gradients=losses)

    def get_parameters(self) -> list[Parameter]:
        """Return the trainable variables as parameters."""
        return [
            Parameter(value.detach(), requires_grad=True, name=name)
            for name, value in self.torch_module().named_parameters()
        ]

    def torch_module(self) -> nn.Module:
        """Return the module that runs the model on a device."""
        if self._runner is None:
            self._runner = TFRunner(self._tensorflow, self.module)
        return self._runner

    def update(self) -> None:
        """Give the model's variables the values that training left in the parameters."""
        if self._runner is not None:
            self._runner.assign(tuple(self._runner.parameters()))

    def _converted(self, value: Any) -> Any:
        return to_tensorflow(self._tensorflow, to_torch(value))


def absent_frontend(class_name: str, package: str) -> type[Module]:
    """Return a class that says on its first use why these models cannot be read."""

    def refuse(self: Module, name: str, *args: Any, **kwargs: Any) -> None:
        raise PyBudaError(
            f"{class_name} {name!r}: models of {package} are not read here; export the model to ONNX and use "
            "OnnxModule, or use PyTorchModule"
        )

    return type(
        class_name, (Module,), {"__init__": refuse, "__doc__": f"A model of {package}; not read here."}
    )
