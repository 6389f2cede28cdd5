"""Kernels of a program's own, Triton's and CUDA C++, compiled for the host, checked and launched as commands."""
