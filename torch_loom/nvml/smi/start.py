"""What bin/nvidia-smi starts: finds the package from its own place, and runs the command."""

import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(__file__).rsplit(os.sep, 4)[0])
    from torch_loom.nvml.smi.command import main

    sys.exit(main(sys.argv[1:]))
