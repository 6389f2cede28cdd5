"""What all tests share: running a program in an interpreter of its own."""

from __future__ import annotations

import functools
import gc
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Threads of OpenMP that wait would spin on the core that another process of tests needs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch  # registers the device, also where a test module names only torch_loom.device

from tests import forking
from tests.conformance.suite_plugin import is_in_share, leave_out

if TYPE_CHECKING:
    from tests.forking import ForkServer
    from tests.gate import Gate

PythonRunner = Callable[..., "subprocess.CompletedProcess[str]"]
Serving = Callable[..., "AbstractContextManager[ForkServer]"]
_PROCESSES = {"run_python", "warm_python", "fork_python", "fork_loom", "fork_cuda"}
# What first use of a device imports, what the first optimizer does, and what the first compiled module does.
_IMPORTED_LATE = ("torch_loom.chips.estimator", "torch._dynamo", "torch._inductor.compile_fx")
_NUM_MODULES = pytest.StashKey[int]()  # that were imported when objects were last frozen


# pytest adds its handlers to each logger that does not propagate. Where this one has a handler, PyTorch
# writes out every graph, guard and kernel that it compiles.
logging.getLogger("torch.__trace").propagate = True


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Run the whole suite in as many processes as there are cores, up to four, a part of it in this one.

    With the long tests in two more: those that wait for processes, timeouts and pipelines leave a core idle.
    """
    if any(argument.startswith(("-n", "--numprocesses")) for argument in config.invocation_params.args):
        return None  # somebody wants what auto means elsewhere
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    num_waiting = 0 if "not long" in config.option.markexpr else 2
    return min(4, len(os.sched_getaffinity(0)) + num_waiting) if is_whole else 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what settings do not reach and slow tests of other shares; begin with what takes minutes."""
    if config.option.in_this_process:
        leave_out(config, items, {item for item in items if _PROCESSES & set(_fixtures(item))})
    _mark_cases_beyond_samples(items)
    slow = {item for item in items if item.get_closest_marker("slow")}
    leave_out(config, items, {i for i in slow if not is_in_share(i.nodeid, config.option.slow_share)})
    items.sort(key=lambda item: not _takes_minutes(item))


def _mark_cases_beyond_samples(items: list[pytest.Item]) -> None:
    """Mark as slow what the marker `sampled` leaves out; the marker's own deselection comes later."""
    seen: Counter[tuple[object, str]] = Counter()
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is None:
            continue
        test = item.path, item.name.partition("[")[0]
        if seen[test] % marker.args[0]:
            item.add_marker(pytest.mark.slow)
        seen[test] += 1


def _fixtures(item: pytest.Item) -> list[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else []


def _takes_minutes(item: pytest.Item) -> bool:
    limit = item.get_closest_marker("timeout")
    return limit is not None and limit.args[0] >= 600


def pytest_collection_finish(session: pytest.Session) -> None:
    _collect_and_freeze(session.config)


def _collect_and_freeze(config: pytest.Config) -> None:
    """Let the many tests that collect garbage not walk through all of PyTorch each time."""
    gc.collect()
    gc.freeze()
    config.stash[_NUM_MODULES] = len(sys.modules)


@pytest.fixture
def wall_clock() -> Iterator[None]:
    """This machine's time, for tests that hold times of the device against it."""
    import torch_loom.device as loom
    from torch_loom import _C
    from torch_loom.device._core import clock

    loom.init()
    was_simulated = _C.is_time_simulated()
    if was_simulated:
        _C.stop_simulating_time()
    yield
    if was_simulated:
        clock.start()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Function, nextitem: pytest.Item | None) -> Iterator[None]:
    """Find what a module leaves in device memory, which the tests of another would count as theirs."""
    yield
    if (nextitem is not None and nextitem.path == item.path) or item.session.testsfailed:
        return  # the report of a failed test holds what its frames held
    item.funcargs.clear()
    if _device_memory():
        _free_device_memory()
    if is_thawed := bool(_device_memory()):
        gc.unfreeze()  # what was frozen, and is part of a circle
        _free_device_memory()
    if is_thawed or len(sys.modules) >= item.config.stash[_NUM_MODULES] + 100:
        _collect_and_freeze(item.config)
    if left := _device_memory():
        pytest.fail(f"{item.path} leaves these bytes on devices: {left}", pytrace=False)


def _free_device_memory() -> None:
    if "torch._dynamo" in sys.modules:
        from torch_loom.compiler import backend

        torch._dynamo.reset()
        backend.reset()
    gc.collect()
    import torch_loom.device as loom

    for index in _device_memory():
        loom.synchronize(index)  # work under way holds its operands
    gc.collect()
    loom.empty_cache()  # frees what other streams have used, and are done with


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("torch-loom")
    group.addoption("--stateful-seconds", type=float, help="how long to run random programs (5)")
    group.addoption(
        "--slow-share", default="0/1", help="FIRST-LAST/PARTS: of the tests marked slow, run these parts"
    )
    group.addoption(
        "--in-this-process",
        action="store_true",
        help="leave out tests of programs that run in processes, and under settings, of their own",
    )
    group.addoption(
        "--stateful-seed", type=int, help="run the random programs of this seed, and of those after it"
    )


