"""Inline assembly in PTX, as C++: what kernels of Triton's and of CUDA C++ have alike."""
