import torch

import torch_loom  # noqa: F401
from tests.raising import raises

cudart = torch.cuda.cudart()
assert torch.cuda.is_initialized() and cudart is torch._C._cudart is torch.cuda.profiler.cudart()
success = cudart.cudaError.success
assert success == 0 and int(success) == 0 and success.name == "success", success
assert str(success) == "cudaError.success" and repr(cudart.cudaError(2)) == "<cudaError.???: 2>"
texts = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    34: "CUDA driver is a stub library",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    400: "invalid resource handle",
    700: "an illegal memory access was encountered",
    710: "device-side assert triggered",
    719: "unspecified launch failure",
    900: "operation not permitted when stream is capturing",
    12345: "unrecognized error code",
}
for number, text in texts.items():
    assert cudart.cudaGetErrorString(cudart.cudaError(number)) == text, number
raises("TypeError", "expected a cudaError, got int 2", lambda: cudart.cudaGetErrorString(2))
for check_error in (torch.cuda.check_error, torch.cuda.profiler.check_error):
    assert check_error(0) is None and check_error(success) is None
    raises("CudaError", "out of memory (2)", lambda: check_error(2))
assert issubclass(torch.cuda.CudaError, RuntimeError) and torch.cuda.cudaStatus.ERROR_NOT_READY == 34
