import ast
import sys
import warnings

import torch

from tests.raising import raises

name = ast.literal_eval(sys.argv[1])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch_loom  # noqa: F401
assert len(caught) == 1
text = f"TORCH_LOOM_DEVICE_NAME={name!r}"
assert text in str(caught[0].message)
raises("ConfigurationError", text, lambda: torch.loom.current_device())
raises("ConfigurationError", text, lambda: torch.ones(2, device="loom"))
