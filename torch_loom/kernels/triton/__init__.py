"""Triton's backend for the host. Its modules alone import triton, and only when a program does."""