@pytest.fixture(scope="session")
def run_python(tmp_path_factory: pytest.TempPathFactory) -> PythonRunner:
    """``run_python(program, env)``: run a file, or a text, in a fresh interpreter.

    It returns the CompletedProcess. No variable of torch-loom is set but those in ``env``. The program finds
    ``given``, a literal, as its argument. The test fails, showing the output, if the program does, unless
    ``check=False``.
    """
    folder = tmp_path_factory.mktemp("python")

    def run(
        program: Path | str,
        env: Mapping[str, str] | None = None,
        *,
        given: object = None,
        flags: tuple[str, ...] = (),
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *flags, *forking.arguments(program, given, folder / "program.py")],
            env=forking.environment({"PYTHONPATH": str(forking.ROOT), **(env or {})}),
            capture_output=True,
            text=True,
            timeout=100,
        )
        return forking.checked(done, check)

    return run


@pytest.fixture(scope="session")
def _serving(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Serving:
    """``_serving(kind, *modules)``: workers of xdist share the interpreter of a kind."""
    session = getattr(request.config, "workerinput", {}).get("testrunuid", os.getpid())

    def serving(
        kind: str, *modules: str, env: Mapping[str, str] | None = None
    ) -> AbstractContextManager[ForkServer]:
        name = f"torch-loom-tests-{session}-{kind}"
        return forking.serving(name, tmp_path_factory.mktemp(kind), *modules, env=env)

    return serving


@pytest.fixture(scope="session")
def _torch_server(_serving: Serving) -> Iterator[ForkServer]:
    with _serving("fork", "torch") as server:
        yield server


@pytest.fixture(scope="session")
def warm_python(_torch_server: ForkServer) -> PythonRunner:
    """Like ``run_python``, without the seconds of `import torch`: a forked child of what has imported it.

    The device is registered under the settings in ``env``, which is what `import torch` ends with, and the
    interpreter ends as others do. Not for tests of what comes before: what torch imports, in which order,
    and which variables it reads.
    """
    return functools.partial(_torch_server.run, is_torn_down=True, is_autoloading=True)


@pytest.fixture(scope="session")
def fork_python(_torch_server: ForkServer) -> PythonRunner:
    """Like ``warm_python``, for a program that imports ``torch_loom`` itself.

    Nothing is torn down at its end.
    """
    return _torch_server.run


@pytest.fixture(scope="session")
def fork_loom(_serving: Serving) -> Iterator[PythonRunner]:
    """Like ``fork_python``, and ``torch_loom`` is imported already, under its own name.

    Settings are read at first use, after the import.
    """
    with _serving("fork_loom", "torch", "torch_loom", *_IMPORTED_LATE) as server:
        yield server.run


@pytest.fixture(scope="session")
def fork_cuda(_serving: Serving) -> Iterator[PythonRunner]:
    """Like ``fork_loom``, with the devices under the name cuda."""
    name = {"TORCH_LOOM_DEVICE_NAME": "cuda"}
    with _serving("fork_cuda", "torch", "torch_loom", *_IMPORTED_LATE, env=name) as server:
        yield server.run


def _device_memory() -> dict[int, int]:
    import torch_loom.device as loom

    counted = {index: loom.memory_allocated(index) for index in range(loom.device_count())}
    return {index: num_bytes for index, num_bytes in counted.items() if num_bytes}


@pytest.fixture(scope="module")
def exported_once() -> Iterator[None]:
    """Most tests compile one module again and again: its graph is traced once."""
    from torch import fx

    from torch_loom.compiler import api

    traced: dict[Any, Any] = {}
    original = api.exported

    def exported(module: torch.nn.Module, args: Any, kwargs: Any, *others: Any) -> Any:
        key = (id(module), *others, *(tuple(each.shape) for each in args))
        if key not in traced:
            traced[key] = (original(module, args, kwargs, *others), module)
        found, _ = traced[key]
        return replace(found, graph=fx.GraphModule(found.graph, copied(found.graph.graph)))

    def copied(graph: fx.Graph) -> fx.Graph:
        new = fx.Graph()
        result = new.graph_copy(graph, {}, return_output_node=True)
        assert isinstance(result, tuple)
        new.output(result[0])
        return new

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "exported", exported)
        yield


@pytest.fixture
def gate() -> Iterator[Gate]:
    """What holds streams up: see :class:`gate.Gate`."""
    from tests.gate import installed

    with installed() as gate:
        yield gate
