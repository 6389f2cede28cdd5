"""Optimizers, by PyBuda's names; each makes a PyTorch optimizer over a device's parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import torch

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.wanted import check_number

Torch = torch.Tensor


class Optimizer:
    """What all optimizers share.

    Args:
        parameters: the parameters to train, PyBuda's.
        device_params: train all parameters of the device that the optimizer is given to.

    Raises:
        PyBudaError: both, or neither.
    """

    def __init__(self, learning_rate: float, parameters: Iterable[Any] | None, device_params: bool) -> None:
        if (parameters is None) == (not device_params):
            raise PyBudaError(
                f"{type(self).__name__} takes either parameters=[…] or device_params=True (all parameters of "
                "its device), not both or neither"
            )
        check_number("learning_rate", learning_rate)
        self.learning_rate = learning_rate
        self.device_params = device_params
        self.parameters = None if parameters is None else list(parameters)

    def get_type(self) -> str:
        """Return the optimizer's name in small letters."""
        return type(self).__name__.lower()

    def get_param_dict(self) -> dict[str, float]:
        """Return the numbers that the optimizer uses."""
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }

    def set_optimizer_parameters(self, learning_rate: float | None = None) -> None:
        """Set the learning rate for the steps to come."""
        if learning_rate is not None:
            check_number("learning_rate", learning_rate)
            self.learning_rate = learning_rate

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON has it, as ``of_data`` reads it.

        Raises:
            PyBudaError: it is of a class of the program's own.
        """
        if KINDS.get(type(self).__name__) is not type(self):
            raise PyBudaError(
                f"an image holds no optimizer of the program's own class {type(self).__name__}; it holds "
                f"{', '.join(KINDS)}"
            )
        taken = inspect.signature(type(self)).parameters
        found = {name: _plain(value) for name, value in vars(self).items() if name in taken}
        if self.parameters is not None:
            found["parameters"] = [parameter.get_name() for parameter in self.parameters]
        return {"type": type(self).__name__, **found}

    def get_pytorch_optimizer(self, parameters: Any, lr: float | None = None) -> torch.optim.Optimizer:
        """Return a PyTorch optimizer of the same arithmetic.

        Args:
            parameters: an iterable of torch parameters, or a dict of name to parameter.
            lr: in place of the learning rate.
        """
        values = list(parameters.values()) if isinstance(parameters, dict) else list(parameters)
        return self._make(values, self.learning_rate if lr is None else lr)

    def chosen(self, named: dict[str, Any]) -> list[Any]:
        """Return those of a device's parameters (by name) that this optimizer trains.

        Raises:
            PyBudaError: a parameter that the device does not have.
        """
        if self.parameters is None:
            return list(named.values())
        names = [parameter.get_name() for parameter in self.parameters]
        missing = [str(name) for name in names if name not in named]
        if missing:
            raise PyBudaError(f"the device has no parameters {', '.join(missing)}; it has {', '.join(named)}")
        return [named[name] for name in names]

    def torch_parameter_update(self, *, parameter: Torch, gradient: Torch, lr: float | None = None) -> Torch:
        """Return what a parameter becomes in the first step with this gradient."""
        value = torch.nn.Parameter(parameter.detach().clone())
        value.grad = gradient.detach().clone()
        self.get_pytorch_optimizer([value], lr).step()
        return value.detach()

    def _make(self, parameters: list[Any], lr: float) -> torch.optim.Optimizer:
        raise PyBudaError(f"{type(self).__name__} has no step: use SGD, Adam, AdamW, LAMB or LARS")


class SGD(Optimizer):
    """Gradient descent: ``p -= lr * g``."""

    def __init__(
        self, learning_rate: float, parameters: Iterable[Any] | None = None, device_params: bool = False
    ) -> None:
        super().__init__(learning_rate, parameters, device_params)

    def _make(self, parameters: list[Any], lr: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=lr, foreach=False)


class Adam(Optimizer):
    """Adam; with ``enable_adam_w`` the weight decay is AdamW's, apart from the gradient."""

    def __init__(
        self,
        learning_rate: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        bias_correction: bool = True,
        parameters: Iterable[Any] | None = None,
        device_params: bool = False,
        enable_adam_w: bool = False,
    ) -> None:
        super().__init__(learning_rate, parameters, device_params)
        check_number("beta1", beta1, 0.0, 1.0)
        check_number("beta2", beta2, 0.0, 1.0)
        check_number("epsilon", epsilon)
        check_number("weight_decay", weight_decay)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.weight_decay, self.bias_correction = weight_decay, bias_correction
        self.enable_adam_w = enable_adam_w

    def _make(self, parameters: list[Any], lr: float) -> torch.optim.Optimizer:
        if not self.bias_correction:
            return _Stepper(parameters, lr, self._step_uncorrected)
        kind = torch.optim.AdamW if self.enable_adam_w else torch.optim.Adam
        return kind(
            parameters,
            lr=lr,
            betas=(self.beta1, self.beta2),
            eps=self.epsilon,
            weight_decay=self.weight_decay,
            foreach=False,
        )

    def _step_uncorrected(self, p: Torch, grad: Torch, kept: dict[str, Any], lr: float) -> None:
        if self.enable_adam_w:
            p.mul_(1 - lr * self.weight_decay)
        elif self.weight_decay:
            grad = grad.add(p, alpha=self.weight_decay)
        mean, square = _moments(kept, p, grad, self.beta1, self.beta2)
        p.addcdiv_(mean, square.sqrt().add_(self.epsilon), value=-lr)


