import torch

from tests.raising import raises

text = "garbage_collection_threshold must be a number between 0 and 1, both excluded, got 'x'"
raises("ValueError", text, lambda: torch.empty(1, device="loom"))
