"""What holds under the name cuda: what a GPU answers, which kernels it has, and what CUDA's names do.

``widening`` alone holds under every name.

``names`` stands below :mod:`torch_loom.device`, which has those names on every device, and so do the tables
that the op table's command reads (``refusals``, ``widening``, ``nondeterminism``). The others stand above it.
"""
