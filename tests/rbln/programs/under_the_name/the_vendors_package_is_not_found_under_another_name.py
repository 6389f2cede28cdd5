from tests.raising import raises
from torch_loom import compat

compat._autoload()
raises("ModuleNotFoundError", "No module named 'torch_rbln'", lambda: __import__("torch_rbln"))
