"""What the tests under the vendor's device name share."""

from __future__ import annotations

import pytest

from torch_loom import config

NAME = {"TORCH_LOOM_DEVICE_NAME": "rbln"}
EAGER = {**NAME, "TORCH_RBLN_EAGER_MALLOC": "1"}


def only_under_the_name(*, eager: bool) -> None:
    """Skip the module that calls this at its top, under another device name or memory policy."""
    settings = config.resolve()
    if settings.device_name != "rbln" or (settings.memory_policy == "eager") != eager:
        pytest.skip("test_under_the_name.py runs it as rbln", allow_module_level=True)
