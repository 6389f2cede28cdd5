import ast
import sys

name = ast.literal_eval(sys.argv[1])
from tests.compiler import agreement

agreement.check(name)
