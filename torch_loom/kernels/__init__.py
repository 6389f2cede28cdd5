"""Kernels of a program's own: Triton's, compiled for the host, checked and launched as commands."""
