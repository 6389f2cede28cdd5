"""From a module, a loss and an optimizer to the graph of one training step.

Forward, backward and the optimizer's step are traced as one functional graph. What the step changes are
tensors of the executable that take a result after each run: parameters, buffers, the optimizer's state.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn

from torch_loom.compiler.failures import check_dtypes, named_lines
from torch_loom.compiler.frontend import Exported
from torch_loom.compiler.ir import facts
from torch_loom.errors import CompilerOptionError
from torch_loom.image import structure

Loss = Callable[[Any, torch.Tensor], torch.Tensor]
"""Takes what the module returns and the target; returns a tensor of one element."""

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
_ROLE = "loom_role"


def exported_step(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: torch.device,
    optimizer: torch.optim.Optimizer,
    loss: Loss | None,
) -> Exported:
    """Trace one training step for a device; its result is the loss.

    Args:
        args: inputs of the module; where there is a ``loss``, its target follows them.
        optimizer: of parameters of the module. Its state is where the training begins; its rates are
            constants of the graph. It stays as it is.
        loss: takes the module's result and the target; without one the module's result is the loss.

    Raises:
        CompilerOptionError: the optimizer has parameters that are not the module's, the loss is no tensor of
            one element, or the optimizer's first step differs from the others.
    """
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    if isinstance(optimizer, torch.optim.LBFGS) or _takes_closure(optimizer):
        raise CompilerOptionError(
            f"optimizer: {type(optimizer).__name__} computes the loss several times a step, by a closure; a "
            "compiled step computes it once. Take another optimizer, or train in eager mode"
        )
    values = {name: tensor.detach().to(device) for name, tensor in _own_state(module).items()}
    state = _State(optimizer, module, values)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    given = [isinstance(leaf, torch.Tensor) for leaf in leaves]
    inputs = [leaf.detach().to(device) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    kept = [*values.values(), *state.tensors]
    names = list(values)
    trained = [name for name, each in module.named_parameters() if each.requires_grad]

    def step(*flat: torch.Tensor) -> list[torch.Tensor]:
        own = dict(zip(names, flat, strict=False))
        states, given_inputs = flat[len(names) : len(kept)], iter(flat[len(kept) :])
        arguments = [
            next(given_inputs) if is_tensor else leaf for leaf, is_tensor in zip(leaves, given, strict=True)
        ]
        new = {name: tensor.clone() for name, tensor in own.items()}
        with _role(FORWARD), torch.enable_grad():
            used = {name: own[name].detach().requires_grad_() for name in trained}
            rest = {name: tensor for name, tensor in new.items() if name not in used}
            own_args, own_kwargs = pytree.tree_unflatten(arguments, spec)
            value = _loss(module, {**rest, **used}, own_args, own_kwargs, loss)
        with _role(BACKWARD):
            found = torch.autograd.grad(value, list(used.values()), allow_unused=True)
        with _role(OPTIMIZER), torch.no_grad():
            states_after = state.step(new, dict(zip(used, found, strict=True)), states)
        return [value.detach(), *new.values(), *states_after]

    with named_lines(), fx.traceback.preserve_node_meta(), torch.no_grad():
        traced = make_fx(_functional(step), tracing_mode="fake", record_stack_traces=True)(*kept, *inputs)
    check_dtypes(traced)
    specs = {"out": structure.dumps(pytree.tree_structure(0))}
    return _as_exported(traced, values, state, set(trained), specs)


def _takes_closure(optimizer: torch.optim.Optimizer) -> bool:
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _own_state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers, each by one name: a tied parameter is stepped once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _loss(
    module: nn.Module, values: dict[str, torch.Tensor], args: Any, kwargs: Any, loss: Loss | None
) -> torch.Tensor:
    if loss is None:
        value = torch.func.functional_call(module, values, args, kwargs)
    else:
        value = loss(torch.func.functional_call(module, values, args[:-1], kwargs), args[-1])
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        shape = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise CompilerOptionError(
            f"optimizer: the loss is {shape}; expected a tensor of one element. Give loss=, a function of "
            "the module's result and the last of the inputs"
        )
    return value


@contextmanager
def _role(name: str) -> Iterator[None]:
    with fx.traceback.annotate({_ROLE: name}):
        yield


def _functional(function: Callable[..., list[torch.Tensor]]) -> Callable[..., list[torch.Tensor]]:
    """Let what it changes in place be new values."""
    core: Any = torch

    def run(*flat: torch.Tensor) -> list[torch.Tensor]:
        wrapped = [core._to_functional_tensor(each) for each in flat]
        core._enable_functionalization(reapply_views=True)
        try:
            results = function(*wrapped)
        finally:
            core._disable_functionalization()
        for result in results:
            core._sync(result)
        return [core._from_functional_tensor(result) for result in results]

    return run


class _State:
    """An optimizer's state as a list of tensors, and its step on other tensors than its own."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, module: nn.Module, values: dict[str, torch.Tensor]
    ) -> None:
        own = {id(each): name for name, each in module.named_parameters()}
        groups = [[own.get(id(each)) for each in group["params"]] for group in optimizer.param_groups]
        if any(name is None for names in groups for name in names):
            raise CompilerOptionError(
                "optimizer: it has parameters that are not the module's. Make it of module.parameters()"
            )
        self._optimizer = optimizer
        self._groups: list[list[str]] = groups  # type: ignore[assignment]
        self.keys: list[tuple[str, str]] = []
        self.tensors: list[torch.Tensor] = []
        named = {own[id(each)]: kept for each, kept in optimizer.state.items() if id(each) in own}
        for name, kept in (named or self._first(values)).items():
            for key, value in kept.items():
                if isinstance(value, torch.Tensor | int | float) and not isinstance(value, bool):
                    self.keys.append((name, key))
                    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(float(value))
                    self.tensors.append(tensor.detach().to(values[name].device, copy=True))

    def _first(self, values: dict[str, torch.Tensor]) -> dict[str, dict[str, Any]]:
        """The state before the first step: what a step of zeros without gradients makes, at no steps."""
        clones = {name: torch.zeros_like(value) for name, value in values.items()}
        used = {name for names in self._groups for name in names}
        shadow = self._shadow(clones, {})
        for name in used:
            clones[name].grad = torch.zeros_like(clones[name])
        shadow.step()
        found = {name: dict(shadow.state[clones[name]]) for name in clones if clones[name] in shadow.state}
        for kept in found.values():
            for key, value in kept.items():
                if key == "step":
                    kept[key] = torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0
                elif isinstance(value, torch.Tensor) and bool(value.any()):
                    self._refuse(f"its state {key!r} does not begin with zeros")
        if any(group.get("dampening") and group.get("momentum") for group in self._optimizer.param_groups):
            self._refuse("its momentum begins with the whole first gradient")
        return found

    def _refuse(self, why: str) -> None:
        name = type(self._optimizer).__name__
        raise CompilerOptionError(
            f"optimizer: the first step of {name} differs from the others ({why}). Take one step in eager "
            "mode before you compile"
        )

    def step(
        self,
        values: dict[str, torch.Tensor],
        gradients: dict[str, torch.Tensor | None],
        states: tuple[torch.Tensor, ...],
    ) -> list[torch.Tensor]:
        """Change values in place; return the state after the step."""
        own: dict[str, dict[str, Any]] = defaultdict(dict)
        for (name, key), tensor in zip(self.keys, states, strict=True):
            own[name][key] = tensor.clone()
        for name, gradient in gradients.items():
            values[name].grad = gradient
        shadow = self._shadow(values, own)
        shadow.step()
        for name in gradients:
            values[name].grad = None
        return [shadow.state[values[name]][key] for name, key in self.keys]

    def _shadow(
        self, values: dict[str, torch.Tensor], state: dict[str, dict[str, Any]]
    ) -> torch.optim.Optimizer:
        """The optimizer, of other tensors; a step of it makes no call that waits for a value."""
        # Not copy.copy: an optimizer's pickle leaves out what its class adds.
        shadow = object.__new__(type(self._optimizer))
        shadow.__dict__.update(vars(self._optimizer))
        shadow.param_groups = []
        for group, names in zip(self._optimizer.param_groups, self._groups, strict=True):
            own = {**group, "params": [values[name] for name in names]}
            own.update({key: False for key in ("foreach", "fused") if key in own})
            if "capturable" in own:
                own["capturable"] = True
            shadow.param_groups.append(own)
        shadow.state = defaultdict(dict, {values[name]: kept for name, kept in state.items()})
        return shadow


