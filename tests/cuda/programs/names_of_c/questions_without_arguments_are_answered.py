import ast
import sys

import torch

import torch_loom  # noqa: F401
from tests.cuda.programs.names_of_c.listed import OURS, stubs
from torch_loom.errors import NotApplicableError

left_out = ast.literal_eval(sys.argv[1])

kinds = {"_int": int, "_bool": bool, "_float": float, "str": str, "bytes": bytes}
kinds |= {"tuple": tuple, "dict": dict, "list": list, "None": type(None)}
torch.cuda.init()
answered, refused = {}, {}
for node in stubs():
    if not isinstance(node, ast.FunctionDef) or not OURS.fullmatch(node.name) or node.args.args:
        continue
    if node.name in left_out:
        continue
    try:
        answered[node.name] = value = getattr(torch._C, node.name)()
    except NotApplicableError as error:
        assert " stands for " in str(error), (node.name, error)
        refused[node.name] = str(error)
        continue
    returned = ast.unparse(node.returns).split("[")[0]
    expected = tuple(kinds[kind] for kind in returned.split(" | ") if kind in kinds)
    assert not expected or isinstance(value, expected), (node.name, value, returned)
assert set(refused) == {"_cuda_getCurrentBlasHandle", "_cuda_getCurrentSolverHandle", "_nccl_unique_id"}, (
    refused
)
assert len(answered) > 35, sorted(answered)
assert answered["_cuda_getDeviceCount"] == 1 and answered["_cuda_getDevice"] == 0
major, minor, patch = torch.cuda.nccl.version()
nccl = major << 32 | minor << 16 | patch
assert answered["_nccl_version"] == nccl and answered["_nccl_version_suffix"] == b""
assert answered["_cuda_getArchFlags"] == "sm_90" and answered["_cuda_getAllocatorBackend"] == "native"
