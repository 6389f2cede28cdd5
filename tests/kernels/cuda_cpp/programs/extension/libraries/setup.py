"""An extension that calls cuBLAS, draws from PyTorch's generator, and launches kernels by their addresses."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

flags = {"cxx": ["-O1"], "nvcc": ["-O1", "--extra-device-vectorization", "-Xptxas -O3", "-keep-dir", "."]}
setup(
    name="loom_test_libraries",
    ext_modules=[
        CUDAExtension(
            "loom_test_libraries", ["bindings.cpp", "scale.cu", "draw.cu"], extra_compile_args=flags
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
