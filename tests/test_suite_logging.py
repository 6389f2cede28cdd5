"""What pytest listens to while a test runs."""

from __future__ import annotations

import logging


def test_pytest_does_not_make_pytorch_write_out_what_it_compiles() -> None:
    handlers = logging.getLogger("torch.__trace").handlers
    assert [one for one in handlers if type(one).__module__.startswith("_pytest")] == []