class AdamW(Adam):
    """Adam whose weight decay is apart from the gradient."""

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        bias_correction: bool = True,
        parameters: Iterable[Any] | None = None,
        device_params: bool = False,
    ) -> None:
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            epsilon,
            weight_decay,
            bias_correction,
            parameters,
            device_params,
            enable_adam_w=True,
        )


class LAMB(Optimizer):
    """Adam's step scaled for each parameter by the ratio of its norm to the step's (You et al., 2019).

    The norm of the parameter is clipped to ``clip_value`` first; the ratio is 1 where a norm is zero.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        correction: bool = False,
        clip_value: tuple[float, float] = (0.0, 10.0),
        parameters: Iterable[Any] | None = None,
        device_params: bool = False,
    ) -> None:
        super().__init__(learning_rate, parameters, device_params)
        check_number("beta1", beta1, 0.0, 1.0)
        check_number("beta2", beta2, 0.0, 1.0)
        check_number("eps", eps)
        check_number("weight_decay", weight_decay)
        if not 0 <= clip_value[0] <= clip_value[1]:
            raise PyBudaError(f"clip_value is {clip_value}; it is (low, high) with 0 <= low <= high")
        self.beta1, self.beta2, self.eps = beta1, beta2, eps
        self.weight_decay, self.correction, self.clip_value = weight_decay, correction, clip_value

    def _make(self, parameters: list[Any], lr: float) -> torch.optim.Optimizer:
        return _Stepper(parameters, lr, self._step)

    def _step(self, p: Torch, grad: Torch, kept: dict[str, Any], lr: float) -> None:
        mean, square = _moments(kept, p, grad, self.beta1, self.beta2)
        if self.correction:
            mean = mean / (1 - self.beta1 ** kept["step"])
            square = square / (1 - self.beta2 ** kept["step"])
        update = mean / (square.sqrt() + self.eps)
        if self.weight_decay:
            update = update + self.weight_decay * p
        weight_norm = p.norm().clamp(*self.clip_value)
        update_norm = update.norm()
        ratio = torch.where(
            (weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, torch.ones_like(weight_norm)
        )
        p.sub_(lr * ratio * update)


class LARS(Optimizer):
    """Gradient descent with momentum, each parameter's rate by its ratio of norms (You et al., 2017)."""

    def __init__(
        self,
        learning_rate: float = 0.001,
        momentum: float = 0.9,
        nesterov: bool = False,
        dampening: float = 0.0,
        weight_decay: float = 0.01,
        lars_coeff: float = 0.001,
        parameters: Iterable[Any] | None = None,
        device_params: bool = False,
    ) -> None:
        super().__init__(learning_rate, parameters, device_params)
        for name, value in (
            ("momentum", momentum),
            ("weight_decay", weight_decay),
            ("lars_coeff", lars_coeff),
        ):
            check_number(name, value)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise PyBudaError("nesterov needs a momentum above 0 and a dampening of 0")
        self.momentum, self.nesterov, self.dampening = momentum, nesterov, dampening
        self.weight_decay, self.lars_coeff = weight_decay, lars_coeff

    def _make(self, parameters: list[Any], lr: float) -> torch.optim.Optimizer:
        return _Stepper(parameters, lr, self._step)

    def _step(self, p: Torch, grad: Torch, kept: dict[str, Any], lr: float) -> None:
        weight_norm, grad_norm = p.norm(), grad.norm()
        denominator = grad_norm + self.weight_decay * weight_norm
        ratio = torch.where(
            (weight_norm > 0) & (grad_norm > 0),
            self.lars_coeff * weight_norm / denominator,
            torch.ones_like(weight_norm),
        )
        step = (grad + self.weight_decay * p) * ratio
        if self.momentum:
            if "momentum" in kept:
                kept["momentum"] = kept["momentum"] * self.momentum + step * (1 - self.dampening)
            else:
                kept["momentum"] = step.clone()
            step = step + self.momentum * kept["momentum"] if self.nesterov else kept["momentum"]
        p.sub_(lr * step)


