import torch

from tests.cuda.programs.semi_structured.common import check, fails, tiles

assert torch.backends.cusparselt.is_available() and torch.backends.cusparselt.version() == 801
for dtype in (torch.float16, torch.bfloat16, torch.int8):
    check(dtype)
x, pruned, packed, _, packed_t, _, _ = tiles(False)
unit = torch.eye(256, device="cuda").half()
assert torch.equal(torch._cslt_sparse_mm(packed.view(128, -1), unit), pruned)
result = torch._cslt_sparse_mm(packed_t.view(256, -1), unit[:128, :128].contiguous(), transpose_result=True)
assert torch.equal(result, pruned)

whole_numbers = torch.tensor([0, 0, 10, 10], dtype=torch.int8, device="cuda").tile((128, 64))
compressed = torch._cslt_compress(whole_numbers)
assert compressed.shape == (128, 160)  # half of the elements, and four bits for each four
right = torch.ones(128, 256, dtype=torch.int8, device="cuda").t()
scales = torch.tensor([2.0**-row for row in range(128)], device="cuda")
results = torch._cslt_sparse_mm(compressed, right, alpha=scales, out_dtype=torch.float16)
assert results[:3, 0].tolist() == [1280, 640, 320]
assert torch._cslt_sparse_mm(compressed, right, out_dtype=torch.int32).unique().tolist() == [1280]
assert torch._cslt_sparse_mm(compressed, right).unique().tolist() == [127]
assert torch._cslt_sparse_mm_search(compressed, right) == 0
fails(
    "must be one of {fp16, bf16, int32} for int8 inputs",
    lambda: torch._cslt_sparse_mm(compressed, right, out_dtype=torch.float32),
)
fails("the compressed matrix has 160 columns", lambda: torch._cslt_sparse_mm(compressed, right[:128]))
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    later = torch._cslt_sparse_mm(compressed, right, out_dtype=torch.int32)
side.synchronize()
assert later.unique().tolist() == [1280]
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
    torch._cslt_sparse_mm(compressed, right, out_dtype=torch.int32)
kernels = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
assert len(kernels) == 1 and "_cslt_sparse_mm" in kernels[0], kernels
