"""How else an op can be called than eagerly, and whether the device then does what it does eagerly.

Each mode runs one sample of an op, and compares what comes out, on values that it has not seen before, with
what the CPU computes eagerly from them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal import jit_metaprogramming_utils as scripts
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import torch_loom.device as loom
from tests import gate

from .cases import OpInfo, Sample
from .compare import tensors as tensors_of
from .compare import values_identical
from .model import CpuFails, Mismatch, ValueMismatch
from .move import move
from .randomness import SALTS, salted

# What the database's functions seed random ops with: a capture accepts the seed that is.
_SEED = 42

MODES = {
    "trace": "`torch.jit.trace` of the call",
    "script": "`torch.jit.script` of the call",
    "make_fx": "`make_fx` of the call",
    "capture": "graph captured after a warm-up on the default stream, replayed on new values",
    "busy": "call on a busy side stream: the host does not wait",
    "autocast": "autocast, for the ops of CUDA's cast lists: dtypes of the results",
}

COMPILERS = {
    "inductor": "`torch.compile`, the default backend",
    "loom": '`torch.compile(backend="loom")`',
}

# Their results are whatever the memory held, which may be the same for every seed.
UNINITIALISED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)

# How long a call may keep the host before its stream is let go on: then the host was waiting for it.
WAIT_SECONDS = 3.0
# What a capture says of an op that must read values on the host, as it must under CUDA.
_NEEDS_VALUES = re.compile(r"depends on values|not permitted when (the )?stream is capturing|would wait for")

Function = Callable[..., Any]


class Subject:
    """A sample's call as a function of its tensors, on a device, and values for these tensors."""

    def __init__(self, info: OpInfo, sample: Sample, device: str) -> None:
        self.info = info
        self.device = device
        moved = move(info, sample, device)
        self.inputs: list[torch.Tensor] = moved.tensors
        self._tree = (moved.input, moved.args, moved.kwargs)
        if not self.inputs or any(tensor.layout != torch.strided for tensor in self.inputs):
            raise CpuFails("only calls with strided tensors are asked")

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """Call the op with other tensors in the places of the sample's."""
        places = {id(own): given for own, given in zip(self.inputs, inputs, strict=True)}
        first, args, kwargs = tree_map(lambda leaf: places.get(id(leaf), leaf), self._tree)
        return self.info(first, *args, **kwargs)

    def clones(self, values: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
        """Return tensors laid out as the sample's, with its values or others."""
        copies = []
        for own, value in zip(self.inputs, values or self.inputs, strict=True):
            copies.append(own.clone().copy_(value).requires_grad_(False))
        return copies

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the call's arguments as the sample has them."""
        first, args, kwargs = self._tree
        return [first, *args], kwargs


class Question:
    """One sample on both devices, and what the CPU makes of it eagerly."""

    def __init__(self, info: OpInfo, sample: Sample, device: str) -> None:
        self.cpu = Subject(info, sample, "cpu")
        self.here = Subject(info, sample, device)
        self.values, self.expected = self._new_values()
        first = self._eager(1)
        self.is_random = info.name in UNINITIALISED or any(
            not _is_same(first, self._eager(salt)) for salt in SALTS[2:5]
        )

    def _eager(self, salt: int) -> Any:
        with salted(salt):
            return self.cpu(*self.cpu.clones(self.values))

    def _new_values(self) -> tuple[list[torch.Tensor], Any]:
        problem: Exception | None = None
        for change in (lambda x: x.flatten().roll(1).reshape(x.shape), lambda x: x * 0.5, lambda x: x):
            values = [change(x) if x.is_floating_point() or x.is_complex() else x for x in self.cpu.clones()]
            try:
                return values, self.cpu(*self.cpu.clones(values))
            except Exception as error:
                problem = error
        raise CpuFails(f"{type(problem).__name__}: {problem}")

    def check(self, result: Any) -> None:
        """Compare what the device returned for the new values."""
        expected, actual = tensors_of(self.expected), tensors_of(result)
        if len(expected) != len(actual):
            raise Mismatch(f"{len(actual)} tensors came back, on cpu {len(expected)}")
        for number, (there, here) in enumerate(zip(expected, actual, strict=True)):
            if here.device.type != torch.device(self.here.device).type and there.device.type == "cpu":
                raise Mismatch(f"output {number} is on {here.device}")
            if (here.dtype, here.shape) != (there.dtype, there.shape):
                raise Mismatch(
                    f"output {number} is {here.dtype} {tuple(here.shape)}, on cpu {there.dtype} "
                    f"{tuple(there.shape)}"
                )
            if not self.is_random and there.layout == torch.strided:
                torch.testing.assert_close(here.cpu(), there, equal_nan=True)


def _is_same(first: Any, second: Any) -> bool:
    try:
        return values_identical(first, second)
    except ValueMismatch:
        return False


def check(mode: str, info: OpInfo, sample: Sample, device: str) -> None:
    """Ask one question.

    Raises:
        CpuFails: the CPU cannot be asked it, or no device could answer it.
        Mismatch, AssertionError: the answer is wrong.
        Exception: what the device refused.
    """
    if mode == "autocast":
        _check_autocast(info, sample, device)
        return
    question = Question(info, sample, device)
    _CHECKS[mode](question)


def _check_compiled(make: Callable[[Subject], Function], question: Question) -> None:
    """Check what `make` makes of the call, if what it makes on the CPU is right."""
    try:
        result = make(question.cpu)(*question.cpu.clones(question.values))
        for there, here in zip(tensors_of(question.expected), tensors_of(result), strict=True):
            if not question.is_random and there.layout == torch.strided:
                torch.testing.assert_close(here, there, equal_nan=True)
    except Exception as error:
        raise CpuFails(f"{type(error).__name__}: {error}") from None
    question.check(make(question.here)(*question.here.clones(question.values)))


def _traced(subject: Subject) -> Function:
    function: Function = torch.jit.trace(  # type: ignore[no-untyped-call]
        lambda *inputs: subject(*inputs), tuple(subject.clones()), check_trace=False, strict=False
    )
    return function


def _scripted(subject: Subject) -> Function:
    args, kwargs = subject.arguments()
    name = subject.info.name
    is_variant = subject.info.variant_test_name and not name.startswith(
        ("nn.", "linalg.", "fft.", "special.")
    )
    if is_variant:
        raise CpuFails("a variant has no name of its own to be scripted by")
    function, inputs = scripts.gen_script_fn_and_args(name, "functional", *args, **kwargs)  # type: ignore[no-untyped-call]
    if len(inputs) != len(subject.inputs):
        raise CpuFails("the script has some tensors as constants")
    return function  # type: ignore[no-any-return]


def _made_fx(subject: Subject) -> Function:
    return make_fx(lambda *inputs: subject(*inputs))(*subject.clones())


def _check_capture(question: Question) -> None:
    inputs = question.here.clones()
    for given in inputs:
        given.data_ptr()  # the replay's addresses
    question.here(*inputs)
    loom.manual_seed(_SEED)
    graph = loom.LoomGraph()
    try:
        with loom.graph(graph):
            result = question.here(*inputs)
    except Exception as error:
        if _NEEDS_VALUES.search(str(error)):
            raise CpuFails("the op depends on values") from None
        raise
    for given, value in zip(inputs, question.values, strict=True):
        given.copy_(value)
    graph.replay()
    question.check(result)


def _check_busy(question: Question) -> None:
    if question.here.info.name == "special.bessel_j1":
        raise CpuFails("the stream is held by this op")
    # An op that reads values makes the host wait on every device: a capture says which these are.
    loom.manual_seed(_SEED)
    try:
        with loom.graph(loom.LoomGraph()):
            question.here(*question.here.clones())
    except Exception as error:
        if _NEEDS_VALUES.search(str(error)):
            raise CpuFails("the op depends on values") from None
    inputs = question.here.clones(question.values)
    side = loom.Stream()
    side.wait_stream(loom.current_stream())
    with gate.installed() as held:
        held.hold(side)
        opener = threading.Timer(WAIT_SECONDS, held.open)
        opener.start()
        with loom.stream(side):
            result = question.here(*inputs)
        has_waited = not opener.is_alive()
        opener.cancel()
        held.open()
        side.synchronize()
    if has_waited:
        raise Mismatch("the host waited for the stream")
    question.check(result)


def _compiled_by(backend: str, subject: Subject) -> Function:
    """Return the call, compiled whole: a break of the graph would leave the op to eager."""
    leaves, spec = tree_flatten(subject.arguments())
    numbers = {id(own): number for number, own in enumerate(subject.inputs)}
    places = [numbers.get(id(leaf)) for leaf in leaves]
    op = subject.info.get_op()

    def call(*inputs: torch.Tensor) -> Any:
        given = [leaf if place is None else inputs[place] for leaf, place in zip(leaves, places, strict=True)]
        args, kwargs = tree_unflatten(given, spec)
        return op(*args, **kwargs)

    return torch.compile(call, backend=backend, fullgraph=True, dynamic=False)


def _check_compiler(backend: str, question: Question) -> None:
    """Compile the call for the device. The CPU is asked where that fails, since compiling takes long."""
    from torch._dynamo import config, reset

    def answer(subject: Subject) -> Any:
        reset()
        with salted(1):
            return _compiled_by(backend, subject)(*subject.clones(question.values))

    with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        try:
            question.check(answer(question.here))
        except Exception:
            try:
                on_cpu = answer(question.cpu) if backend == "inductor" else _whole(question.cpu)
                if backend == "inductor" and not question.is_random:
                    for there, here in zip(tensors_of(question.expected), tensors_of(on_cpu), strict=True):
                        torch.testing.assert_close(here, there, equal_nan=True)
            except Exception as error:
                raise CpuFails(f"{type(error).__name__}: {error}") from None
            raise


def _whole(subject: Subject) -> Any:
    """Call it through Dynamo and AOTAutograd on the CPU, without a compiler."""
    from torch._dynamo import reset

    reset()
    return _compiled_by("aot_eager", subject)(*subject.clones())


_CHECKS: dict[str, Callable[[Question], None]] = {
    "trace": lambda question: _check_compiled(_traced, question),
    "script": lambda question: _check_compiled(_scripted, question),
    "make_fx": lambda question: _check_compiled(_made_fx, question),
    "capture": _check_capture,
    "busy": _check_busy,
    "inductor": lambda question: _check_compiler("inductor", question),
    "loom": lambda question: _check_compiler("loom", question),
}


def _cast_lists() -> dict[str, frozenset[str]]:
    """Return the names of the ops in CUDA's cast lists, as PyTorch's header has them."""
    text = (Path(torch.__path__[0]) / "include/ATen/autocast_mode.h").read_text(encoding="utf-8")
    lists = {
        "lower": "LOWER_PRECISION_FP",
        "float32": "FP32",
        "set_dtype": "FP32_SET_OPT_DTYPE",
        "widest": "PROMOTE",
    }
    found = {}
    for name, macro in lists.items():
        body = re.search(rf"#define AT_FORALL_{macro}\(_\)((?:.*\\\n)*.*\n)", text)
        assert body is not None, f"autocast_mode.h has no list {macro}"
        found[name] = frozenset(re.findall(r"_\(\s*(\w+)", body[1]))
    return found


CAST_LISTS = _cast_lists()


def cast_list_of(info: OpInfo) -> str | None:
    """Return in which of CUDA's lists an op is, by the name under which ATen has it."""
    for name, ops in CAST_LISTS.items():
        if info.aten_name in ops:
            return name
    return None


def _check_autocast(info: OpInfo, sample: Sample, device: str) -> None:
    which = cast_list_of(info)
    if which is None:
        raise CpuFails("the op is in none of the lists")
    low = loom.get_amp_supported_dtype()[0]
    subject = Subject(info, sample, device)
    if "dtype" in subject.arguments()[1]:
        raise CpuFails("the call says its dtype")
    inputs = subject.clones()
    if which == "lower":
        wanted = low
    else:
        wanted = torch.float32
        stays = 1 if which == "widest" else 0
        floats = [place for place, given in enumerate(inputs) if given.dtype == torch.float32]
        if len(floats) <= stays:
            raise CpuFails("there are too few tensors to have two dtypes")
        for place in floats[: len(floats) - stays]:
            inputs[place] = inputs[place].to(low)
    with torch.autocast(torch.device(device).type, dtype=low):
        result = subject(*inputs)
    leaves = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]
    found = {leaf.dtype for leaf in leaves if leaf.is_floating_point()}
    if found - {wanted}:
        raise Mismatch(f"returned {sorted(map(str, found))}, CUDA {wanted} (list {which})")
