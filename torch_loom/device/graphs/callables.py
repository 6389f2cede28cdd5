"""`make_graphed_callables`: forward and backward passes as graphs, inside one node of autograd each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device.devices import synchronize
from torch_loom.device.graphs.capture import LoomGraph, graph, graph_pool_handle
from torch_loom.device.streams import Stream, StreamContext

_Work = TypeVar("_Work", bound=Callable[..., Any])


def make_graphed_callables(
    callables: _Work | tuple[_Work, ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: tuple[int, int] | None = None,
) -> _Work | tuple[_Work, ...]:
    """Return versions of functions or modules whose forward and backward passes are replays of graphs.

    Each is a drop-in replacement in a training loop, for arguments with the shapes, dtypes, devices and
    ``requires_grad`` of the sample ones, in the same order. A module is changed in place: its ``forward``
    replays when its training mode is that of the capture, and is the original otherwise. What comes out, and
    the gradients, are overwritten by the next call. There is no second derivative.

    Args:
        callables: a function or :class:`torch.nn.Module`, or a tuple of them in the order in which they will
            be called.
        sample_args: a tuple of tensors (or nested structures of tensors), or a tuple of such tuples, one for
            each callable.
        num_warmup_iters: how often each is run, forward and backward, before the capture.
        allow_unused_input: whether an input that wants a gradient may have no influence on the outputs.
        pool: the private pool of all graphs, as :func:`graph_pool_handle` named it; a new one if None.

    Raises:
        RuntimeError: autocast with its cache is on; or an input was not used and may not be.
        ValueError: a module has hooks or a buffer that wants a gradient, or the numbers of callables and of
            sample arguments differ.
        TypeError: a sample argument is no tensor.
    """
    if torch.is_autocast_enabled(DEVICE_TYPE) and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`."
        )
    is_single = not isinstance(callables, tuple)
    functions: tuple[_Work, ...] = (callables,) if is_single else callables  # type: ignore[assignment]
    samples = (sample_args,) if is_single else sample_args
    if len(functions) != len(samples):
        raise ValueError(f"{len(functions)} callables need as many tuples of sample_args, got {len(samples)}")
    passes = [_Passes.of(function, args) for function, args in zip(functions, samples, strict=True)]

    synchronize()
    with StreamContext(Stream()):
        for each in passes:
            each.warm_up(num_warmup_iters, allow_unused_input)
    synchronize()
    # In the order in which they will be replayed: graphs that share a pool must be.
    shared = graph_pool_handle() if pool is None else pool
    for each in passes:
        each.capture_forward(shared)
    for each in reversed(passes):
        each.capture_backward(shared, allow_unused_input)
    graphed = tuple(_put_in_place(function, each) for function, each in zip(functions, passes, strict=True))
    return graphed[0] if is_single else graphed


def _wants_gradient(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in tensors if tensor.requires_grad)


@dataclass
class _Passes:
    """One callable's forward and backward pass, with the tensors that the graphs read and write."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    num_user_inputs: int
    inputs: tuple[Tensor, ...]  # the user's, flattened, then the module's parameters
    forward: LoomGraph = field(default_factory=LoomGraph)
    backward: LoomGraph = field(default_factory=LoomGraph)
    outputs: tuple[Tensor, ...] = ()
    output_spec: pytree.TreeSpec | None = None
    output_gradients: tuple[Tensor | None, ...] = ()
    input_gradients: tuple[Tensor | None, ...] = ()

    @staticmethod
    def of(function: Callable[..., Any], args: tuple[Any, ...]) -> _Passes:
        """Checks one callable with its sample arguments."""
        parameters: tuple[Tensor, ...] = ()
        if isinstance(function, nn.Module):
            if function._backward_hooks or function._forward_hooks or function._forward_pre_hooks:
                raise ValueError(
                    "Modules must not have hooks registered at the time they are passed. However, "
                    "registering hooks on modules after passing them through make_graphed_callables is "
                    "allowed."
                )
            wanting = [name for name, buffer in function.named_buffers() if buffer.requires_grad]
            if wanting:
                raise ValueError(
                    "In any module passed to make_graphed_callables only parameters may be trainable, but "
                    f"these buffers have requires_grad=True: {', '.join(wanting)}"
                )
            parameters = tuple(function.parameters())
        user_inputs = pytree.arg_tree_leaves(*args)
        for value in user_inputs:
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"sample_args must contain only Tensors, but there is {value!r} ({type(value).__name__})"
                )
        return _Passes(function, args, len(user_inputs), (*user_inputs, *parameters))

    def gradients(
        self, outputs: Sequence[Tensor], gradients: tuple[Tensor, ...], allow_unused: bool
    ) -> tuple[Tensor | None, ...]:
        return torch.autograd.grad(
            outputs=_wants_gradient(outputs),
            inputs=_wants_gradient(self.inputs),
            grad_outputs=gradients,
            only_inputs=True,
            allow_unused=allow_unused,
        )

    def warm_up(self, num_iterations: int, allow_unused: bool) -> None:
        for _ in range(num_iterations):
            outputs = pytree.tree_leaves(self.function(*self.args))
            gradients = tuple(torch.empty_like(output) for output in _wants_gradient(outputs))
            if gradients:
                self.gradients(outputs, gradients, allow_unused)

    def capture_forward(self, pool: tuple[int, int]) -> None:
        with graph(self.forward, pool=pool):
            outputs = self.function(*self.args)
        leaves, self.output_spec = pytree.tree_flatten(outputs)
        self.outputs = tuple(leaves)

    def capture_backward(self, pool: tuple[int, int], allow_unused: bool) -> None:
        self.output_gradients = tuple(
            torch.empty_like(output) if output.requires_grad else None for output in self.outputs
        )
        given = tuple(gradient for gradient in self.output_gradients if gradient is not None)
        found: tuple[Tensor | None, ...] = ()
        if given:
            with graph(self.backward, pool=pool):
                found = self.gradients(self.outputs, given, allow_unused)
        rest = iter(found)
        self.input_gradients = tuple(
            next(rest) if tensor.requires_grad and found else None for tensor in self.inputs
        )

    def run_forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        # Parameters stand where they stood at the capture.
        for static, given in zip(self.inputs[: self.num_user_inputs], inputs, strict=False):
            if static.data_ptr() != given.data_ptr():
                static.copy_(given)
        self.forward.replay()
        return tuple(output.detach() for output in self.outputs)

    def run_backward(self, gradients: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        for static, given in zip(self.output_gradients, gradients, strict=True):
            # The gradient may have been written where the graph reads it.
            if static is not None and static.data_ptr() != given.data_ptr():
                static.copy_(given)
        self.backward.replay()
        return tuple(None if found is None else found.detach() for found in self.input_gradients)

    def as_function(self) -> Callable[..., Any]:
        passes = self

        class Graphed(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
                return passes.run_forward(inputs)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
                return passes.run_backward(gradients)

        def graphed(*args: Any) -> Any:
            user_inputs = pytree.arg_tree_leaves(*args)
            if len(user_inputs) != passes.num_user_inputs:
                raise ValueError(
                    f"a graphed callable takes {passes.num_user_inputs} tensors, as in its sample_args, got "
                    f"{len(user_inputs)}"
                )
            parameters = passes.inputs[passes.num_user_inputs :]
            outputs = Graphed.apply(*user_inputs, *parameters)  # type: ignore[no-untyped-call]
            assert passes.output_spec is not None
            return pytree.tree_unflatten(outputs, passes.output_spec)

        return graphed


def _put_in_place(function: _Work, passes: _Passes) -> _Work:
    graphed = passes.as_function()
    if not isinstance(function, nn.Module):
        return cast(_Work, graphed)
    was_training, original = function.training, function.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if function.training == was_training:
            return graphed(*args, **kwargs)
        return original(*args, **kwargs)

    function.forward = forward
    return function
