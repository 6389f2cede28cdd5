import ast
import sys

import torch

import torch_loom  # noqa: F401
from tests.cuda.programs.release.answers import answers

cuda, number, cudnn, nccl = ast.literal_eval(sys.argv[1])
cuda_number = 1000 * int(cuda[:2]) + 10 * int(cuda[3:])
expected = (cuda, True, number, cuda_number)
assert answers() == expected and not torch.cuda.is_initialized()
assert torch.cuda.nccl.version() == nccl
assert torch._C._cuda_getDriverVersion() == cuda_number
assert torch._C._cudnn.getRuntimeVersion() == torch._C._cudnn.getCompileVersion() == cudnn
assert torch._C._cudnn.is_cuda and torch._C._cudnn.RNNMode.lstm == 2
assert torch.cuda.get_gencode_flags() == "-gencode compute=compute_90,code=sm_90"
torch.cuda.init()
assert not torch.backends.cudnn.is_acceptable(torch.ones(1, device="cuda"))
assert answers() == expected and vars(torch.version)["cuda"] == cuda
try:
    torch.version.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error)
else:
    raise AssertionError
