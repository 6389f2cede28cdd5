"""A plugin of pytest that imports torch before any conftest.py."""

from __future__ import annotations

import torch  # noqa: F401
