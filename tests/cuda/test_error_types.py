"""Errors are of the types that a GPU raises: programs print the name, and PyTorch puts it into messages."""

from __future__ import annotations

from tests.conftest import PythonRunner

START = """
def kind(call):
    try:
        call()
    except Exception as error:
        return type(error)
    raise AssertionError("nothing was raised")
"""
TWO = {"TORCH_LOOM_DEVICES": "2"}


def test_devices_and_streams(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        START
        + """
x = torch.ones(2, device="cuda")
for call in (lambda: torch.cuda.set_device(9), lambda: torch.cuda.synchronize(9), lambda: x.to("cuda:9")):
    assert kind(call) is torch.AcceleratorError
try:
    torch.cuda.set_device(9)
except RuntimeError as error:
    assert error.error_code == 101 and str(error).startswith("CUDA error: invalid device ordinal")
assert kind(lambda: torch.cuda.get_device_properties(9)) is AssertionError
assert kind(lambda: torch.cuda.can_device_access_peer(0, 9)) is AssertionError
assert kind(lambda: torch.cuda.synchronize("cpu")) is ValueError
assert kind(lambda: torch.cuda.Stream(device="cpu")) is ValueError
torch.cuda.set_sync_debug_mode("error")
try:
    assert kind(x.sum().item) is RuntimeError
finally:
    torch.cuda.set_sync_debug_mode("default")
"""
    )


def test_generators_and_raw_memory(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        START
        + """
state = torch.cuda.get_rng_state()
generator = torch.Generator("cuda")
for call in (
    lambda: torch.cuda.set_rng_state(state[:15]),
    lambda: generator.set_state(state.repeat(2)),
    lambda: generator.set_offset(3),
    lambda: torch.cuda.caching_allocator_delete(4096),
    lambda: torch.cuda.caching_allocator_delete(torch.ones(2, device="cuda").data_ptr()),
):
    assert kind(call) is RuntimeError
assert kind(lambda: generator.set_state(state.float())) is TypeError
"""
    )


def test_calls_before_the_first_use(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        START
        + """
def fails():
    raise KeyError("planted")

torch.cuda._lazy_call(fails)
assert torch.cuda.DeferredCudaCallError.__module__ == "torch.cuda"
try:
    torch.cuda.init()
except torch.cuda.DeferredCudaCallError as error:
    assert type(error).__name__ == "DeferredCudaCallError" and isinstance(error.__cause__, KeyError)
else:
    raise AssertionError("nothing was raised")
"""
    )


def test_allocators_and_communication(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        START
        + """
from torch.cuda import comm, jiterator
from torch.cuda.memory import CUDAPluggableAllocator

ones = [torch.ones(2, device=f"cuda:{i}") for i in range(2)]
assert kind(lambda: CUDAPluggableAllocator("/no/such.so", "take", "give")) is OSError
assert kind(lambda: torch.cuda.memory.change_current_allocator(
    torch.cuda.memory._get_current_allocator())) is RuntimeError
assert kind(lambda: comm.broadcast(ones[0], devices=[0], out=[ones[1]])) is RuntimeError
assert kind(lambda: comm.reduce_add([ones[0], torch.ones(2)])) is AssertionError
assert kind(lambda: comm.reduce_add([ones[0], torch.ones(3, device="cuda:1")])) is ValueError
assert kind(lambda: jiterator._create_jit_fn("int f(int x) { return x; }")) is RuntimeError
twice = jiterator._create_jit_fn("template <typename T> T twice(T x) { return x + x; }")
assert kind(lambda: twice(*[ones[0]] * 9)) is AssertionError
""",
        TWO,
    )


def test_immediate_asserts_are_of_both_types(fork_cuda: PythonRunner) -> None:
    """Of the CPU's, for tests that expect them, and of a GPU's; what shapes cause is what it is there."""
    fork_cuda(
        START
        + """
import torch.nn.functional as F
x, i = torch.ones(3, 4, device="cuda"), torch.tensor([0, 7], device="cuda")
for call in (
    lambda: F.embedding(i, x),
    lambda: x.index_select(0, i),
    lambda: x[:, i],
    lambda: F.cross_entropy(x[:2], i),
):
    own = kind(call)
    assert issubclass(own, IndexError) and issubclass(own, torch.AcceleratorError), own
for call in (lambda: x.gather(0, i[:, None]), lambda: torch.bernoulli(x * 2)):
    assert kind(call) is torch.AcceleratorError
with torch.cuda.stream(torch.cuda.Stream()):
    assert issubclass(kind(lambda: F.embedding(i, x).cpu()), IndexError)
assert kind(lambda: x.index_select(5, i)) is IndexError
assert kind(lambda: x @ x) is RuntimeError
assert (x * 2).sum().item() == 24
""",
        {"TORCH_LOOM_ASSERTS": "immediate"},
    )


def test_dtypes_that_differ(fork_cuda: PythonRunner) -> None:
    """In the words of CUDA's kernels, on every stream."""
    fork_cuda(
        """
import torch.nn.functional as F

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
    (lambda: torch.nn.Conv2d(1, 1, 1).cuda()(half(1, 1, 2, 2)),
     "Input type (c10::Half) and bias type (float) should be the same"),
    # Sizes come first.
    (lambda: half(3, 4) @ full(5, 4), "mat1 and mat2 shapes cannot be multiplied (3x4 and 5x4)"),
)
for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
    with torch.cuda.stream(stream):
        for call, text in cases:
            raises("RuntimeError", text, call)
assert torch.bmm(half(2, 0, 4), full(2, 4, 5)).shape == (2, 0, 5)
assert torch.mm(half(3, 4), half(4, 5)).dtype == torch.float16
""",
    )
