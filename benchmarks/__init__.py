"""Benchmarks, one script a subject. Each compares devices in one process, and writes docs/performance.md."""

import os

# What is compared is this machine's speed.
os.environ.setdefault("TORCH_LOOM_CLOCK", "wall")
