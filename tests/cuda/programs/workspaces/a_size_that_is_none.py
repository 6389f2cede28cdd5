import warnings

from tests.cuda.programs.workspaces.setup import kept, x

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x @ x
text = "Could not parse CUBLAS_WORKSPACE_CONFIG, using default workspace size of 33554432 bytes."
assert len(caught) == 1 and str(caught[0].message).startswith(text), caught
assert kept() == 32
