"""Find the module that makes the first NaN.

    TORCH_LOOM_DEVICE_NAME=rbln python examples/rbln/find_nan.py

A hook after every module asks the device whether the output has a NaN. Here a softmax written by hand
overflows: in float16, exp(12) is infinite, and inf / inf is no number.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class NaiveSoftmax(nn.Module):
    """A softmax that does not subtract the maximum first."""

    def forward(self, x: Tensor) -> Tensor:
        return x.exp() / x.exp().sum(-1, keepdim=True)


class NaNError(ArithmeticError):
    """A module whose inputs are numbers returned something that is none."""


def check(name: str) -> Callable[..., None]:
    """Return a hook that raises NaNError when the module with this name returns a NaN."""

    def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        number = int(output.isnan().sum())
        if number:
            largest = max(float(x.abs().max()) for x in inputs)
            raise NaNError(
                f"{name} ({type(module).__name__}) made {number} NaN of {output.numel()} values on "
                f"{output.device}; its largest input is {largest:.1f}"
            )

    return hook


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), NaiveSoftmax(), nn.Linear(4, 1))
model = model.half().to("rbln")
for name, module in model.named_modules():
    if not list(module.children()):
        module.register_forward_hook(check(name))

x = torch.randn(4, 8, device="rbln").half()
with torch.no_grad():
    for scale in (1, 100):
        try:
            print(f"inputs times {scale}: {model(x * scale).flatten().tolist()}")
        except NaNError as error:
            print(f"inputs times {scale}: {error}")
