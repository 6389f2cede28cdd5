import torch

import torch_loom  # noqa: F401
from tests.raising import raises

c = torch._C
one, other = torch.ones(3, device="cuda:0"), torch.full((3,), 2.0, device="cuda:1")
c._nccl_all_reduce([one, other], [one, other], 0)
assert one.tolist() == other.tolist() == [3, 3, 3]
c._nccl_broadcast([one.fill_(7), other], 0)
assert other.tolist() == [7, 7, 7]
c._nccl_reduce([one, other], one, 0, 0, None, None)
assert one.tolist() == [14, 14, 14]
raises("NotApplicableError", "stands for", lambda: c._nccl_init_rank(1, b"", 0))
raises("NotApplicableError", "stands for", lambda: c._StaticCudaLauncher._load_kernel("", "", 0, 0))

code = "template <typename T> T twice(T x, T alpha) { return alpha * x; }"
launch = c._cuda_jiterator_compile_and_launch_kernel
x = torch.ones(2, device="cuda")
assert launch(code, "twice", False, 1, (x,), {"alpha": 3.0}).tolist() == [3, 3]

c._cuda_tunableop_set_max_tuning_duration(5)
assert torch.cuda.tunable.get_max_tuning_duration() == 5
assert c._cuda_tunableop_get_max_tuning_duration() == 5

metadata = {"dtype": torch.int32, "size": (2,), "stride": (2,), "storage_offset": 1}
x = torch.arange(4, dtype=torch.int32, device="cuda:1")
view = c._construct_CUDA_Tensor_From_Storage_And_Metadata(metadata, x.untyped_storage())
assert view.tolist() == [1, 3] and view.device == x.device and view.data_ptr() == x[1:].data_ptr()

c._cuda_record_memory_history_legacy(True, True, 10, False, False, False, False, False, [])
assert c._cuda_isHistoryEnabled()
c._cuda_record_memory_history_legacy(False, True, 1, False, False, True, False, False, [])
# PyTorch's own functions call torch._C by the names of their modules.
torch.cuda.memory._record_memory_history_legacy(True, trace_alloc_max_entries=10)
assert c._cuda_isHistoryEnabled()
torch.cuda.memory._record_memory_history_impl(None)
