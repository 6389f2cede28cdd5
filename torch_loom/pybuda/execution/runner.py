"""How a PyBuda module runs on a device: its ops over the device's copies of its parameters."""

from __future__ import annotations

import copy
import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils._pytree import tree_map

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.execution import trace
from torch_loom.pybuda.parameter import Parameter
from torch_loom.pybuda.tensor import Tensor, TensorBase

MAX_KEPT = 1024  # unread values of a tapped op


class Tap(Protocol):
    """Which output of which op is tapped."""

    op_name: str
    output_index: int


class Runnable(Protocol):
    """What a runner asks of the module that it runs."""

    name: str

    @property
    def _tapouts(self) -> Sequence[Tap]: ...

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module on tensors of PyBuda."""

    def get_parameters(self) -> Sequence[Parameter]:
        """Return the parameters, those of modules within too."""

    def named_constants(self) -> Mapping[str, Tensor]:
        """Return the constants that have values, by full name."""


class BudaRunner(nn.Module):
    """Holds a PyBuda module's parameters as PyTorch's and calls its ``forward`` on them.

    Parameters have the names of PyBuda: ``module.attribute``.
    """

    def __init__(self, module: Runnable) -> None:
        super().__init__()
        self.buda = module
        self.taps: dict[tuple[str, int], deque[torch.Tensor]] = {}
        self.on_ops: Callable[[Mapping[str, torch.Tensor]], None] | None = None
        self._buda_parameters = module.get_parameters()
        missing = [p.get_name() for p in self._buda_parameters if not p.has_value()]
        if missing:
            raise PyBudaError(
                f"module {module.name!r}: set_parameter() first for {', '.join(map(str, missing))}"
            )
        names = [parameter.get_name() for parameter in self._buda_parameters]
        if len(set(names)) < len(names):
            raise PyBudaError(f"module {module.name!r}: parameters need different names, not {names}")
        self.values = nn.ParameterList(
            nn.Parameter(p.value(), p.requires_grad and p.value().is_floating_point())
            for p in self._buda_parameters
        )
        self._names = names
        for number, value in enumerate(module.named_constants().values()):
            self.register_buffer(f"constant_{number}", value.value())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Iterate over PyBuda's names and the parameters."""
        dot = "." if prefix else ""
        for name, value in zip(self._names, self.values, strict=True):
            yield f"{prefix}{dot}{name}", value

    def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the module on torch tensors and return its outputs as a tuple of them.

        As PyBuda compiles a module for one sample, ``forward`` sees a first dimension of 1; the samples of a
        micro-batch are computed together, and their outputs stand one after another.
        """
        names = (*(None for _ in args), *kwargs)
        given = (*args, *kwargs.values())
        sizes = [value.shape[0] if value.dim() else 1 for value in given]
        num_samples = max(sizes, default=1)
        sample = functools.partial(self._sample, names)
        is_one = num_samples == 1 or trace.takes_whole_inputs()
        if is_one or any(size not in (1, num_samples) for size in sizes):
            outputs, kept = sample(*given)
        else:
            each = [0 if size == num_samples else None for size in sizes]
            samples = [
                value if item is None else value.unsqueeze(1) for value, item in zip(given, each, strict=True)
            ]
            run = torch.vmap(sample, in_dims=tuple(each), randomness="different")
            outputs, kept = tree_map(_in_a_row, run(*samples))
        self._tap(kept)
        return outputs

    def _sample(
        self, names: Sequence[str | None], *given: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, ...], dict[str, list[torch.Tensor]]]:
        """Run one sample; return the outputs, and by op those that were asked for."""
        constants = self.buda.named_constants()
        bound = {id(p): v for p, v in zip(self._buda_parameters, self.values, strict=True)}
        for number, constant in enumerate(constants.values()):
            bound[id(constant)] = self.get_buffer(f"constant_{number}")
        place = next((value.device for value in (*given, *self.values, *self.buffers())), None)
        tensors = [Tensor(value) for value in given]
        args = [value for value, name in zip(tensors, names, strict=True) if name is None]
        kwargs = {name: value for value, name in zip(tensors, names, strict=True) if name is not None}
        with trace.record() as ran, trace.bind(bound, place):
            made = self.buda.forward(*args, **kwargs)
            outputs = made if isinstance(made, (tuple, list)) else (made,)
            for output in outputs:
                if not isinstance(output, TensorBase):
                    raise PyBudaError(
                        f"module {self.buda.name!r} returned {type(output).__name__}; forward returns a "
                        "tensor or a tuple of tensors"
                    )
            values = tuple(trace.value_of(output) for output in outputs)
        for handle in self.buda._tapouts:
            op = ran.ops.get(handle.op_name)
            if op is None or not 0 <= handle.output_index < len(op.outputs):
                raise PyBudaError(
                    f"module {self.buda.name!r} has no output {handle.output_index} of an op "
                    f"{handle.op_name!r} to tap; its ops are {', '.join(ran.ops)}"
                )
        wanted = ran.ops if self.on_ops is not None else {handle.op_name for handle in self.buda._tapouts}
        return values, {name: [out.value() for out in ran.ops[name].outputs] for name in wanted}

    @property
    def is_watched(self) -> bool:
        """Whether values of its ops are kept."""
        return bool(self.buda._tapouts) or self.on_ops is not None

    def set_position(self, start: int, num_tokens: int) -> None:
        """Set the token at which the next forward begins, if the PyBuda module has ``set_position``."""
        told = getattr(self.buda, "set_position", None)
        if callable(told):
            told(start, num_tokens)

    def _tap(self, kept: Mapping[str, Sequence[torch.Tensor]]) -> None:
        for handle in self.buda._tapouts:
            values = self.taps.setdefault((handle.op_name, handle.output_index), deque(maxlen=MAX_KEPT))
            values.append(kept[handle.op_name][handle.output_index].detach().to("cpu", copy=True))
        if self.on_ops is not None:
            self.on_ops({name: outputs[0].detach() for name, outputs in kept.items()})

    def __deepcopy__(self, memo: dict[int, Any]) -> BudaRunner:
        # The PyBuda module stays the program's own; only values are the device's.
        made = BudaRunner.__new__(BudaRunner)
        memo[id(self)] = made
        nn.Module.__init__(made)
        made.buda, made.taps, made.on_ops = self.buda, {}, None
        made._buda_parameters, made._names = self._buda_parameters, self._names
        made.values = copy.deepcopy(self.values, memo)
        for name, value in self.named_buffers():
            made.register_buffer(name, copy.deepcopy(value, memo))
        return made


def _in_a_row(samples: torch.Tensor) -> torch.Tensor:
    """Put the outputs of samples, each with a first dimension of its own, one after another."""
    return samples.flatten(0, 1) if samples.dim() > 1 else samples
