from torch.utils import cpp_extension

try:
    cpp_extension._is_cuda_file("kernels/scan.cu")
except NotImplementedError as error:
    assert "kernels/scan.cu" in str(error) and "torch ops" in str(error)
else:
    raise AssertionError
assert not cpp_extension._is_cuda_file("host.cpp")
