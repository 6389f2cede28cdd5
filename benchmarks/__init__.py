"""Benchmarks, one script a subject. Each compares devices in one process, and writes docs/performance.md."""
