"""Steps of a program that has no optimizer: it writes to its parameters by itself after a backward pass."""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.weak import TensorWeakRef

from torch_loom import _C

_MOVES = (_C.TapeReader.KERNEL, _C.TapeReader.COPY, _C.TapeReader.FILL)
_Operand = tuple[int, tuple[int, ...], tuple[int, ...], int, bool]


class UpdatesByHand:
    """Finds updates of parameters that no optimizer makes.

    An update is one or more writes to parameters that got a gradient, from the end of a backward pass until
    the next one begins or a module is called. How they are written does not matter: the commands of the
    devices are read, for as long as an update may come. A parameter that is given other data is written,
    too. Nothing else that changes tensors is an update: initial values come before the first backward pass,
    moving averages have no gradient, accumulation and clipping write to gradients alone.

    If an optimizer has the parameters, it alone makes the steps: other writes are parts of them, such as
    perturbations and clamped weights.

    Args:
        address: returns where the memory of a tensor's storage begins; 0: it has none on a device.
        now_ns: returns when the devices have run what was issued.
        on_gradient: called with each parameter that has got a gradient.
        on_update: called after an update with the time at which its last write ended.
    """

    def __init__(
        self,
        *,
        address: Callable[[torch.Tensor], int],
        now_ns: Callable[[], int],
        on_gradient: Callable[[torch.Tensor], None],
        on_update: Callable[[int], None],
    ) -> None:
        self._address = address
        self._now_ns = now_ns
        self._on_gradient = on_gradient
        self._on_update = on_update
        self._reader = _C.TapeReader(self._see)
        self._is_reading = False
        self._has_optimizer: bool | None = None  # None: not looked for yet
        self._leaves: list[TensorWeakRef] = []  # of the last backward pass
        self._memory: list[tuple[int, int, TensorWeakRef]] = []  # begin and end of those that may be updated
        self._has_written = False
        self._end_ns: int | None = None  # of the last write; None: it has only begun

    def backward(self, run: Callable[[], Any], roots: Any, inputs: Any) -> Any:
        """Run a backward pass from ``roots``, to ``inputs`` alone unless that is None; return its result."""
        self.end()
        if self._has_optimizer:
            return run()
        leaves = list(_leaves(roots))
        self._leaves = [TensorWeakRef(each) for each in leaves]
        updated = _updated(leaves, inputs)
        if any(each._post_accumulate_grad_hooks for each in updated):
            self._begin(updated)  # these may write to parameters within the pass
        done = run()
        for each in updated:
            self._on_gradient(each)
        self._begin(updated)
        return done

    def replace_data(self, tensor: torch.Tensor) -> None:
        """A tensor is about to be given other data."""
        begin = self._begin_of(tensor) if self._is_reading else 0
        if begin and self._is_parameter(begin, begin + tensor.numel() * tensor.element_size()):
            self._has_written, self._end_ns = True, None

    def end(self) -> None:
        """An update that was under way is complete."""
        self._stop_reading()
        is_update = self._has_written
        end_ns = self._now_ns() if self._end_ns is None else self._end_ns
        self._has_written, self._end_ns, self._memory = False, None, []
        if is_update and not self._belongs_to_an_optimizer():
            self._on_update(end_ns)

    def leave_to_optimizer(self) -> None:
        """An optimizer makes the step: what was written belongs to it, and so do all later writes."""
        self._has_optimizer = True
        self._stop_reading()
        self._has_written, self._memory, self._leaves = False, [], []

    def _begin(self, updated: Iterable[torch.Tensor]) -> None:
        found = []
        for each in updated:
            # Of a tensor that is spread over ranks: the part that is here.
            each = getattr(each, "_local_tensor", each)
            if begin := self._begin_of(each):
                found.append((begin, begin + each.numel() * each.element_size(), TensorWeakRef(each)))
        self._memory = sorted(found, key=lambda each: each[0])
        if self._memory and not self._is_reading:
            self._is_reading = True
            self._reader.attach()

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._reader.detach()
            self._reader.take_notes()

    def _see(
        self, kind: int, device: int, stream: int, name: str, operands: Sequence[_Operand], *_: object
    ) -> None:
        """Take in a command that is about to be submitted."""
        if kind not in _MOVES:
            return
        if self._has_written and self._end_ns is None:
            self._end_ns = self._now_ns()  # the write came before this command
        for begin, sizes, strides, item_bytes, is_written in operands:
            last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
            if is_written and self._is_parameter(begin, begin + (last + 1) * item_bytes):
                self._has_written, self._end_ns = True, None

    def _is_parameter(self, begin: int, end: int) -> bool:
        """Return whether memory is a parameter's, in part or whole."""
        place = bisect_left(self._memory, end, key=lambda each: each[0]) - 1
        if place < 0 or self._memory[place][1] <= begin:
            return False
        # Where the parameter has gone, its memory may be another tensor's by now.
        start, _, leaf = self._memory[place]
        parameter = leaf()
        return parameter is not None and self._begin_of(parameter) == start

    def _begin_of(self, tensor: torch.Tensor) -> int:
        base = self._address(tensor)
        return base + int(tensor.storage_offset()) * tensor.element_size() if base else 0

    def _belongs_to_an_optimizer(self) -> bool:
        """Return whether an optimizer has parameters of the last backward pass."""
        if self._has_optimizer is None:
            leaves = {id(each()) for each in self._leaves}
            # isinstance() asks proxies, which may raise.
            optimizers = (each for each in gc.get_objects() if issubclass(type(each), torch.optim.Optimizer))
            self._has_optimizer = any(
                id(parameter) in leaves
                for optimizer in optimizers
                for group in optimizer.param_groups
                for parameter in group["params"]
            )
        return self._has_optimizer


def _updated(leaves: Sequence[torch.Tensor], inputs: Any) -> list[torch.Tensor]:
    """Return which leaves of a graph an update may write to: its parameters, if there are any among them."""
    parameters = [each for each in leaves if isinstance(each, torch.nn.Parameter)]
    # What else has a gradient beside parameters is data, as in adversarial training.
    found = parameters or leaves
    if inputs is None:
        return list(found)
    wanted = {id(each) for each in _together(inputs)}
    return [each for each in found if id(each) in wanted]


def _leaves(roots: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors to which a graph of autograd leads."""
    waiting = [getattr(root, "grad_fn", None) or getattr(root, "node", None) for root in _together(roots)]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "AccumulateGrad":
            yield node.variable
        waiting += [following for following, _ in node.next_functions]


def _together(values: Any) -> Sequence[Any]:
    if isinstance(values, dict):
        return list(values.values())
    return list(values) if isinstance(values, (list, tuple)) else [values]
