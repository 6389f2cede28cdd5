import ast
import sys

import torch

from tests.raising import raises

overwritten = ast.literal_eval(sys.argv[1])
first = torch.compile(lambda x: x + 1, mode="reduce-overhead")
second = torch.compile(lambda x: x + 1, mode="reduce-overhead")
x = torch.zeros(2, device="cuda")
raises("RuntimeError", overwritten, lambda: second(first(x)).tolist())
assert second(first(x).clone()).tolist() == [2, 2]