def _as_exported(
    traced: fx.GraphModule,
    values: dict[str, torch.Tensor],
    state: _State,
    trained: set[str],
    specs: dict[str, Any],
) -> Exported:
    placeholders = traced.graph.find_nodes(op="placeholder")
    names = [f"{'p' if name in trained else 'b'}_{name}" for name in values]
    names += [f"s_{name}_{key}" for name, key in state.keys]
    kept = placeholders[: len(names)]
    names += [f"input_{number}" for number in range(len(placeholders) - len(kept))]
    for node, name in zip(placeholders, names, strict=True):
        node._rename(name.replace(".", "_"))
    for node in traced.graph.nodes:
        facts(node).role = (node.meta.get("custom") or {}).get(_ROLE, FORWARD)
    _simplify(traced.graph)
    (output,) = traced.graph.find_nodes(op="output")
    results = output.args[0]
    assert isinstance(results, list | tuple)
    # What nothing changes is no result.
    changed = [(node, result) for node, result in zip(kept, results[1:], strict=True) if result is not node]
    output.args = ([results[0], *(each for _, each in changed)],)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    tensors = [*values.values(), *state.tensors]
    return Exported(
        traced,
        {node.name: tensor for node, tensor in zip(kept, tensors, strict=True)},
        {node.name: name for node, name in zip(kept, values, strict=False)},
        {node.name: number for number, (node, _) in enumerate(changed, start=1)},
        specs,
    )


def _simplify(graph: fx.Graph) -> None:
    """Drop the optimizer's marks for profiles, and copies that kept traced operands as they were."""
    for node in reversed(graph.nodes):
        if node.op == "call_function" and getattr(node.target, "namespace", "") == "profiler":
            graph.erase_node(node)
    for node in list(graph.nodes):
        is_copy = node.target is torch.ops.aten.clone.default and not node.kwargs
        if is_copy and node.args[0].op == "placeholder":
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
