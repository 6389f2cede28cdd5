import ast
import sys

import torch  # noqa: F401

from tests.torch.programs.device_asserts.start import asserts, i, x

waiting = ast.literal_eval(sys.argv[1])
z = x[i]


def wait():
    exec(waiting)


asserts(wait)
