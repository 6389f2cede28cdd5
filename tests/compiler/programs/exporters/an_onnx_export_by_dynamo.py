import ast
import sys
from pathlib import Path

from tests.compiler.test_exporters import check_onnx_export, made

file = ast.literal_eval(sys.argv[1])
check_onnx_export(True, *made(), Path(file))
