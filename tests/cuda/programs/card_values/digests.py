"""Prints a digest of each result: of sums, running sums, ties, quotients by zero, fused sums, optimizers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator

import numpy as np
import torch

DEVICE = "cuda"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
INTEGERS = {"i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8}
Results = Iterator[tuple[str, torch.Tensor]]


def normal(seed: int, *sizes: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(sizes)


def on_device(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(values).to(dtype).to(DEVICE)


def sums() -> Results:
    for rows, columns in (
        (1, 257),
        (3, 33),
        (3, 1000),
        (3, 10_000),
        (64, 127),
        (64, 128),
        (64, 4099),
        (1000, 5),
    ):
        values = normal(rows * 1_000_003 + columns, rows, columns)
        for name, dtype in DTYPES.items():
            x = on_device(values, dtype)
            case = f"{rows}x{columns}/{name}"
            yield f"sum1/{case}", x.sum(1)
            yield f"sum0/{case}", x.sum(0)
            yield f"sumall/{case}", x.sum()
            if name in ("f32", "bf16"):
                yield f"mean1/{case}", x.mean(1)
                yield f"prod1/{case}", (x * 0.1 + 1).prod(1)
            if rows in (3, 64):
                yield f"cumsum1/{case}", x.cumsum(1)[:3]
                yield f"cumprod1/{case}", (x * 0.1 + 1).cumprod(1)[:3]
            if rows <= 64 and columns <= 300:
                yield f"cumsum0/{case}", x.cumsum(0)[:, :100]


def sums_of_narrow_numbers() -> Results:
    for rows, columns in ((1, 2048), (3, 1024), (64, 129), (64, 257), (64, 4099)):
        for name in ("f16", "bf16"):
            x = on_device(normal(1 + rows + columns, rows, columns), DTYPES[name])
            yield f"hsum1/{rows}x{columns}/{name}", x.sum(1, dtype=torch.float32)
            yield f"hmean/{rows}x{columns}/{name}", x.mean(dtype=torch.float32)


def sums_over_blocks() -> Results:
    for rows, columns in ((2, 300_000), (5, 262_144), (300_000, 7), (20_000, 200)):
        x = on_device(normal(1 + rows + columns, rows, columns), torch.float32)
        yield f"big1/{rows}x{columns}/f32", x.sum(1)[:500]
        yield f"big0/{rows}x{columns}/f32", x.sum(0)[:500]
        yield f"bigall/{rows}x{columns}/f32", x.sum()


def sums_of_images() -> Results:
    for sizes in ((8, 16, 14, 14), (16, 33, 10, 10)):
        for name in ("f32", "f16"):
            x = on_device(normal(1 + sum(sizes), *sizes), DTYPES[name])
            for layout, images in (("nchw", x), ("nhwc", x.contiguous(memory_format=torch.channels_last))):
                for dims in ((1,), (2,), (3,), (0, 2, 3), (2, 3), (1, 2, 3), (1, 3)):
                    yield f"dims/{sizes}/{layout}/{dims}/{name}", images.sum(dims, dtype=torch.float32)


def sums_of_views() -> Results:
    x = on_device(normal(1301, 300, 1000), torch.float32)
    views = {
        "t": x.t(),
        "step": x[:, ::2],
        "off": x[:, 1:],
        "off3": x[1:, 3:],
        "tcol": x[:, :10].t(),
        "flat5": x.flatten()[5:777],
        "exp": x[:1].expand(50, 1000),
        "exp2": x[:, :1].expand(300, 70),
        "narrow": x[10:20, 100:228],
        "neg3": x.reshape(30, 10, 20, 50).permute(2, 0, 3, 1),
    }
    for name, view in views.items():
        yield f"lay/{name}/all", view.sum()
        for dim in range(view.dim()):
            yield f"lay/{name}/{dim}", view.sum(dim)
            yield f"lay/{name}/{dim}/mean", view.mean(dim)


def ties() -> Results:
    draw = np.random.default_rng(100)
    sizes = (*range(2, 34), 40, 64, 65, 128, 129, 200, 256, 257, 512, 1000, 1024, 1025, 2048, 2049, 4096)
    for size in sizes:
        values = draw.integers(0, 4 if size < 34 else 20, (8, size)).astype(float)
        if size not in (2, 5, 16, 31, 32, 33, 65, 257, 1025, 2049):
            continue
        for name in ("f32", "f16"):
            x = on_device(values, DTYPES[name])
            yield f"sort/{size}/{name}", x.sort(1)[1]
            yield f"sortd/{size}/{name}", x.sort(1, descending=True)[1]
            yield f"sort1d/{size}/{name}", x[0].sort()[1]
            if size <= 32:
                yield f"median/{size}/{name}.1", x.median(1)[1]
            yield f"kth/{size}/{size // 2}/{name}.1", x.kthvalue(size // 2, 1)[1]
            yield f"topk/{size}/{size // 2}/{name}", x.topk(size // 2, 1)[1]
            yield f"mode/{size}/{name}.0", x.mode(1)[0]
            yield f"mode/{size}/{name}.1", x.mode(1)[1]


def quotients() -> Results:
    for name, dtype in INTEGERS.items():
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        numbers = [0, 1, 2, 7, -1, -2, -7, 100, -100, most, least, most - 1, least + 1, 5]
        if name == "i64":
            numbers += [2**31, 2**32 - 1, 2**32, -(2**31), -(2**32), 2**33 + 5, -(2**40)]
        if name == "u8":
            numbers = [0, 1, 2, 7, 100, 200, 255, 254]
        x = torch.tensor(numbers).to(dtype).to(DEVICE)
        for divisor in (0, 2, 3) if name == "u8" else (0, -1, 2, -3):
            by = torch.full_like(x, divisor)
            case = f"{divisor}/{name}"
            for op in ("remainder", "fmod", "floor_divide"):
                yield f"div0/{op}/{case}", getattr(torch, op)(x, by)
                yield f"div0s/{op}/{case}", getattr(torch, op)(x, divisor)
            for mode in ("trunc", "floor"):
                yield f"div0/{mode}/{case}", torch.div(x, by, rounding_mode=mode)
                yield f"div0s/{mode}/{case}", torch.div(x, divisor, rounding_mode=mode)


def ranges() -> Results:
    for name, dtype in DTYPES.items():
        for start, end, step in ((0, 1, 0.1), (1, 2, 0.3), (0, 1000, 0.7), (5, -5, -0.25)):
            case = f"arange/{(start, end, step)}/{name}"
            yield case, torch.arange(start, end, step, device=DEVICE, dtype=dtype)
    for name, dtype in DTYPES.items():
        x = on_device(np.random.default_rng(4).standard_normal(700), dtype)
        yield f"fe/divs/{name}", x / 0.1
        yield f"fe/divs2/{name}", x / 1e-3


def fused_sums() -> Results:
    for name, dtype in DTYPES.items():
        draw = np.random.default_rng(4)
        x, y, z = (on_device(draw.standard_normal(700), dtype) for _ in range(3))
        yield f"fe/fe_addcmul/{name}", torch._foreach_addcmul([x], [y], [z], 0.3)[0]
        yield f"fe/fe_addcdiv/{name}", torch._foreach_addcdiv([x], [y], [z + 9], 0.3)[0]
        yield f"fe/fe_lerp/{name}", torch._foreach_lerp([x], [y], 0.1)[0]
        yield f"fe/fe_add_alpha/{name}", torch._foreach_add([x], [y], alpha=0.3)[0]
        yield f"fe/fe_add/{name}", torch._foreach_add([x], 0.3)[0]
        yield f"fe/fe_mul/{name}", torch._foreach_mul([x], 0.3)[0]
        yield f"fe/fe_div/{name}", torch._foreach_div([x], 0.3)[0]
        yield f"fe/fe_sqrt/{name}", torch._foreach_sqrt([x.abs()])[0]
        # As gradients whose norm is cut to 1.
        parameter = x.clone().requires_grad_()
        parameter.grad = y
        torch.nn.utils.clip_grad_norm_([parameter], 1.0)
        if name != "f64":
            yield f"fe/sub_alpha/{name}", torch.sub(x, y, alpha=0.3)
            yield f"fe/rsub/{name}", torch.rsub(x, y, alpha=0.3)
            yield f"fe/addmv/{name}", torch.addcmul(x, y, z)


def steps_of(make: Callable[[list[torch.Tensor]], torch.optim.Optimizer], dtype: torch.dtype) -> torch.Tensor:
    draw = np.random.default_rng(3)
    parameters = [
        on_device(draw.standard_normal(sizes), dtype).requires_grad_() for sizes in ((300,), (20, 30))
    ]
    optimizer = make(parameters)
    for _ in range(3):
        for parameter in parameters:
            parameter.grad = on_device(draw.standard_normal(tuple(parameter.shape)), dtype)
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


def optimizers() -> Results:
    optim = torch.optim
    made: dict[str, Callable[[list[torch.Tensor]], optim.Optimizer]] = {
        "adamw": lambda p: optim.AdamW(p, lr=1e-2),
        "adamw_single": lambda p: optim.AdamW(p, lr=1e-2, foreach=False),
        "adam": lambda p: optim.Adam(p, weight_decay=0.1),
        "sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-3),
        "sgd_single": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-3, foreach=False),
        "nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        "rmsprop": lambda p: optim.RMSprop(p),
        "adagrad": lambda p: optim.Adagrad(p),
    }
    for name, dtype in DTYPES.items():
        for kind, make in made.items():
            # In float16 its variances vanish, and 0 / 0 is NaN, whose other bits are the processor's.
            if (kind, name) != ("adam", "f16"):
                yield f"opt/{kind}/{name}", steps_of(make, dtype)


def without_nan(values: torch.Tensor) -> torch.Tensor:
    """Return 7 in the place of NaN, whose other bits are the processor's."""
    return torch.where(values.isnan(), torch.full_like(values, 7), values)


