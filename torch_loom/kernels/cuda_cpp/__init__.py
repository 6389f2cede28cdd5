"""CUDA C++ without nvcc: sources compile with the host's C++ compiler against headers in ``include``.

A kernel is a function that is called once for each thread. Where threads wait for one another, each has a
stack of its own and they take turns (``csrc/cuda_cpp``). A launch is a command on its stream
(``csrc/torch/launch``). Details: docs/cuda_cpp.md.
"""

from pathlib import Path

INCLUDE = Path(__file__).with_name("include")
