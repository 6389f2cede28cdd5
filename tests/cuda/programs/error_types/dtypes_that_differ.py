import torch
import torch.nn.functional as F

from tests.raising import raises


def half(*sizes):
    return torch.ones(sizes, dtype=torch.float16, device="cuda")


def full(*sizes):
    return torch.ones(sizes, device="cuda")


def whole(*sizes):
    return torch.ones(sizes, dtype=torch.long, device="cuda")


product = "expected mat1 and mat2 to have the same dtype, but got: {} != {}".format
summed = "mat1 and mat2 must have the same dtype, but got {} and {}".format
batches = "expected scalar type {} but found {}".format
types = "Input type (torch.cuda.{}Tensor) and weight type (torch.cuda.{}Tensor) should be the same".format
cases = (
    (lambda: half(3, 4) @ full(4, 5), product("c10::Half", "float")),
    (lambda: full(3, 4) @ half(4, 5), product("float", "c10::Half")),
    (lambda: half(3, 4).bfloat16() @ full(4, 5).double(), product("c10::BFloat16", "double")),
    (lambda: torch.mm(whole(3, 4), full(4, 5)), product("long int", "float")),
    (lambda: torch.mm(half(0, 4), full(4, 5)), product("c10::Half", "float")),
    (lambda: F.linear(half(2, 3, 4), full(5, 4)), product("c10::Half", "float")),
    (lambda: F.linear(half(3, 4), full(5, 4), full(5)), summed("Half", "Float")),
    (lambda: torch.addmm(full(5), half(3, 4), full(4, 5)), summed("Half", "Float")),
    (lambda: torch.addmm(half(5), full(3, 4), full(4, 5)), "self and mat2 must have the same dtype"),
    (lambda: torch.bmm(half(2, 3, 4), full(2, 4, 5)), batches("Half", "Float")),
    (lambda: full(2, 30, 40) @ half(2, 40, 50), batches("Float", "Half")),
    (lambda: torch.baddbmm(half(2, 30, 50), half(2, 30, 40), full(2, 40, 50)), batches("Half", "Float")),
    (lambda: torch.baddbmm(full(2, 3, 5), half(2, 3, 4), half(2, 4, 5)), "Input dtypes must be the same"),
    (lambda: torch.mv(half(3, 4), full(4)), "addmv input tensors must have the same dtype"),
    (lambda: torch.dot(half(4), full(4)), "dot : expected both vectors to have same dtype"),
    (lambda: F.conv1d(full(1, 1, 4).double(), full(1, 1, 2)), types("Double", "Float")),
    (lambda: F.conv_transpose2d(half(1, 1, 4, 4), full(1, 1, 2, 2)), types("Half", "Float")),
    (
        lambda: torch.nn.Conv2d(1, 1, 1).cuda()(half(1, 1, 2, 2)),
        "Input type (c10::Half) and bias type (float) should be the same",
    ),
    # Sizes come first.
    (lambda: half(3, 4) @ full(5, 4), "mat1 and mat2 shapes cannot be multiplied (3x4 and 5x4)"),
)
for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
    with torch.cuda.stream(stream):
        for call, text in cases:
            raises("RuntimeError", text, call)
assert torch.bmm(half(2, 0, 4), full(2, 4, 5)).shape == (2, 0, 5)
assert torch.mm(half(3, 4), half(4, 5)).dtype == torch.float16
