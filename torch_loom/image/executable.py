"""A compiled model: runs on a device, says how it was placed, and is written to one file."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_loom import config
from torch_loom.errors import ImageError, LoomError
from torch_loom.image import file, netlist, report, structure
from torch_loom.image.arguments import check_plan, check_specs, tensors_of_call
from torch_loom.image.folded import Folded
from torch_loom.image.program import Program, dtype_of
from torch_loom.image.replay import Replayer


class Executable:
    """What ``torch_loom.compile`` returns; a call runs it.

    Attributes:
        device: where it runs.
        program: the ops that it runs.
        specs: how results are put together, and which leaves of the arguments are tensors.
        replays: whether runs replay a captured graph.
        intermediates: results of the ops of ``op_intermediates_to_save``, of the last run.
    """

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, torch.Tensor],
        plan: dict[str, Any] | Callable[[], dict[str, Any]],
        specs: Mapping[str, Any],
        device: torch.device,
        *,
        replays: bool = True,
        folded: Folded | None = None,
    ) -> None:
        self._plan = plan
        self.device = device
        self.program = program
        self._tensors = dict(tensors)
        self.specs = dict(specs)
        self.replays = replays
        self._folded = folded
        self.intermediates: dict[str, Any] = {}
        self._has_constants = bool(self.specs.get("constants"))
        self._expected = [(torch.Size(one["shape"]), dtype_of(one["dtype"])) for one in program.inputs]
        self._run: Any = program.bind(self._tensors, device)
        # What a run updates is read by the next: a captured graph would read what it was.
        if replays and not program.updates:
            self._run = Replayer(self._run)

    @property
    def plan(self) -> dict[str, Any]:
        """Epochs, places, queues and predictions, as JSON has them; made at the first call where not yet."""
        if callable(self._plan):
            self._plan = self._plan()
        return self._plan

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it on tensors of the shapes and dtypes that it was compiled for; others are refused.

        Tensors of the host are moved to the device. Numbers, bools, texts and None are constants of what was
        compiled: they are given as then, or left out where they are the defaults of the forward.

        Returns:
            What the module returns. Containers of the program's own classes (named tuples, say) are tuples.

        Raises:
            ValueError: the inputs are not those that it was compiled for.
            ImageError: an image's program or structure of results is malformed.
        """
        if kwargs or not all(type(arg) is torch.Tensor for arg in args):
            args = tensors_of_call(self.specs, args, kwargs)
        elif self._has_constants:
            args = tensors_of_call(self.specs, args, {})
        outputs = self._outputs(self._inputs(args))
        if self._structure is None:
            return tuple(outputs)
        if self._structure.is_leaf():
            return outputs[0]
        return pytree.tree_unflatten(outputs, self._structure)

    def __repr__(self) -> str:
        epochs, chip = len(self.plan["epochs"]), self.plan["chip"]
        if not epochs and self.plan["host"]:
            name, reason = next(iter(self.host_nodes.items()))
            return (
                f"<Executable of {self.num_ops} ops for {chip}: none runs on the chip, so nothing is "
                f"predicted ({name}: {reason})>"
            )
        return (
            f"<Executable of {self.num_ops} ops in {epochs} epochs for {chip}: "
            f"predicted {self.latency_seconds * 1e3:.3g} ms a run, {self.samples_per_second:,.0f} samples/s>"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            "an Executable cannot be pickled or copied: it is bound to its device. Write it by save(path), "
            "and read it by Executable.load(path)"
        )

    @functools.cached_property
    def _structure(self) -> Any:
        """How results are put together; None: as a tuple."""
        text = self.specs.get("out")
        if not text:
            return None
        found = structure.loads(text)
        num_results = len(self.program.outputs) - len(self.specs.get("saved", ()))
        if found.num_leaves != num_results:
            raise ImageError(f"the structure has {found.num_leaves} results, and the program {num_results}")
        return found

    def run_flat(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Run it on one tensor for each of :attr:`inputs`; return the module's results without structure.

        Raises:
            ValueError: the inputs are not those that it was compiled for.
        """
        return self._outputs(self._inputs(tensors))

    def recorded(self, parameters: Iterable[torch.Tensor]) -> Callable[..., list[Any]]:
        """Return a function of the inputs that runs it, recorded by autograd.

        Args:
            parameters: of the module; each stands for the executable's tensor of the same memory.
        """
        own = {one.data_ptr(): one for one in parameters}
        tensors = {name: own.get(one.data_ptr(), one) for name, one in self._tensors.items()}
        run = self.program.bind(tensors, self.device)
        num_outputs = len(self.program.outputs)

        def recorded(*inputs: torch.Tensor) -> list[Any]:
            results = run(*self._inputs(inputs))
            with torch.no_grad():
                for name, value in zip(self.program.updates, results[num_outputs:], strict=True):
                    tensors[name].copy_(value)
            return results[:num_outputs]

        return recorded

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """Name, shape and dtype of each input, in the order in which a call takes them."""
        return [dict(one) for one in self.program.inputs]

    def _inputs(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        inputs = [self._checked(i, tensor) for i, tensor in enumerate(given)]
        if len(inputs) != len(self.program.inputs):
            raise ValueError(
                f"this executable takes {len(self.program.inputs)} tensors ({self._wanted()}), but got "
                f"{len(inputs)}"
            )
        return inputs

    def _outputs(self, inputs: Sequence[torch.Tensor]) -> list[Any]:
        saved = self.specs.get("saved", ())
        if self._folded is not None:
            self._folded.refresh(self._tensors)
        try:
            with torch.no_grad():
                results = list(self._run(*inputs))
                made = results[len(self.program.outputs) :]
                for name, value in zip(self.program.updates, made, strict=True):
                    self._tensors[name].copy_(value)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if (fault := self.program.fault(self._tensors, self.device)) is not None:
                raise ImageError(f"the program is malformed: {fault}. Compile the model again") from error
            raise  # the values of the inputs, such as an index
        if not saved and not self.program.updates:
            return _detached(results)
        num_outputs = len(self.program.outputs) - len(saved)
        self.intermediates = dict(zip(saved, results[num_outputs:], strict=False))
        return _detached(results[:num_outputs])

    def _wanted(self) -> str:
        return ", ".join(f"{one['name']}: {one['dtype']} {one['shape']}" for one in self.program.inputs)

    def _checked(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        if number >= len(self.program.inputs):
            return tensor
        if (tensor.shape, tensor.dtype) != self._expected[number]:
            one, dtype = self.program.inputs[number], str(tensor.dtype).removeprefix("torch.")
            raise ValueError(
                f"{one['name']}: it was compiled for {one['dtype']} {one['shape']}, but got {dtype} "
                f"{list(tensor.shape)}. Compile it again for this shape"
            )
        return tensor if tensor.device == self.device else tensor.to(self.device)

    @property
    def num_ops(self) -> int:
        """How many ops it runs."""
        return len(self.program.calls)

    @property
    def host_nodes(self) -> dict[str, str]:
        """What stays on the host, and why."""
        return {name: one["reason"] for name, one in self.plan["host"].items()}

    @property
    def latency_seconds(self) -> float:
        """Predicted time of one run on the chip."""
        return float(self.plan["totals"]["latency_seconds"])

    @property
    def samples_per_second(self) -> float:
        """Predicted throughput, runs following one another: a sample is one of the first input's rows."""
        return float(self.plan["totals"]["samples_per_second"])

    @property
    def end_to_end_samples_per_second(self) -> float:
        """Predicted throughput from the host and back: also filling epochs, starting them, PCIe."""
        return float(self.plan["end_to_end"]["samples_per_second"])

    def netlist(self) -> str:
        """Return the plan as YAML: devices, queues, graphs, programs, fused_ops."""
        with _of_the_plan():
            return netlist.text(self.plan)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a page that shows the plan: epochs on the cores, time, memory, what stayed on the host.

        Raises:
            ImageError: it cannot be written; what was at the path stays.
        """
        with _of_the_plan():
            page = report.page(self.plan)
        with file.whole_file(path, "report") as unfinished:
            unfinished.write_text(page, encoding="utf-8")

    def write_outputs(self, folder: str | os.PathLike[str], trace: str = "NONE") -> None:
        """Write the netlist, and where asked a trace of the predicted run, into a folder.

        Args:
            trace: ``"NONE"``, ``"LIGHT"`` (epochs) or ``"VERBOSE"`` (their ops too).

        Raises:
            ImageError: a file cannot be written; what was there stays.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        with file.whole_file(target / "netlist.yaml", "netlist") as unfinished:
            unfinished.write_text(self.netlist(), encoding="utf-8")
        if trace != "NONE":
            with _of_the_plan():
                events = report.trace_events(self.plan, with_ops=trace == "VERBOSE")
            with file.whole_file(target / "perf_trace.json", "trace") as unfinished:
                unfinished.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")

    def save(self, path: str | os.PathLike[str], more: Mapping[str, Any] | None = None) -> None:
        """Write it to one file, an image: data, no code.

        Args:
            more: what else its header has, as JSON has it, under keys of its own.

        Raises:
            ImageError: it cannot be written; what was at the path stays.
        """
        if self._folded is not None:
            self._folded.refresh(self._tensors)
        body = {
            "program": self.program.to_json(),
            "plan": self.plan,
            "specs": self.specs,
            "chip": self.plan["chip"],
            "replays": self.replays,
            "requires_grad": sorted(name for name, one in self._tensors.items() if one.requires_grad),
            **(more or {}),
        }
        file.write(path, body, {name: tensor.cpu() for name, tensor in self._tensors.items()})

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        device: str | torch.device | None = None,
        *,
        check_chip: bool = False,
    ) -> Executable:
        """Return the executable of an image.

        Args:
            device: where it runs; default: the current device.
            check_chip: refuse an image that was planned for another chip than the device's.

        Raises:
            ImageError: the file is no image, is damaged, or is of another version or chip.
        """
        body, tensors = file.read(path)
        name = config.device_name()
        place = device_of(device, ImageError)
        index = place.index
        try:
            if check_chip and (own := _chip_name(index)) != body["chip"]:
                raise ImageError(
                    f"{path}: planned for the chip {body['chip']}, but {name}:{index} is a {own}. Compile it "
                    "again, or choose the chip by TORCH_LOOM_CHIP"
                )
            program = Program.from_json(body["program"])
            if missing := [one for one in program.tensors if one not in tensors]:
                raise ImageError(f"{path}: the file is damaged: it lacks the tensors {missing[:5]}")
            check_specs(path, body["specs"], len(program.outputs))
            check_plan(path, body["plan"])
            trained = set(body.get("requires_grad", ()))
            moved = {name: _moved(tensor, place, name in trained) for name, tensor in tensors.items()}
            return cls(program, moved, body["plan"], body["specs"], place, replays=body["replays"])
        except ImageError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ImageError(f"{path}: the file is damaged or no image ({error!r})") from error


