"""``mode="reduce-overhead"``: what Inductor compiled is captured, and calls replay the graph.

Inductor decides what may be captured, by CUDA's rules, and cuts a graph around the rest. CUDA's own graphs
share a pool whose state is checkpointed, and hand out results that the next run overwrites. Here inputs and
results are copied, so a program never sees a result change.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_loom.image.replay import Replayer


class Region(Replayer):
    """One compiled callable, run as it is at first and captured when it is called alike again.

    Args:
        model: takes a list of inputs, which it empties, and returns a sequence.
        static: positions of inputs that stay where they are: parameters, and in a backward pass all that the
            forward pass has kept.
        mutated: positions of inputs that it changes; static ones.
        device: index of the device.
        is_backward: whether static inputs that move are copied from then on, as results of the forward pass
            are new with each call. Those of a forward pass are parameters of another module: another graph.
    """

    # One graph for each shape that comes again, with CUDA's warning from some number on.
    max_graphs = sys.maxsize

    def __init__(
        self,
        model: Callable[[list[Any]], Sequence[Any]],
        static: Sequence[int],
        mutated: Sequence[int],
        device: int,
        is_backward: bool,
    ) -> None:
        super().__init__(lambda *inputs: model(list(inputs)), static, device)
        self._mutated = frozenset(mutated)
        self._is_backward = is_backward
        self._addresses: dict[int, int] = {}
        self._is_warned = False

    def call_boxed(self, inputs: list[Any]) -> Sequence[Any]:
        """Run it on the current stream, and empty the list."""
        given = tuple(inputs)
        inputs.clear()
        return self.call(given)

    def _found(self, inputs: Sequence[Any]) -> list[Any] | None:
        from torch._inductor.cudagraph_trees import is_cudagraph_capture_sizes

        sizes = tuple(value for value in inputs if isinstance(value, int))
        if not is_cudagraph_capture_sizes(sizes[0] if len(sizes) == 1 else sizes or None):  # type: ignore[arg-type]
            return None
        if self._is_backward:
            self._copy_what_moves(inputs)
        return super()._found(inputs)

    def _copy_what_moves(self, inputs: Sequence[Any]) -> None:
        with self._lock:
            moved = {
                i
                for i in self._static - self._mutated
                if isinstance(inputs[i], torch.Tensor)
                and self._addresses.setdefault(i, inputs[i].data_ptr()) != inputs[i].data_ptr()
            }
            if moved:
                self._static -= moved
                self._graphs.clear()
                self._last = None

    def _capture(self, key: tuple[Any, ...], inputs: Sequence[Any]) -> Any:
        from torch._inductor import cudagraph_utils

        if not self._is_warned:
            graphs: Any = self._graphs
            self._is_warned = cudagraph_utils.maybe_warning_due_to_dynamic_shape(graphs, None)
        captured = super()._capture(key, inputs)
        if captured is None:
            reason = cudagraph_utils.format_default_skip_message(self.refusal or "out of device memory")
            cudagraph_utils.log_cudagraph_skip_and_bump_counter(reason)
        return captured


def capture(
    model: Callable[[list[Any]], Sequence[Any]],
    static_input_idxs: Sequence[int] = (),
    *,
    device_index: int,
    is_backward: bool,
    placeholders: Sequence[Any] = (),
    mutated_input_idxs: Sequence[int] = (),
    **_: Any,
) -> Callable[[list[Any]], Any]:
    """Return what runs a compiled callable by captured graphs, or the callable where it may not be captured.

    The arguments are those of ``torch._inductor.compile_fx.cudagraphify``.
    """
    from torch._inductor import cudagraph_utils

    static = frozenset(static_input_idxs)
    if changed := [i for i in mutated_input_idxs if i not in static]:
        # The graph would change its copy of the input.
        reason = cudagraph_utils.get_mutation_stack_trace(placeholders, changed)
        cudagraph_utils.log_cudagraph_skip_and_bump_counter(reason)
        return model
    region = Region(model, static_input_idxs, mutated_input_idxs, device_index, is_backward)
    return region.call_boxed
