"""A package with one extension of a C++ and a CUDA source, as PyTorch's tutorial has it."""

from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CUDAExtension

assert CUDA_HOME is not None
setup(
    name="loom_test_scale",
    ext_modules=[
        CUDAExtension(
            "loom_test_scale",
            ["bindings.cpp", "scale.cu"],
            extra_compile_args={
                "cxx": ["-O1"],
                "nvcc": ["-O1", "--expt-extended-lambda", "-gencode", "arch=compute_80,code=sm_80"],
            },
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
