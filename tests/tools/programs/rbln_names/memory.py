"""A module of a package whose names are read, and which is never imported."""

from __future__ import annotations

__all__ = ["Pool", "_private", "elsewhere", "empty_cache", "offload", "profile"]  # noqa: F822
SOME = True


def offload(): ...


def empty_cache(device: int | None = None, *, force: bool = SOME, **rest: int) -> None: ...


class Pool:
    def take(self, size: int, device=None): ...

    @staticmethod
    def sizes(unit: str = "MiB"): ...

    @property
    def free(self): ...

    def _own(self): ...


profile = offload


def hidden(): ...


raise RuntimeError("it was imported")
