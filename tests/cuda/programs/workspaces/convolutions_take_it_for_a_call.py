"""Bytes that an NVIDIA H200 and an H100 took for convolutions: torch 2.11, cuDNN 9.19, no benchmark."""

import torch

PLAIN, LAST = torch.contiguous_format, torch.channels_last


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
    (single, (8, 256, 56, 512, 1), 2, 0, 38_535_184),
    (single, (32, 256, 56, 512, 1), 2, 0, 103_284_752),
):
    n, channels, size, outputs, window = shape
    operands = images(dtype, n, channels, size, size), images(dtype, outputs, channels, window, window)
    assert taken(*operands, stride, padding) == expected, (dtype, shape)

torch.backends.cudnn.allow_tf32 = False
assert taken(images(single, 8, 128, 28, 28), images(single, 128, 128, 3, 3), 1, 1) == 0
# By Fourier transforms.
assert taken(images(single, 32, 128, 28, 28), images(single, 128, 128, 3, 3), 1, 1) == 178_847_744
torch.backends.cudnn.allow_tf32 = True

pictures = images(half, 8, 3, 224, 224).contiguous(memory_format=LAST)
assert taken(pictures, images(half, 64, 3, 7, 7), 2, 3) == 6_472_720

source, weight = images(half, 8, 64, 56, 56), images(half, 64, 64, 3, 3)
assert taken(source.contiguous(memory_format=LAST), weight, 1, 1) == 0
assert taken(source, images(half, 64, 1, 3, 3), 1, 1, groups=64) == 0
assert taken(images(half, 2, 0, 16, 16), images(half, 8, 0, 2, 2), 2, 0) == 0
torch.backends.cudnn.enabled = False
assert taken(source, weight, 1, 1) == 0
torch.backends.cudnn.enabled = True


def taken_backward(
    source: torch.Tensor, weight: torch.Tensor, wanted: list[bool], stride: int = 1, groups: int = 1
) -> int:
    padding = weight.shape[-1] // 2
    gradient = torch.nn.functional.conv2d(source, weight, None, stride, padding, 1, groups)
    torch.cuda.reset_peak_memory_stats()
    before = requested("current")
    found = torch.ops.aten.convolution_backward(
        *(gradient, source, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups),
        [*wanted, False],
    )
    return requested("peak") - before - sum(each.nbytes for each in found if each is not None)


def of_weight(dtype: torch.dtype, shape: tuple[int, ...], layout: torch.memory_format) -> int:
    n, channels, size, outputs, window, stride, groups = shape
    source = images(dtype, n, channels, size, size).contiguous(memory_format=layout)
    weight = images(dtype, outputs, channels // groups, window, window).contiguous(memory_format=layout)
    return taken_backward(source, weight, [False, True], stride, groups)


# Of both gradients the later one's is there beside both results.
assert taken_backward(source, weight, [True, True]) == 8_414_208
for dtype, shape, layout, expected in (
    # A product for each image, and their sum.
    (single, (8, 256, 14, 1024, 1, 1, 1), PLAIN, 8_388_608),
    (half, (8, 64, 56, 256, 1, 1, 1), PLAIN, 524_288),
    (half, (32, 160, 7, 960, 1, 1, 1), PLAIN, 19_660_800),
    # Or images with channels innermost.
    (half, (8, 1024, 14, 256, 1, 1, 1), PLAIN, 4_014_096),
    (half, (8, 512, 7, 2048, 1, 1, 1), PLAIN, 2_007_056),
    # In parts that fill the multiprocessors.
    (single, (8, 64, 56, 64, 3, 1, 1), PLAIN, 15_057_920),
    (single, (32, 256, 14, 256, 3, 1, 1), PLAIN, 22_283_264),
    (half, (32, 256, 14, 256, 3, 1, 1), PLAIN, 7_602_192),
    (half, (8, 384, 14, 384, 7, 1, 384), LAST, 4_816_896),
    (half, (32, 512, 14, 512, 3, 1, 512), LAST, 4_718_592),
):
    assert of_weight(dtype, shape, layout) == expected, (dtype, shape)
torch.backends.cudnn.allow_tf32 = False
assert of_weight(single, (8, 64, 56, 64, 3, 1, 1), PLAIN) == 29_491_200  # Winograd's
assert of_weight(single, (8, 320, 16, 320, 3, 1, 1), PLAIN) == 26_542_080
assert of_weight(single, (8, 64, 56, 256, 1, 1, 1), PLAIN) == 0
operands = images(single, 32, 128, 28, 28), images(single, 128, 128, 3, 3)
assert taken_backward(*operands, [True, False]) == 106_954_752
operands = images(single, 8, 64, 56, 56), images(single, 64, 64, 3, 3)
assert taken_backward(*operands, [True, False]) == 26_738_688
torch.backends.cudnn.allow_tf32 = True

# A card without room for it makes the convolution by another algorithm.
source, weight = images(half, 8, 64, 224, 224), images(half, 64, 64, 3, 3)
torch.cuda.empty_cache()
room = torch.cuda.memory_reserved() + source.nbytes + (8 << 20)
torch.cuda.set_per_process_memory_fraction(room / torch.cuda.get_device_properties(0).total_memory)
assert taken(source, weight, 1, 1) == 0
torch.cuda.set_per_process_memory_fraction(1.0)
assert taken(source, weight, 1, 1) > 2 * source.nbytes