def _plain(value: Any) -> Any:
    """Return a number as JSON has it: NumPy's are none."""
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return float(value) if isinstance(value, Real) and not isinstance(value, int) else value


KINDS: dict[str, type[Optimizer]] = {kind.__name__: kind for kind in (SGD, Adam, AdamW, LAMB, LARS)}


def of_data(data: Mapping[str, Any], parameters: Sequence[Any]) -> Optimizer:
    """Return the optimizer of data.

    Args:
        parameters: among which are those that it trains.

    Raises:
        PyBudaError: the data name what there is not, or numbers that cannot be.
    """
    given = dict(data)
    kind = KINDS.get(given.pop("type", ""))
    if kind is None:
        raise PyBudaError(f"{data.get('type')!r} is no optimizer; there are {', '.join(KINDS)}")
    if unknown := given.keys() - inspect.signature(kind).parameters.keys():
        raise PyBudaError(f"{kind.__name__} takes no {', '.join(sorted(unknown))}")
    if given.get("parameters") is not None:
        named = {parameter.get_name(): parameter for parameter in parameters}
        if missing := set(given["parameters"]) - named.keys():
            raise PyBudaError(f"{kind.__name__} trains {', '.join(sorted(missing))}, which are not there")
        given["parameters"] = [named[name] for name in given["parameters"]]
    return kind(**given)


class _Stepper(torch.optim.Optimizer):
    """A PyTorch optimizer of a function that changes one parameter."""

    def __init__(
        self, parameters: list[Any], lr: float, each: Callable[[Torch, Torch, dict[str, Any], float], None]
    ) -> None:
        super().__init__(parameters, {"lr": lr})
        self._one = each

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Change all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._one(parameter, parameter.grad, self.state[parameter], group["lr"])
        return loss


def _moments(kept: dict[str, Any], p: Torch, grad: Torch, beta1: float, beta2: float) -> tuple[Torch, Torch]:
    if not kept:
        kept.update(step=0, mean=torch.zeros_like(p), square=torch.zeros_like(p))
    kept["step"] += 1
    kept["mean"].lerp_(grad, 1 - beta1)
    kept["square"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    return kept["mean"], kept["square"]
