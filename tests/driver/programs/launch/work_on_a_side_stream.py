"""Ends, or forks, as its argument says after work on a side stream."""

import ast
import builtins
import os
import sys

from torch_loom._C_testing import driver

chip = driver.create("virtual", 1, 1 << 24)
stream, ran = chip.create_stream(0, 0, False), []
chip.submit(stream, lambda: ran.append(1))
chip.synchronize_stream(stream)
assert ran == [1]
end = ast.literal_eval(sys.argv[1])
if end == "kept":
    builtins.kept = (chip, stream)
elif end == "pending":
    chip.submit(stream, lambda: ran.append(2))
elif end == "forked":
    child = os.fork()
    if child == 0:
        del chip, stream
        raise SystemExit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
