from tests.raising import raises
from tests.reports.programs.graphs.two_devices import captured_with

raises("AcceleratorError", "CUDA error: operation", lambda: captured_with(0))
