"""Demos of other projects, unmodified, with random weights, beside PyTorch on the host."""
