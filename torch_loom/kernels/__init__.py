"""Kernels of a program's own, Triton's and CUDA C++, compiled for the host and launched as commands."""