def norms_and_spreads() -> Results:
    for rows, columns in ((1, 257), (3, 33), (7, 1000), (33, 4099), (200, 7), (1, 300_000)):
        for name, dtype in DTYPES.items():
            x = on_device(normal(rows * 1000003 + columns, rows, columns), dtype)
            case = f"{rows}x{columns}/{name}"
            for order in (2, 1, 0):
                yield f"vn1/{order}/{case}", torch.linalg.vector_norm(x, order, 1)
                yield f"vn/{order}/{case}", torch.linalg.vector_norm(x, order)
                for i, norm in enumerate(torch._foreach_norm([x, x * 0.5], order)):
                    yield f"fn/{order}/{case}.{i}", norm
            yield f"vn0/{case}", torch.linalg.vector_norm(x, 2, 0)
            yield f"var1/{case}", without_nan(x.var(1))
            yield f"std/{case}", without_nan(x.std())
            yield f"var0/{case}", x.var(0, correction=0)
            for i, moment in enumerate(torch.var_mean(x, 1)):
                yield f"var_mean/{case}.{i}", without_nan(moment)


def functions() -> Results:
    halves = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)[::3].contiguous()
    draw = np.random.default_rng(11)
    numbers = np.concatenate(
        [
            draw.standard_normal(6000) * 3,
            10.0 ** draw.uniform(-30, 30, 4000) * draw.choice([-1, 1], 4000),
            draw.uniform(-1, 1, 4000),
            draw.uniform(-100, 100, 2000),
        ]
    )
    operands = {
        "f16": halves.view(torch.float16).to(DEVICE),
        "bf16": halves.view(torch.bfloat16).to(DEVICE),
        "f32": torch.from_numpy(numbers).float().to(DEVICE),
        "f64": torch.from_numpy(numbers[::4].copy()).to(DEVICE),
    }
    functional = torch.nn.functional
    for name, x in operands.items():
        other = x.flip(0).roll(777)
        yield f"un/F.hardswish/{name}", without_nan(functional.hardswish(x))
        yield f"un/F.hardsigmoid/{name}", without_nan(functional.hardsigmoid(x))
        yield f"un/fmod/{name}", without_nan(torch.fmod(x, 0.7))
        yield f"un/rem/{name}", without_nan(torch.remainder(x, 0.7))
        yield f"bi/fmod/{name}", without_nan(torch.fmod(x, other))
        yield f"bi/remainder/{name}", without_nan(torch.remainder(x, other))
        gradient = on_device(np.random.default_rng(5).standard_normal(x.numel()), x.dtype)
        for case, function in (("hardswish", functional.hardswish), ("leaky_relu", functional.leaky_relu)):
            operand = x.clone().requires_grad_()
            function(operand).backward(gradient)
            assert operand.grad is not None
            yield f"bw/F.{case}/{name}", without_nan(operand.grad)
        if name in ("f16", "bf16"):
            yield f"un/logit/{name}", without_nan(torch.logit(x))
            yield f"un/pow3/{name}", without_nan(torch.pow(x, 3))
            yield f"un/pow-2/{name}", without_nan(torch.pow(x, -2))
            yield f"bi/xlogy/{name}", without_nan(torch.xlogy(x, other))
            for case, function in (("tanh", torch.tanh), ("sigmoid", torch.sigmoid)):
                operand = x.clone().requires_grad_()
                function(operand).backward(gradient)
                assert operand.grad is not None
                yield f"bw/{case}/{name}", without_nan(operand.grad)


