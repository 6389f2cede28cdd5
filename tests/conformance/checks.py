"""The questions asked of one sample: the CPU runs it, the device runs it, and the answers must agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from . import compare
from .cases import OpInfo, Sample
from .model import CpuFails, Mismatch, ValueMismatch, Verdict
from .move import Moved, Mover, move
from .randomness import SALTS, salted

OUT_VARIANTS = ("fitting", "empty", "strided")
"""How `out=` is given: with the right shape, with no elements (the op resizes it), and non-contiguous."""

LAYOUTS_OF_CUDA = {
    "nn.functional.scaled_dot_product_attention": "the memory-efficient kernel's results lie in memory by "
    "time, then by head, as PyTorch's shape function of it says",
}
"""Ops whose strides CUDA has otherwise than the CPU: under the name cuda they are CUDA's."""


class Subject(NamedTuple):
    """The op that is examined, and the device it is examined on.

    `rehearsed`: the device runs each sample twice, and the second answer counts. On a stream with a worker
    the first run shows what the op returns, and the second is queued.
    """

    info: OpInfo
    device: str
    rehearsed: bool = False


class Answer(NamedTuple):
    """What an op returned, with the arguments it was given (and may have changed)."""

    output: Any
    given: Moved


Question = Callable[[str], Answer]
"""Runs something on the device named. It is asked several times, so it moves the sample anew each time."""


def check_forward(subject: Subject, sample: Sample) -> Verdict:
    """Compares values, metadata and aliasing of the op's result, and what it did to its arguments."""

    def run(device: str) -> Answer:
        given = move(subject.info, sample, device)
        return Answer(subject.info(given.input, *given.args, **given.kwargs), given)

    is_laid_out_as_cuda = subject.device == "cuda" and subject.info.full_name in LAYOUTS_OF_CUDA
    return _agree(subject, run, strides=not is_laid_out_as_cuda)


def check_inplace(subject: Subject, sample: Sample) -> Verdict:
    """Compares the op's in-place variant."""

    def run(device: str) -> Answer:
        given = move(subject.info, sample, device)
        return Answer(subject.info.get_inplace()(given.input, *given.args, **given.kwargs), given)

    return _agree(subject, run)


def check_out(subject: Subject, sample: Sample, variant: str) -> Verdict:
    """Compares the op with `out=` given as `variant` says; `out` is checked like any argument."""
    try:
        plain = move(subject.info, sample, "cpu")
        result = subject.info(plain.input, *plain.args, **plain.kwargs)
    except Exception as error:
        raise CpuFails from error
    if not compare.leaves(result) or len(compare.tensors(result)) != len(compare.leaves(result)):
        return Verdict.NOT_APPLICABLE

    def run(device: str) -> Answer:
        given = move(subject.info, sample, device)
        made = [Mover(device)(_make_out(tensor, variant)) for tensor in compare.tensors(result)]
        out = made[0] if isinstance(result, torch.Tensor) else tuple(made)
        given.tensors.extend(made)
        given.versions.extend(tensor._version for tensor in made)
        return Answer(subject.info(given.input, *given.args, **given.kwargs, out=out), given)

    return _agree(subject, run)


def _make_out(like: torch.Tensor, variant: str) -> torch.Tensor:
    """Returns a tensor for `out=` whose old contents would show in the result if they were left there."""
    if variant == "empty":
        return torch.empty(0, dtype=like.dtype)
    if variant == "strided":
        return torch.ones((*like.shape, 2), dtype=like.dtype).select(-1, 1)
    return torch.empty_strided(like.size(), like.stride(), dtype=like.dtype).fill_(1)


def check_gradient(subject: Subject, sample: Sample) -> Verdict:
    """Compares the gradients of `sum(real(output * cotangent))`, the cotangents random and the same."""
    differentiable = True

    def run(device: str) -> Answer:
        nonlocal differentiable
        given = move(subject.info, sample, device)
        result = sample.output_process_fn_grad(subject.info(given.input, *given.args, **given.kwargs))
        outputs = [tensor for tensor in compare.tensors(result) if tensor.requires_grad]
        wanted = [tensor for tensor in given.tensors if tensor.requires_grad]
        differentiable = bool(outputs) and bool(wanted)
        if not differentiable:
            return Answer([], given)
        return Answer(torch.autograd.grad(_loss(outputs, device), wanted, allow_unused=True), given)

    verdict = _agree(subject, run, strides=False)
    return verdict if differentiable else Verdict.NOT_APPLICABLE


