"""An extension that calls cuBLAS, draws from PyTorch's generator, and launches kernels by their addresses."""

from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CUDAExtension

assert CUDA_HOME is not None
lines = ["--extra-device-vectorization", "-Xptxas -O3", "-keep-dir", ".", "--expt-extended-lambda"]
flags = {"cxx": ["-O1", "-g0"], "nvcc": ["-O1", *lines, "-gencode", "arch=compute_80,code=sm_80"]}
setup(
    name="loom_test_libraries",
    ext_modules=[
        CUDAExtension(
            "loom_test_libraries", ["bindings.cpp", "scale.cu", "draw.cu"], extra_compile_args=flags
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
