"""Formats of single weights, by their names in the model."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from torch_loom.compat.tt.options import WEIGHT_FORMATS
from torch_loom.errors import CompilerOptionError
from torch_loom.numerics import DataFormat

_DEFAULT = "default"
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class _Rounded(nn.Module):
    """Gives a weight as values of a format."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.dtype = dtype
        self._format = DataFormat[WEIGHT_FORMATS[dtype]].value

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        rounded: torch.Tensor = torch.ops.loom_numerics.quantize(weight, self._format)
        return rounded


def apply_weight_dtype_overrides(
    model: nn.Module, config: str | os.PathLike[str] | Mapping[str, str]
) -> list[tuple[str, str]]:
    """Let weights of matrix products be values of a format, whenever the model reads them.

    Weights of convolutions keep theirs, and a weight that has a format already keeps the first.

    Args:
        config: names of weights, or patterns of them (``*``, ``?``), and ``bfp_bf8``, ``bfp_bf4`` or ``bf16``
            for each, later ones counting; ``"default"`` is for all other weights. Or the path of a JSON file
            with that, or one format for all.

    Returns:
        Name and format of each weight that was changed. A pattern that fits none warns.

    Raises:
        CompilerOptionError: a format that does not exist, or a file that cannot be read.
    """
    rules = _read(config)
    names = [name for name, _ in model.named_parameters()]
    chosen: dict[str, str] = {}
    default = rules.pop(_DEFAULT, None)
    if default is not None:
        chosen = {name: default for name in names if name.rpartition(".")[2] == "weight"}
    for pattern, dtype in rules.items():
        fitting = [name for name in names if fnmatchcase(name, pattern)]
        if not fitting:
            warnings.warn(f"no parameter is called {pattern!r}: nothing has {dtype}", stacklevel=2)
        chosen.update(dict.fromkeys(fitting, dtype))
    done = []
    for name, dtype in chosen.items():
        path, _, last = name.rpartition(".")
        owner = model.get_submodule(path)
        if not isinstance(owner, _CONVOLUTIONS) and isinstance(getattr(owner, last, None), nn.Parameter):
            parametrize.register_parametrization(owner, last, _Rounded(dtype))
            done.append((name, dtype))
    return done


def remove_weight_dtype_overrides(model: nn.Module) -> int:
    """Let weights be what they were; return how many. Other parametrizations stay."""
    count = 0
    for owner in list(model.modules()):
        if not parametrize.is_parametrized(owner):
            continue
        several: Any = owner.parametrizations
        for name in list(several):
            ours = [one for one in several[name] if isinstance(one, _Rounded)]
            if len(ours) == len(several[name]):
                parametrize.remove_parametrizations(owner, name, leave_parametrized=False)
            else:
                for one in ours:
                    del several[name][list(several[name]).index(one)]
            count += len(ours)
    return count


def dump_weight_names(
    model: nn.Module, model_name: str, output_dir: str | None = None, default_dtype: str = "bfp_bf8"
) -> dict[str, str]:
    """Return a format for each weight of a model, to be edited; written as JSON where a folder is given."""
    found = {
        f"{name}.weight" if name else "weight": default_dtype
        for name, module in model.named_modules()
        if isinstance(getattr(module, "weight", None), nn.Parameter)
    }
    if output_dir is not None:
        folder = Path(output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{model_name.rpartition('/')[2]}.json"
        path.write_text(json.dumps(found, indent=2), encoding="utf-8")
    return found


def _read(config: str | os.PathLike[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(config, Mapping):
        rules = dict(config)
    elif str(config) in WEIGHT_FORMATS:
        rules = {_DEFAULT: str(config)}
    else:
        try:
            rules = dict(json.loads(Path(config).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise CompilerOptionError(
                f"apply_weight_dtype_overrides: {config!r} is no dict, no JSON file and none of "
                f"{', '.join(WEIGHT_FORMATS)}: {error}"
            ) from error
    for name, dtype in rules.items():
        if dtype not in WEIGHT_FORMATS:
            raise CompilerOptionError(f"{name!r} has {dtype!r}; it is one of {', '.join(WEIGHT_FORMATS)}")
    return rules
