"""Bytes that an NVIDIA H200 allocated for convolutions: torch 2.11, cuDNN 9, cudnn.benchmark off."""

import torch

torch.backends.cudnn.allow_tf32 = False


def requested(which: str) -> int:
    return torch.cuda.memory_stats()[f"requested_bytes.all.{which}"]


def taken(source: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int = 1) -> int:
    torch.cuda.reset_peak_memory_stats()
    before = requested("current")
    out = torch.nn.functional.conv2d(source, weight, None, stride, padding, 1, groups)
    assert requested("current") == before + out.nbytes
    return requested("peak") - before - out.nbytes


def images(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    return torch.empty(*sizes, dtype=dtype, device="cuda")


half, single = torch.bfloat16, torch.float32
for dtype, shape, stride, padding, expected in (
    (half, (8, 3, 224, 64, 7), 2, 3, 19_317_776),
    (half, (8, 64, 56, 64, 3), 1, 1, 6_496_272),
    (half, (8, 128, 56, 128, 3), 2, 1, 8_323_088),
    (half, (8, 256, 56, 512, 1), 2, 0, 19_267_600),
    (half, (8, 512, 7, 2048, 1), 1, 0, 2_007_056),
    (half, (8, 256, 14, 1024, 1), 1, 0, 0),
    (half, (8, 3, 224, 96, 4), 4, 0, 0),
    (single, (8, 3, 224, 64, 7), 2, 3, 30_544_656),
    (single, (8, 128, 28, 128, 3), 1, 1, 7_012_368),
    (single, (8, 64, 56, 64, 3), 1, 1, 6_570_000),
    (single, (8, 3, 224, 768, 16), 16, 0, 0),
):
    n, channels, size, outputs, window = shape
    operands = images(dtype, n, channels, size, size), images(dtype, outputs, channels, window, window)
    assert taken(*operands, stride, padding) == expected, (dtype, shape)

source, weight = images(half, 8, 64, 56, 56), images(half, 64, 64, 3, 3)
assert taken(source.contiguous(memory_format=torch.channels_last), weight, 1, 1) == 0
assert taken(source, images(half, 64, 1, 3, 3), 1, 1, groups=64) == 0
assert taken(images(half, 2, 0, 16, 16), images(half, 8, 0, 2, 2), 2, 0) == 0
torch.backends.cudnn.enabled = False
assert taken(source, weight, 1, 1) == 0
torch.backends.cudnn.enabled = True


def taken_backward(source: torch.Tensor, weight: torch.Tensor, padding: int, wanted: list[bool]) -> int:
    gradient = torch.nn.functional.conv2d(source, weight, padding=padding)
    torch.cuda.reset_peak_memory_stats()
    before = requested("current")
    found = torch.ops.aten.convolution_backward(
        gradient, source, weight, None, [1, 1], [padding] * 2, [1, 1], False, [0, 0], 1, [*wanted, False]
    )
    return requested("peak") - before - sum(each.nbytes for each in found if each is not None)


# Of both gradients the later one's is there beside both results.
assert taken_backward(source, weight, 1, [True, True]) == 6_496_272
operands = images(single, 8, 256, 14, 14), images(single, 1024, 256, 1, 1)
assert taken_backward(*operands, 0, [False, True]) == 8_388_608

# A card without room for it makes the convolution by another algorithm.
source, weight = images(half, 8, 64, 224, 224), images(half, 64, 64, 3, 3)
torch.cuda.empty_cache()
room = torch.cuda.memory_reserved() + source.nbytes + (8 << 20)
torch.cuda.set_per_process_memory_fraction(room / torch.cuda.get_device_properties(0).total_memory)
assert taken(source, weight, 1, 1) == 0
torch.cuda.set_per_process_memory_fraction(1.0)
assert taken(source, weight, 1, 1) > 2 * source.nbytes
