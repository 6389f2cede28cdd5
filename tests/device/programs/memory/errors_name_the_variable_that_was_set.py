import os

import torch

from tests.raising import raises

text = os.environ["WRONG"] + ": there is no key 'expandable_segment'"
raises("ValueError", text, lambda: torch.ones(1, device="loom"))
