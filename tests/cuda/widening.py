"""Calls of ops on dtypes that CUDA has kernels for and the CPU has not: a program for `test_widening.py`.

Run as `python -m tests.cuda.widening` under the name cuda. Prints how many calls agreed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map

WIDE = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
    torch.bool: torch.int64,
    **dict.fromkeys((torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8), torch.float64),
}
SAMPLES = 4
# Those that this program does not ask.
OPEN = {
    "nansum": "no dtype of the CPU's stands for complex ones",
    "nanmean": "no dtype of the CPU's stands for complex ones",
    "torch.ops.aten._efficient_attention_forward": "an op of CUDA's own",
    "torch.ops.aten._flash_attention_forward": "an op of CUDA's own",
}


def lacking() -> Iterator[tuple[OpInfo, torch.dtype]]:
    """Yield each op of the database with each dtype that it has on CUDA and not on the CPU."""
    for op in op_db:
        if op.full_name not in OPEN:
            for dtype in sorted(op.dtypesIfCUDA - op.dtypes, key=str):
                yield op, dtype


def is_on_cpu(op: OpInfo, sample: SampleInput) -> bool:
    """Return whether the CPU has a kernel after all."""
    try:
        call(op, sample, lambda x: x)
    except RuntimeError:
        return False
    return True


def is_refused_by_cufft(op: OpInfo, error: RuntimeError) -> bool:
    """Return whether CUDA refuses the call, too: sizes that are no powers of two."""
    return op.full_name.startswith("fft.") and str(error).startswith("cuFFT only supports dimensions whose")


def call(op: OpInfo, sample: SampleInput, convert: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return the results of the op on converted tensors."""

    def converted(value: object) -> object:
        return convert(value) if isinstance(value, Tensor) else value

    result = op(
        converted(sample.input), *tree_map(converted, sample.args), **tree_map(converted, sample.kwargs)
    )
    return [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)]


def check(op: OpInfo, sample: SampleInput, dtype: torch.dtype, stream: torch.cuda.Stream) -> bool:
    """Compare a call on two streams of the device with the CPU's in a wider dtype; False: CUDA refuses it."""
    on_device = sample.transform(lambda x: x.to("cuda") if isinstance(x, Tensor) else x)
    try:
        results = call(op, on_device, lambda x: x)
    except RuntimeError as error:
        if is_refused_by_cufft(op, error):
            return False
        raise
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000)
        queued = call(op, on_device, lambda x: x)
    stream.synchronize()
    wide = call(op, sample, lambda x: x.to(WIDE[dtype]) if x.dtype == dtype else x)
    shapes = call(op, sample, lambda x: x.to("meta"))
    assert len(wide) == len(results) == len(queued)
    # Results of several transforms are rounded after each of them.
    tolerances = {"rtol": 1e-3, "atol": 5e-2} if op.full_name.startswith("fft.") else {}
    for expected, result, other, shape in zip(wide, results, queued, shapes, strict=True):
        assert (result.device.type, result.dtype) == ("cuda", shape.dtype)
        here, there, expected = (
            torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
            for x in (result.cpu(), other.cpu(), expected)
        )
        torch.testing.assert_close(there, here, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(here, expected.to(here.dtype), equal_nan=True, **tolerances)
    return True


def main() -> None:
    warnings.simplefilter("ignore")
    stream = torch.cuda.Stream()
    agreed, ops = 0, set()
    for op, dtype in lacking():
        try:
            made = list(islice(op.sample_inputs_func(op, "cpu", dtype, False), SAMPLES))
            # In training some draw random numbers: nothing to compare.
            asked = [s for s in made if not s.kwargs.get("training") and not is_on_cpu(op, s)]
            agreed_here = sum(check(op, sample, dtype, stream) for sample in asked)
        except Exception as error:
            raise AssertionError(f"{op.full_name} {dtype}: {error}") from error
        agreed += agreed_here
        if agreed_here:
            ops.add(op.full_name)
    print(agreed, len(ops))


if __name__ == "__main__":
    main()
