"""The command says what is wrong with the package, and the plugin of pytest leaves pytest as it is."""

import sys

import torch_loom_autoload

sys.argv = ["loom", "--version"]
try:
    torch_loom_autoload.command()
except SystemExit as error:
    assert "torch-loom is not available: " in str(error), error
else:
    raise AssertionError("the command has run")

import torch_loom_pytest

assert not hasattr(torch_loom_pytest, "pytest_addoption")
print("goes on")
