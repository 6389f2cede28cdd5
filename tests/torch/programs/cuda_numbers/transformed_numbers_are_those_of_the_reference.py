import ast
import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.torch import cuda_random_reference as reference
from tests.torch.programs.cuda_numbers.draws import offset

(cores,) = ast.literal_eval(sys.argv[1])
device = torch.accelerator.current_accelerator().type
SEED, AT, COUNT = 2**40 + 17, 8, 3001
DTYPES = (torch.half, torch.bfloat16, torch.float, torch.double)


def begin():
    state = SEED.to_bytes(8, "little") + AT.to_bytes(8, "little")
    torch.get_device_module(device).set_rng_state(torch.tensor(list(state), dtype=torch.uint8))


def drawn(call, unroll=4):
    begin()
    result = call()
    assert offset(device) == AT + reference.step_of(result.numel(), cores, unroll), offset(device)
    return result.cpu().double().numpy().reshape(-1)


def empty(dtype, *shape):
    return torch.empty(shape or (COUNT,), device=device, dtype=dtype)


def is_near(found, exact, dtype, units=1.0):
    """Within units of the last place of the dtype, or of what is lost of a term of magnitude 4."""
    allowed = units * np.maximum(np.abs(exact), 4) * torch.finfo(dtype).eps
    assert (np.abs(found - exact) <= allowed).all(), (dtype, np.abs(found - exact).max())


for dtype in DTYPES:
    is_double = dtype is torch.double
    unroll = 2 if is_double else 4
    uniforms = reference.uniforms(COUNT, SEED, AT, cores, double=is_double).astype(np.float64)
    normals = (reference.double_normals if is_double else reference.randn)(COUNT, SEED, AT, cores)
    is_near(drawn(lambda dtype=dtype: empty(dtype).normal_(0.5, 2), unroll), normals * 2 + 0.5, dtype, 2)
    is_near(drawn(lambda dtype=dtype: torch.randn(COUNT, device=device, dtype=dtype), unroll), normals, dtype)

    # ceil(log(u) / log(1 - p)): a quotient that is whole within a GPU's logarithm goes either way.
    found = drawn(lambda dtype=dtype: empty(dtype).geometric_(0.3), unroll)
    quotients = np.log(uniforms) / math.log(0.7)
    is_sure = np.abs(quotients - np.round(quotients)) > (1e-9 if is_double else 1e-4)
    assert is_sure.mean() > 0.99
    assert np.array_equal(found[is_sure], np.ceil(quotients[is_sure])), dtype

    begin()
    given = torch.linspace(-4, 4, COUNT, device=device, dtype=dtype)
    slopes = uniforms.astype(np.float64)
    found = drawn(lambda given=given: functional.rrelu(given, 0.1, 0.4, training=True), unroll)
    x = given.cpu().double().numpy()
    is_near(found, np.where(x <= 0, x * (slopes * 0.3 + 0.1), x), dtype, 2)

    kept = uniforms < (0.7 if is_double else np.float32(0.7))
    found = drawn(lambda dtype=dtype: empty(dtype).fill_(1).bernoulli_(0.7), unroll)
    assert np.array_equal(found, kept)

    # Kept numbers are scaled, lost ones become SELU's lowest value, scaled alike.
    alpha, p = 1.7580993408473766, 1 - 0.7
    scale = 1 / math.sqrt((alpha**2 * p + 1) * (1 - p))
    found = drawn(lambda given=given: functional.alpha_dropout(given, p, training=True), unroll)
    is_near(found, np.where(kept, x * scale, 0) + alpha * scale * (kept - 1.0 + p), dtype, 4)

    planes = torch.ones(43, 7, 2, 3, device=device, dtype=dtype)
    begin()
    found = functional.dropout2d(planes, p).cpu().double().numpy()
    channels = reference.uniforms(43 * 7, SEED, AT, cores, double=is_double)
    wanted = (channels < (0.7 if is_double else np.float32(0.7))).reshape(43, 7, 1, 1) / 0.7
    is_near(found, np.broadcast_to(wanted, found.shape), dtype)
    assert offset(device) == AT + reference.step_of(43 * 7, cores, unroll)

for dtype, width in ((torch.half, 8), (torch.bfloat16, 8), (torch.float, 4), (torch.double, 2)):
    for count, own in ((4000, width), (4001, 1)):
        begin()
        values, mask = torch.native_dropout(torch.ones(count, device=device, dtype=dtype), 0.4, True)
        kept = reference.kept_by_dropout(count, 0.4, SEED, AT, cores, own)
        assert np.array_equal(mask.cpu().numpy(), kept)
        is_near(values.cpu().double().numpy(), kept / 0.6, dtype)

weights = empty(torch.float, 60, 50)
uniforms = reference.uniforms(3000, SEED, AT, cores).astype(np.float64)
normals = reference.randn(3000, SEED, AT, cores)
bound = math.sqrt(6 / 110)
fan = math.sqrt(2 / 50)
for initialise, wanted in (
    (lambda: nn.init.uniform_(weights, -2, 3), uniforms * 5 - 2),
    (lambda: nn.init.xavier_uniform_(weights), (uniforms * 2 - 1) * bound),
    (lambda: nn.init.kaiming_uniform_(weights, nonlinearity="relu"), (uniforms * 2 - 1) * fan * math.sqrt(3)),
    (lambda: nn.init.normal_(weights, 1, 0.1), normals * 0.1 + 1),
    (lambda: nn.init.xavier_normal_(weights), normals * math.sqrt(2 / 110)),
    (lambda: nn.init.kaiming_normal_(weights, nonlinearity="relu"), normals * fan),
):
    is_near(drawn(initialise), wanted, torch.float)

# Normal numbers are drawn until each is within the bounds.
begin()
found = nn.init.trunc_normal_(weights, 0.5, 2.0, -1.0, 2.0).cpu().numpy().reshape(-1)
wanted, at = normals * 2 + 0.5, AT
while (is_out := (wanted < -1) | (wanted > 2)).any():
    at += reference.step_of(3000, cores)
    wanted = np.where(is_out, reference.randn(3000, SEED, at, cores) * 2 + 0.5, wanted)
is_near(found, wanted, torch.float)
assert offset(device) == at + reference.step_of(3000, cores)
