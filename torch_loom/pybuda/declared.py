"""Settings that are declared once, with type and effect, and checked wherever they are set."""

from __future__ import annotations

import difflib
import functools
import os
import sys
import typing
import warnings
from dataclasses import MISSING, Field, field, fields
from typing import Any, ClassVar, TypeVar

from torch_loom.config.keywords import names_near_keywords
from torch_loom.errors import PyBudaError
from torch_loom.pybuda.wanted import read

_Kind = TypeVar("_Kind")
_told: set[str] = set()


def does(effect: str, default: Any, **more: Any) -> Any:
    """A setting, and what it changes."""
    mutable = isinstance(default, (list, dict, set))
    given = {"default_factory": lambda: type(default)(default)} if mutable else {"default": default}
    return field(**given, metadata={"effect": effect, **more})


def warns(reason: str, default: Any) -> Any:
    """A setting without a counterpart here: it is kept, and setting it warns once."""
    return does(f"warns: {reason}", default, warns=reason)


def refused(reason: str, default: Any) -> Any:
    """A setting that programs would miss: setting it raises."""
    return does(f"refused: {reason}", default, refused=reason)


def names_near(kind: type[_Kind]) -> type[_Kind]:
    """Let a class of settings that is given a name that it lacks say which is nearest."""
    kind.__init__ = names_near_keywords(kind.__init__)  # type: ignore[method-assign]
    return kind


class Declared:
    """A dataclass whose fields are settings: a value is of the field's declared type, at any time.

    Raises:
        PyBudaError: a name is set that does not exist or is refused, or a value is none that it takes.
    """

    of: ClassVar[str] = ""
    """Stands in front of a setting's name in errors."""

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, self.checked(name, value))

    @classmethod
    @functools.cache
    def declared(cls) -> dict[str, Field[Any]]:
        """Return the settings by name."""
        return {each.name: each for each in fields(cls)}  # type: ignore[arg-type]

    @classmethod
    @functools.cache
    def types(cls) -> dict[str, Any]:
        """Return the declared type of each setting."""
        hints = typing.get_type_hints(cls, include_extras=True)
        return {name: hints[name] for name in cls.declared()}

    @classmethod
    def checked(cls, name: str, value: Any, called: str = "") -> Any:
        """Return a value as a setting keeps it; one without effect warns.

        Args:
            called: the setting's name for errors, where the program has another.

        Raises:
            PyBudaError: there is no such setting, it is refused, or it takes no such value.
        """
        known = cls.declared()
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"do you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise PyBudaError(f"{cls.__name__} has no setting {name!r}: {hint}")
        default = default_of(known[name])
        value = read(f"{cls.of}{called or name}", value, cls.types()[name])
        if value != default and "refused" in known[name].metadata:
            raise PyBudaError(f"{cls.of}{name}={value!r} is refused: {known[name].metadata['refused']}")
        if value != default:
            cls.warn_without_effect(name)
        return value

    @classmethod
    def warn_without_effect(cls, name: str) -> None:
        """Warn, once for each name until the configuration is cleared, that a setting changes nothing."""
        warn_once(f"{cls.of}{name}", cls.declared()[name].metadata.get("warns", ""))


def default_of(each: Field[Any]) -> Any:
    """Return the default of a setting."""
    return each.default if each.default_factory is MISSING else each.default_factory()


def warn_once(name: str, reason: str) -> None:
    """Warn that something has no effect, if there is a reason: once until the configuration is cleared."""
    if reason and name not in _told:
        _told.add(name)
        warnings.warn(f"{name} has no effect: {reason}", stacklevel=_level_of_program())


def _level_of_program() -> int:
    """How far up the stack the line is, seen from the caller, that is not of torch_loom."""
    here, level = os.path.join(os.path.dirname(os.path.dirname(__file__)), ""), 1
    frame = sys._getframe(1)
    own = here, "<string>"  # that of dataclasses
    while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
        frame, level = frame.f_back, level + 1
    return level


def tell_anew() -> None:
    """Forget which settings were warned about."""
    _told.clear()