def fused_optimizers() -> Results:
    optim = torch.optim
    made: dict[str, Callable[[list[torch.Tensor]], optim.Optimizer]] = {
        "adam": lambda p: optim.Adam(p, fused=True),
        "adamw": lambda p: optim.AdamW(p, lr=1e-2, fused=True),
        "adam_wd": lambda p: optim.Adam(p, weight_decay=0.1, fused=True),
        "adam_ams": lambda p: optim.Adam(p, amsgrad=True, fused=True),
        "adamw_max": lambda p: optim.AdamW(p, maximize=True, fused=True),
        "sgd": lambda p: optim.SGD(p, lr=0.1, fused=True),
        "sgd_m": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3, fused=True),
        "sgd_d": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, fused=True),
        "nest": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, fused=True),
    }
    for name, dtype in DTYPES.items():
        for kind, make in made.items():
            yield f"opt/{kind}/fused1/{name}", without_nan(steps_of(make, dtype))


def digest(result: torch.Tensor) -> str:
    raw = result.contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(raw.tobytes()).hexdigest()[:16]


GROUPS = (
    *(sums, sums_of_narrow_numbers, sums_over_blocks, sums_of_images, sums_of_views),
    *(ties, quotients, ranges, fused_sums, optimizers),
    *(norms_and_spreads, functions, fused_optimizers),
)

if __name__ == "__main__":
    print(json.dumps({name: digest(result) for group in GROUPS for name, result in group()}))
