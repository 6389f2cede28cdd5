from tests.raising import raises
from tests.reports.programs.numbers.function import plain, product

text = "expected mat1 and mat2 to have the same dtype, but got: c10::Half != float"
raises("RuntimeError", text, lambda: product(plain, plain))
