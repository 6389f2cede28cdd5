"""tt-xla's examples and the models of tt-forge-models, through ``torch.compile(backend="tt")``.

``torch_xla``, which is not here, has stand-ins: its device is loom, of which there is one. What is compiled
for the backend is compared, at each call, with the same graph in eager mode.
"""

from __future__ import annotations

import contextlib
import importlib
import runpy
import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from tests.conformance.demos.watch import correlation_of_finite

found: list[float] = []
"""Correlations of what compiled graphs returned."""


def is_meant(demo: str) -> bool:
    """Return whether a demo is one of tt-xla's, or a loader."""
    text = Path(demo).read_text(encoding="utf-8")
    return demo.endswith("loader.py") or "torch_xla" in text or "tt_torch" in text


def only_writes(demo: str) -> bool:
    """Return whether a demo compiles and runs nothing: it writes code."""
    return "codegen_py" in Path(demo).read_text(encoding="utf-8")


def run(demo: str) -> list[float]:
    """Run an example or a loader's model; return the correlations of what compiled graphs returned."""
    install()
    sys.argv = [demo]
    if demo.endswith("loader.py"):
        run_loader(demo)
    else:
        run_example(demo)
    return found


def install() -> None:
    """Let programs find stand-ins of torch_xla, and backend ``tt`` with comparisons."""
    from torch._dynamo.backends.registry import _COMPILER_FNS

    import torch_loom.compat.tt as tt

    device = torch.device("loom")
    names: dict[str, dict[str, Any]] = {
        "torch_xla": {
            "device": lambda *_: device,
            "sync": lambda *_, **__: torch.get_device_module("loom").synchronize(),
            "set_custom_compile_options": tt.set_custom_compile_options,
        },
        "torch_xla.core": {},
        "torch_xla.core.xla_model": {
            "xla_device": lambda *_: device,
            "mark_step": lambda *_, **__: None,
        },
        "torch_xla.runtime": {
            "set_device_type": lambda _: None,
            "global_runtime_device_count": lambda: 1,
            "use_spmd": lambda *_, **__: None,
            "initialize_cache": lambda *_, **__: None,
        },
        "torch_xla.distributed": {},
        "torch_xla.distributed.spmd": {
            "Mesh": lambda *_, **__: None,
            "mark_sharding": lambda *_, **__: None,
            "clear_sharding": lambda *_, **__: None,
        },
        "torch_xla.debug": {},
        "torch_xla.debug.metrics": {},
        "torch_xla.experimental": {},
        "torch_xla.experimental.eager": {"eager_mode_context": lambda _: contextlib.nullcontext()},
        "tests": {},
        "tests.utils": {"failed_ttmlir_compilation": str},
    }
    for name, members in names.items():
        module = ModuleType(name)
        vars(module).update(members, __path__=[], __spec__=ModuleSpec(name, None))
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
    _COMPILER_FNS["tt"] = _comparing(_COMPILER_FNS["tt"])


def _comparing(backend: Any) -> Any:
    def compiled(graph: Any, inputs: Any, **kwargs: Any) -> Any:
        run = backend(graph, inputs, **kwargs)

        def both(*given: Any) -> Any:
            with torch.no_grad():
                expected = graph(*_copies(given))
            made = run(*given)
            _compare(expected, made)
            return made

        return both

    return compiled


def _copies(values: Iterable[Any]) -> list[Any]:
    """A graph may write to its inputs, such as a cache."""
    return [
        one.clone() if isinstance(one, torch.Tensor) and not isinstance(one, nn.Parameter) else one
        for one in values
    ]


def _compare(expected: Any, made: Any) -> None:
    pairs = zip(torch.utils._pytree.tree_leaves(expected), torch.utils._pytree.tree_leaves(made), strict=True)
    for a, b in pairs:
        if isinstance(a, torch.Tensor) and a.is_floating_point():
            found.append(correlation_of_finite(a, b))


def run_example(path: str) -> None:
    """Run an example: its tests where it has some, or else as a program."""
    import pytest

    if "def test_" not in Path(path).read_text():
        runpy.run_path(path, run_name="__main__")
        return
    status = pytest.main([path, "-q", "-p", "no:cacheprovider", "-o", "addopts=", "--noconftest"])
    if status != pytest.ExitCode.OK:
        raise AssertionError(f"its tests: {status}")


def run_loader(path: str) -> None:
    """Compile the model of a loader of tt-forge-models, and run it on the loader's inputs."""
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    loader = module.ModelLoader()
    model = loader.load_model().eval().to("loom")
    inputs = loader.load_inputs()
    torch.manual_seed(0)
    args, kwargs = _arguments(inputs)
    with torch.no_grad():
        torch.compile(model, backend="tt")(*args, **kwargs)


def _arguments(inputs: Any) -> tuple[list[Any], dict[str, Any]]:
    def moved(value: Any) -> Any:
        return value.to("loom") if isinstance(value, torch.Tensor) else value

    if isinstance(inputs, Mapping):
        return [], {key: moved(value) for key, value in inputs.items()}
    if isinstance(inputs, list | tuple):
        return [moved(value) for value in inputs], {}
    return [moved(inputs)], {}
