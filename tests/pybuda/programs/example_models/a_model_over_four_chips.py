import ast
import sys

name = ast.literal_eval(sys.argv[1])
from tests.pybuda.test_example_models import check

check(name, 4)
print("done")