@contextlib.contextmanager
def _of_the_plan() -> Iterator[None]:
    """What showing a plan raises is the image's that it comes from."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ImageError(f"the plan is malformed ({error!r}): compile the model again") from error


def device_of(device: str | torch.device | None, error: type[LoomError]) -> torch.device:
    """Return the device of a name, with its index; None: the current one.

    Raises:
        error: it is no device that an executable runs on.
    """
    name = config.device_name()
    module = getattr(torch, name)
    wanted = f"an executable runs on {name} devices, such as {name}:0"
    if not isinstance(device, str | torch.device | None):
        raise error(f"device={device!r}: {wanted}")
    try:
        found = torch.device(name if device is None else device)
    except RuntimeError:
        raise error(f"device={device!r}: {wanted}") from None
    if found.type != name:
        raise error(f"device={device!r}: {wanted}")
    index = found.index if found.index is not None else module.current_device()
    if index >= module.device_count():
        raise error(
            f"device={device!r}: there are {module.device_count()} devices, from {name}:0 on. "
            "TORCH_LOOM_DEVICES sets how many"
        )
    return torch.device(name, index)


def _chip_name(index: int) -> str:
    from torch_loom import _C

    return _C.chip(index).name


def _detached(results: list[Any]) -> list[Any]:
    # A parameter that is a result, or a view of a result, is no part of the caller's autograd graph.
    return [one.detach() if isinstance(one, torch.Tensor) and one.requires_grad else one for one in results]


def _moved(tensor: torch.Tensor, device: torch.device, requires_grad: bool) -> torch.Tensor:
    own = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=device)
    can_be_trained = tensor.is_floating_point() or tensor.is_complex()
    return own.copy_(tensor).requires_grad_(requires_grad and can_be_trained)
