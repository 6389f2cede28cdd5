"""A program that has imported torch when it runs pytest."""

from __future__ import annotations

import sys

import pytest
import torch  # noqa: F401

raise SystemExit(pytest.main(["-q", "--loom", *sys.argv[1:]]))
