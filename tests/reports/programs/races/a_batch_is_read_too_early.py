import ast
import sys

from tests.reports.programs.races.prefetch import total

tries = ast.literal_eval(sys.argv[1])
assert any(total(False) != 1000 for _ in range(tries))
assert all(total(True) == 1000 for _ in range(tries))
