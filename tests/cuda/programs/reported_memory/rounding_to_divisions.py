import ast
import sys

import torch

from tests.cuda.programs.reported_memory.prepare import MIB

reserved_mib = ast.literal_eval(sys.argv[1])
held = torch.empty(514 * MIB, dtype=torch.int8, device="cuda")
assert torch.cuda.memory_reserved() == reserved_mib * MIB
