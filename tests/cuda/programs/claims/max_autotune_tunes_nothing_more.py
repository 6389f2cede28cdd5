import torch
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

x = torch.arange(12.0, device="cuda").reshape(3, 4)
found, sources = run_and_get_code(torch.compile(lambda x: (x @ x.t()).relu(), mode="max-autotune"), x)
assert torch.equal(found, x @ x.t()) and config.cuda_backend == "cpp"
assert not any("triton" in source.lower().partition("async_compile")[2] for source in sources)
assert "extern_kernels.mm" in sources[0]
