"""A plugin of pytest for PyTorch's test files: older names of its test helpers, and a share of the tests.

A file of an older PyTorch imports helpers that the present one has renamed. With them it can be imported, and
it runs unmodified. Nothing of torch itself is added: what PyTorch has taken away from its users fails.

``--share 0-2/10`` runs those tests of a large file whose names fall into three of ten parts. A hash decides,
so that each run takes the same ones.

``--fork-ranks`` forks the ranks of distributed tests from a process that has imported torch and the helpers:
each rank of each test would import them anew, for seconds.
"""

from __future__ import annotations

import hashlib
import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

HELPERS = "torch.testing._internal"


def _is_tf32_lossy(module: ModuleType) -> Callable[[], bool]:
    """Return the helper that says whether kernels round to TF32; the engine's compute in float32."""
    return lambda: False


def _lowered_precisions(module: ModuleType) -> Any:
    return module.reduced_f32_on_and_off


def _module_tests(module: ModuleType) -> Any:
    return module.get_new_module_tests()


def _binary_ops(module: ModuleType) -> Any:
    return module.binary_ufuncs


def _has_triton_on_cuda(module: ModuleType) -> bool:
    return bool(module.HAS_CUDA_AND_TRITON)


def _requires_triton_on_cuda(module: ModuleType) -> Any:
    return module.requires_cuda_and_triton


def _inline_assembly(module: ModuleType) -> Any:
    return module.inline_asm_kernel_is_pure_true


def _has_triton_on_xpu(module: ModuleType) -> bool:
    return bool(module.HAS_XPU_AND_TRITON)


def _is_cpu(module: ModuleType) -> Callable[[], bool]:
    """Return the helper of triton-cpu's that says whether kernels are compiled for its own backend."""
    return lambda: False


def _device_type_helper(name: str) -> Callable[[ModuleType], Any]:
    def of(module: ModuleType) -> Any:
        return getattr(importlib.import_module(f"{HELPERS}.common_device_type"), name)

    return of


def _skip_ops(module: ModuleType) -> Callable[..., Any]:
    """Return the decorator that has lost its first two arguments, the names of the test."""
    present = _device_type_helper("skipOps")(module)
    return lambda *arguments: present(arguments[-1])


# By the module of the helpers: the name that it lacks, and what makes its value from that module.
NAMES: dict[str, dict[str, Callable[[ModuleType], Any]]] = {
    f"{HELPERS}.common_cuda": {"tf32_is_not_fp32": _is_tf32_lossy},
    f"{HELPERS}.inductor_utils": {"HAS_CUDA": _has_triton_on_cuda, "HAS_XPU": _has_triton_on_xpu},
    f"{HELPERS}.triton_utils": {
        "HAS_CUDA": _has_triton_on_cuda,
        "requires_cuda": _requires_triton_on_cuda,
        "inline_asm_kernel": _inline_assembly,
    },
    f"{HELPERS}.common_mkldnn": {"bf32_on_and_off": _lowered_precisions},
    f"{HELPERS}.common_nn": {"new_module_tests": _module_tests},
    f"{HELPERS}.common_methods_invocations": {
        "binary_ufuncs_and_refs": _binary_ops,
        "skip": _device_type_helper("skip"),
        "xfail": _device_type_helper("xfail"),
        "skipOps": _skip_ops,
    },
    "triton._internal_testing": {"is_cpu": _is_cpu},
}


def add_names(source: str) -> list[str]:
    """Give the helpers' modules those older names that a source mentions and they lack; return these."""
    added = []
    for module_name, names in NAMES.items():
        for name, make in names.items():
            if name not in source or module_name.rpartition(".")[2] not in source:
                continue
            module = importlib.import_module(module_name)
            if not hasattr(module, name):
                setattr(module, name, make(module))
                added.append(name)
    return added


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Add what a file needs before pytest imports it."""
    add_names(module_path.read_text(encoding="utf-8"))


def super_of_definition(*given: Any) -> Any:
    """Stand for ``super``: ``super(self.__class__, self)`` would not end in classes of PyTorch 2.13's tests.

    They derive from the class that is written in the file, and may have copies of its methods. This finds the
    last class with the method that calls it.
    """
    frame = sys._getframe(1)
    code = frame.f_code
    if not given:
        return super(frame.f_locals["__class__"], frame.f_locals[code.co_varnames[0]])
    kind, instance = given
    if kind is not type(instance):
        return super(kind, instance)
    for base in reversed(type(instance).__mro__):
        if any(getattr(method, "__code__", None) is code for method in vars(base).values()):
            return super(base, instance)
    return super(kind, instance)


# What the ranks of distributed tests import.
RANKS_IMPORT = (
    "torch",
    "torch_loom",
    "torch.distributed",
    f"{HELPERS}.common_distributed",
    f"{HELPERS}.common_fsdp",
    f"{HELPERS}.distributed._tensor.common_dtensor",
    "tests.conformance.suite_plugin",
)


class ForkedRank(ForkServerProcess):
    """A rank of a distributed test, with the environment that the test has when it starts the rank."""

    def __init__(
        self,
        target: Callable[..., Any],
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        daemon: bool | None = None,
    ) -> None:
        given = (dict(os.environ), target, args, dict(kwargs or {}))
        super().__init__(target=run_rank, name=name, args=given, daemon=daemon)


def run_rank(
    environment: dict[str, str],
    target: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
) -> None:
    """Run a rank. The server has the environment that the tests began with."""
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments, **keywords)


def fork_ranks() -> None:
    """Have the base class of distributed tests fork its ranks from a server, and start that."""
    multiprocessing.set_forkserver_preload([*RANKS_IMPORT])
    # The helpers ask whether there are GPUs, which otherwise starts CUDA: ranks could not use it then.
    with mock.patch.dict(os.environ, PYTORCH_NVML_BASED_CUDA_CHECK="1"):
        forkserver.ensure_running()
    helpers: Any = importlib.import_module(f"{HELPERS}.common_distributed")
    helpers.MultiProcessTestCase._spawn_processes = lambda test: test._start_processes(ForkedRank)


def is_in_share(name: str, share: str) -> bool:
    """Return whether a test is in a share, ``"FIRST-LAST/PARTS"``: by its name within its file."""
    chosen, _, parts = share.partition("/")
    first, _, last = chosen.partition("-")
    part = int(hashlib.sha256(name.encode()).hexdigest(), 16) % int(parts)
    return int(first) <= part <= int(last or first)


def leave_out(config: pytest.Config, items: list[pytest.Item], left_out: set[pytest.Item]) -> None:
    """Take tests out of those that run, and have them counted as deselected."""
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", default="0/1", help="FIRST-LAST/PARTS: run these parts of the tests")
    parser.addoption(
        "--fork-ranks", action="store_true", help="fork ranks from a process that has imported torch"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Change how ranks start, if that is asked for."""
    if config.getoption("--fork-ranks"):
        fork_ranks()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other shares; let `super(self.__class__, self)` end."""
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        if module.__file__ is not None and "super(self.__class__" in Path(module.__file__).read_text():
            module.super = super_of_definition
    share = config.getoption("--share")
    leave_out(config, items, {i for i in items if not is_in_share(i.nodeid.rpartition("/")[2], share)})
