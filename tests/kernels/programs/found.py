# Libraries find Triton; torch.compile goes on generating C++.
import torch
from torch._inductor.utils import run_and_get_code
from torch.utils._triton import has_triton

assert has_triton()
function = torch.compile(lambda x: x.sin() + 1)
x = torch.rand(100, device="cuda")
result, (code,) = run_and_get_code(function, x)
torch.testing.assert_close(result, x.sin() + 1)
assert "triton" not in code.split("async_compile = ")[1] and "cpp" in code
