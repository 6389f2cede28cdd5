"""A compiled model: runs on a device, says how it was placed, and is written to one file."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
        sources: names in the module of those of the tensors that are its parameters or buffers.
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
        sources: Mapping[str, str] | None = None,
    ) -> None:
        self._plan = plan
        self.device = device
        self.program = program
        self._tensors = dict(tensors)
        self.specs = dict(specs)
        self.replays = replays
        self.sources = dict(sources or {})
        self._folded = folded
        self.intermediates: dict[str, Any] = {}
        self._has_constants = bool(self.specs.get("constants"))
        self._expected = [(torch.Size(each["shape"]), dtype_of(each["dtype"])) for each in program.inputs]
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
        own = {parameter.data_ptr(): parameter for parameter in parameters}
        tensors = {name: own.get(each.data_ptr(), each) for name, each in self._tensors.items()}
        bound = dict(tensors)
        run = self.program.bind(bound, self.device)
        num_outputs = len(self.program.outputs)

        def recorded(*inputs: torch.Tensor) -> list[Any]:
            # The backward may read them as they were.
            bound.update({name: tensors[name].clone() for name in self.program.updates})
            results = run(*self._inputs(inputs))
            with torch.no_grad():
                for name, value in zip(self.program.updates, results[num_outputs:], strict=True):
                    tensors[name].copy_(value)
            return results[:num_outputs]

        return recorded

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers that it reads, by their names in the module; what changes in them is seen.

        Without those that constants were computed of, where the module is gone or was on another device.
        """
        own = self._saved_tensors()
        return {source: own[name] for name, source in self._live_sources().items() if name in own}

    def _live_sources(self) -> dict[str, str]:
        """Return the names of the tensors of which no constant was computed that would stay as it is."""
        if self._folded is None or self._folded.tensors() is not None:
            return self.sources
        read = set(self._folded.program.tensors)
        return {name: source for name, source in self.sources.items() if name not in read}

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """Name, shape and dtype of each input, in the order in which a call takes them."""
        return [dict(each) for each in self.program.inputs]

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
        return ", ".join(f"{each['name']}: {each['dtype']} {each['shape']}" for each in self.program.inputs)

    def _checked(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        if number >= len(self.program.inputs):
            return tensor
        if (tensor.shape, tensor.dtype) != self._expected[number]:
            each, dtype = self.program.inputs[number], str(tensor.dtype).removeprefix("torch.")
            raise ValueError(
                f"{each['name']}: it was compiled for {each['dtype']} {each['shape']}, but got {dtype} "
                f"{list(tensor.shape)}. Give it such a tensor, or compile it again"
            )
        return tensor if tensor.device == self.device else tensor.to(self.device)

    @property
    def num_ops(self) -> int:
        """How many ops it runs."""
        return len(self.program.calls)

    @property
    def host_nodes(self) -> dict[str, str]:
        """What stays on the host, and why."""
        return {name: each["reason"] for name, each in self.plan["host"].items()}

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
        target = file.folder(folder, "folder of outputs")
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
        body, tensors = self.to_data()
        file.write(path, {**body, **(more or {})}, tensors)

    def to_data(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Return what an image holds of it: the header, as JSON has it, and tensors on the host by name.

        Constants that parameters make are not among them: they are computed where the image is loaded, from
        the parameters of then.
        """
        if self._folded is not None:
            self._folded.refresh(self._tensors)
        tensors = self._saved_tensors()
        # Of tensors that are the same memory, one that has a name in the module is kept.
        sources = self._live_sources()
        ties = _ties({name: tensors[name] for name in [*sources, *tensors] if name in tensors})
        body = {
            "program": self.program.to_json(),
            "plan": self.plan,
            "specs": self.specs,
            "chip": self.plan["chip"],
            "replays": self.replays,
            "sources": [[name, each] for name, each in sources.items() if name in tensors.keys() - ties],
            "requires_grad": sorted(name for name, each in tensors.items() if each.requires_grad),
            "ties": ties,
        }
        if self._folded is not None and self._folded.tensors() is not None:
            body["folded"] = {"program": self._folded.program.to_json(), "names": self._folded.names}
        return body, {name: each.detach().cpu() for name, each in tensors.items() if name not in ties}

    def _saved_tensors(self) -> dict[str, torch.Tensor]:
        """Return what its tensors are made of, by name: themselves, or the parameters of constants."""
        own = self._folded.tensors() if self._folded is not None else None
        if self._folded is None or own is None:
            return dict(self._tensors)
        made = set(self._folded.names)
        return {**own, **{name: each for name, each in self._tensors.items() if name not in made}}

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
        if not isinstance(body, dict) or not isinstance(body.get("chip"), str):
            raise ImageError(f"{path}: the file is damaged: it names no chip that it was planned for")
        if body.get("is_training"):
            raise ImageError(f"{path}: an image for training: pybuda.TTDevice.load_image runs it")
        if check_chip and (own := _chip_name(index)) != body["chip"]:
            raise ImageError(
                f"{path}: planned for the chip {body['chip']}, but {name}:{index} is a {own}. Compile it "
                "again, or choose the chip by TORCH_LOOM_CHIP"
            )
        return cls.of_data(path, body, tensors, place)

    @classmethod
    def of_data(
        cls,
        path: str | os.PathLike[str],
        body: Mapping[str, Any],
        tensors: Mapping[str, torch.Tensor],
        place: torch.device,
    ) -> Executable:
        """Return the executable of what :meth:`to_data` returned, on a device.

        Args:
            path: the file that they come from, for errors.

        Raises:
            ImageError: they are malformed.
        """
        try:
            program = Program.from_json(body["program"])
            check_specs(path, body["specs"], len(program.outputs))
            check_plan(path, body["plan"])
            sources = sources_of(path, body, tensors)
            trained = set(body.get("requires_grad", ()))
            # Those that were made in inference mode would have no versions, by which changes are seen.
            with torch.inference_mode(False):
                moved = {name: _moved(tensor, place, name in trained) for name, tensor in tensors.items()}
            moved |= {name: moved[first] for name, first in body.get("ties", {}).items()}
            folded = None
            if "folded" in body:
                makes = Program.from_json(body["folded"]["program"])
                _check_tensors(path, makes, moved)
                own = {name: moved[name] for name in makes.tensors}
                folded = Folded(makes, body["folded"]["names"], {}, own, place)
                moved |= folded.computed()
                if not all(isinstance(each, torch.Tensor) for each in moved.values()):
                    raise ImageError(f"{path}: the file is damaged: a constant of it is no tensor")
            _check_tensors(path, program, moved)
            return cls(
                program,
                {name: moved[name] for name in program.tensors},
                body["plan"],
                body["specs"],
                place,
                replays=body["replays"],
                folded=folded,
                sources=sources,
            )
        except (ImageError, torch.OutOfMemoryError):
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ImageError(f"{path}: the file is damaged or no image ({error!r})") from error


def _ties(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Return the names of tensors that are the memory of one before them, with that one's name."""
    first: dict[Any, str] = {}
    ties = {}
    for name, each in tensors.items():
        place = (each.data_ptr(), each.dtype, each.shape, each.stride()) if each.numel() else name
        if first.setdefault(place, name) != name:
            ties[name] = first[place]
    return ties


def sources_of(
    path: str | os.PathLike[str], body: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> dict[str, str]:
    """Return the parameters that an image names: their names in the module, by those of their tensors.

    Raises:
        ImageError: it names a tensor that it does not hold, or two by one name.
    """
    try:
        given = {str(name): str(source) for name, source in body.get("sources", ())}
    except (TypeError, ValueError) as error:
        raise ImageError(f"{path}: the file is damaged: its parameters are {error!r}") from error
    if not given.keys() <= tensors.keys() or len(set(given.values())) < len(given):
        raise ImageError(f"{path}: the file is damaged: its parameters are {given!r}")
    return given


def _check_tensors(
    path: str | os.PathLike[str], program: Program, tensors: Mapping[str, torch.Tensor]
) -> None:
    if missing := [name for name in program.tensors if name not in tensors]:
        raise ImageError(f"{path}: the file is damaged: it lacks the tensors {missing[:5]}")


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
    return [
        result.detach() if isinstance(result, torch.Tensor) and result.requires_grad else result
        for result in results
    ]


def _moved(tensor: torch.Tensor, device: torch.device, requires_grad: bool) -> torch.Tensor:
    own = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=device)
    can_be_trained = tensor.is_floating_point() or tensor.is_complex()
    return own.copy_(tensor).requires_grad_(requires_grad and can_be_trained)
