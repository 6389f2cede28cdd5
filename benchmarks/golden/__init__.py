"""Compares the numerics kernels with a golden model's vectors: ``python -m benchmarks.golden DIR``."""
