"""NVML and ``nvidia-smi`` under the name cuda.

``lib/libnvidia-ml.so.1`` is a library with NVIDIA's interface (csrc/nvml), and ``bin/nvidia-smi`` a command
that asks it. Programs find both through LD_LIBRARY_PATH and PATH. ``loom run`` sets these for the program
that it starts, ``import torch`` for the processes that the program starts. They are on no path elsewhere, so
they never hide those of a machine's own driver.
"""

import os

BIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")
LIBRARY = os.path.join(os.path.dirname(BIN), "lib", "libnvidia-ml.so.1")
