"""The logger ``torch_loom``, and what ``TORCH_LOOM_LOG_LEVEL`` makes of it."""

from __future__ import annotations

import logging

from torch_loom import config
from torch_loom.device._core.first_use import at_first_use

logger = logging.getLogger("torch_loom")


def _configure(settings: config.Settings) -> None:
    if settings.log_level is None:
        return
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(
            logging.Formatter(f"[TORCH-{settings.device_name.upper()}][%(levelname)s] %(message)s")
        )
        logger.addHandler(handler)
    logger.setLevel(settings.log_level)


at_first_use(_configure)