def _loss(outputs: list[torch.Tensor], device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros((), dtype=torch.float64, device=device)
    for output in outputs:
        dense = output if output.layout == torch.strided else output.to_dense()
        cotangent = torch.randn(dense.shape, dtype=dense.dtype, generator=generator)
        # Some ops move their result: `Tensor.to` is also asked for CUDA where there is one.
        product = dense * cotangent.to(dense.device)
        total = total + (product.real if product.is_complex() else product).sum().to(device)
    return total


def check_error(subject: Subject, sample: Sample) -> Verdict:
    """Checks that what the CPU rejects is rejected with the same type of exception.

    IDENTICAL says that the message is the same too, but for the device's name; CLOSE, that only the type is.
    """

    def run(device: str) -> Exception | None:
        given = move(subject.info, sample.sample_input, device)
        try:
            subject.info(given.input, *given.args, **given.kwargs)
            if subject.rehearsed:  # what was queued fails where somebody waits for it
                torch.accelerator.synchronize()
        except Exception as error:
            return error
        return None

    expected, actual = run("cpu"), run(subject.device)
    if expected is None:
        raise CpuFails("the CPU accepts this error input")
    if actual is None:
        raise Mismatch(f"nothing is raised, on cpu {type(expected).__name__}: {expected}")
    if type(actual) is not type(expected):
        types = f"{type(actual).__name__} is raised, on cpu {type(expected).__name__}"
        raise Mismatch(f"{types}: {actual}\non cpu: {expected}")
    same = str(actual).replace(subject.device, "cpu") == str(expected).replace(subject.device, "cpu")
    return Verdict.IDENTICAL if same else Verdict.CLOSE


def _agree(subject: Subject, run: Question, *, strides: bool = True) -> Verdict:
    """Asks the CPU and the device, and compares all that can be seen from outside."""
    try:
        expected = _ask(run, "cpu", SALTS[0])
    except Exception as error:
        raise CpuFails from error
    if subject.rehearsed:
        _ask(run, subject.device, SALTS[0])
    actual = _ask(run, subject.device, SALTS[0])
    compare.check_metadata(expected.output, actual.output, subject.device, strides=strides)
    compare.check_aliasing(expected.output, actual.output, expected.given.tensors, actual.given.tensors)
    if subject.info.has_nondeterministic_output:
        return Verdict.RANDOM
    try:
        identical = _values_agree(expected, actual)
    except ValueMismatch:
        if not _is_random(run, expected):
            raise
        _check_repeatable(subject, run, actual)
        return Verdict.RANDOM
    return Verdict.IDENTICAL if identical else Verdict.CLOSE


def _values_agree(expected: Answer, actual: Answer) -> bool:
    identical = compare.values_identical(expected.output, actual.output)
    wrote = _write_through(expected, actual)
    if wrote or expected.given.changed() or actual.given.changed():
        here, there = expected.given.tensors, actual.given.tensors
        compare.check_metadata(here, there, None)
        try:
            identical &= compare.values_identical(here, there)
        except ValueMismatch as error:
            raise ValueMismatch(
                f"an argument differs after the op or a write to its result: {error}"
            ) from None
    return identical


def _write_through(expected: Answer, actual: Answer) -> bool:
    """Writes to every output that shares an argument's memory; returns whether there was one."""
    wrote = False
    shared = compare.sharing(compare.tensors(expected.output), expected.given.tensors)
    pairs = zip(compare.tensors(expected.output), compare.tensors(actual.output), strict=True)
    for share, (here, there) in zip(shared, pairs, strict=True):
        if share is None or not share.owner.startswith("input"):
            continue
        try:
            here.detach().fill_(1)
        except RuntimeError:  # elements of the view overlap
            continue
        there.detach().fill_(1)
        wrote = True
    return wrote


def _is_random(run: Question, first: Answer) -> bool:
    """Whether the op's result on CPU depends on the seed."""
    return any(not _equal(first, again) for again in (_ask(run, "cpu", salt) for salt in SALTS[1:]))


def _check_repeatable(subject: Subject, run: Question, first: Answer) -> None:
    """Raises Mismatch unless the device gives equal numbers for equal seeds and others for other seeds."""
    if not _equal(first, _ask(run, subject.device, SALTS[0])):
        raise Mismatch("the op is random, and two runs with one seed differ")
    if all(_equal(first, _ask(run, subject.device, salt)) for salt in SALTS[1:]):
        raise Mismatch("the op is random, and other seeds give the same numbers")


def _ask(run: Question, device: str, salt: int) -> Answer:
    with salted(salt):
        return run(device)


def _equal(first: Answer, second: Answer) -> bool:
    try:
        return compare.values_identical(first.output, second.output)
    except ValueMismatch:
        return False
