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
from torch_loom.config.files import no_file
from torch_loom.errors import CompilerOptionError
from torch_loom.numerics import DataFormat

_DEFAULT = "default"
# Modules whose weights are no operands of products; tt-mlir gives formats to such operands alone.
_NO_PRODUCTS = (
    *(nn.Embedding, nn.EmbeddingBag, nn.modules.conv._ConvNd, nn.LayerNorm, nn.RMSNorm),
    parametrize.ParametrizationList,
)


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

    Those of embeddings, convolutions and norms keep theirs, and a weight that has a format already keeps the
    first. A weight that several modules share has its format in each that is a product.

    Args:
        config: names of weights, or patterns of them (``*``, ``?``), and ``bfp_bf8``, ``bfp_bf4`` or ``bf16``
            for each, later ones counting; ``"default"`` is for all other weights. Or the path of a JSON file
            with that, or one format for all.

    Returns:
        Name and format of each weight that was changed. A pattern that fits none warns.

    Raises:
        CompilerOptionError: a format that does not exist, a file that cannot be read, or a value of another
            type.
    """
    _check_model("apply_weight_dtype_overrides", model)
    rules = _read(config)
    named = dict(model.named_parameters(remove_duplicate=False))
    chosen: dict[nn.Parameter, str] = {}
    default = rules.pop(_DEFAULT, None)
    if default is not None:
        chosen = {each: default for name, each in named.items() if name.rpartition(".")[2] == "weight"}
    products = {name: each for name, each in named.items() if _is_of_product(model, name)}
    for pattern, dtype in rules.items():
        fitting = {each for name, each in named.items() if fnmatchcase(name, pattern)}
        if not fitting:
            warnings.warn(f"no parameter is called {pattern!r}: nothing has {dtype}", stacklevel=2)
        elif fitting.isdisjoint(products.values()):
            warnings.warn(f"{pattern!r} is no weight of a matrix product: nothing has {dtype}", stacklevel=2)
        chosen.update(dict.fromkeys(fitting, dtype))
    done = []
    for name, parameter in products.items():
        if parameter in chosen and _is_of_product(model, name):  # a module may have several names
            path, _, last = name.rpartition(".")
            parametrize.register_parametrization(model.get_submodule(path), last, _Rounded(chosen[parameter]))
            done.append((name, chosen[parameter]))
    return done


def _is_of_product(model: nn.Module, name: str) -> bool:
    """Whether a parameter can be the operand of a product, and has no format yet."""
    path, _, last = name.rpartition(".")
    owner = model.get_submodule(path)
    value = getattr(owner, last, None)
    return not isinstance(owner, _NO_PRODUCTS) and isinstance(value, nn.Parameter) and value.dim() > 1


def _check_model(where: str, model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise CompilerOptionError(f"{where}: model is {model!r}; it is a torch.nn.Module")


def remove_weight_dtype_overrides(model: nn.Module) -> int:
    """Let weights be what they were; return how many. Other parametrizations stay."""
    _check_model("remove_weight_dtype_overrides", model)
    count = 0
    for owner in list(model.modules()):
        if not parametrize.is_parametrized(owner):
            continue
        several: Any = owner.parametrizations
        for name in list(several):
            ours = [each for each in several[name] if isinstance(each, _Rounded)]
            if len(ours) == len(several[name]):
                parametrize.remove_parametrizations(owner, name, leave_parametrized=False)
            else:
                for rounding in ours:
                    del several[name][list(several[name]).index(rounding)]
            count += len(ours)
    return count


def dump_weight_names(
    model: nn.Module,
    model_name: str,
    output_dir: str | os.PathLike[str] | None = None,
    default_dtype: str = "bfp_bf8",
) -> dict[str, str]:
    """Return a format for each weight of a model, to be edited; written as JSON where a folder is given.

    Raises:
        CompilerOptionError: a format that does not exist, or a value of another type.
    """
    _check_model("dump_weight_names", model)
    _check_format("dump_weight_names: default_dtype", default_dtype)
    if not isinstance(model_name, str) or not isinstance(output_dir, str | os.PathLike | None):
        raise CompilerOptionError(
            f"dump_weight_names: model_name is {model_name!r} and output_dir {output_dir!r}; they are a name "
            "and the path of a folder, or None"
        )
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
            if (reason := no_file(config)) is not None:
                raise ValueError(reason)
            rules = dict(json.loads(Path(config).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise CompilerOptionError(
                f"apply_weight_dtype_overrides: {config!r} is no dict, no JSON file and none of "
                f"{', '.join(WEIGHT_FORMATS)}: {error}"
            ) from error
    for name, dtype in rules.items():
        if not isinstance(name, str):
            raise CompilerOptionError(f"{name!r} names no weight; names and patterns are texts")
        _check_format(repr(name), dtype)
    return rules


def _check_format(what: str, dtype: Any) -> None:
    if not isinstance(dtype, str) or dtype not in WEIGHT_FORMATS:
        raise CompilerOptionError(f"{what} has {dtype!r}; it is one of {', '.join(WEIGHT_FORMATS)}")
