"""What all tests share: running a program in an interpreter of its own."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Threads of OpenMP that wait would spin on the core that another process of tests needs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch  # registers the device, also where a test module names only torch_loom.device

if TYPE_CHECKING:
    from tests.gate import Gate

PythonRunner = Callable[..., "subprocess.CompletedProcess[str]"]

# Imports torch once, without loom; then each line of input is a job, done in a forked child.
_FORK_SERVER = """
import json, os, signal, sys, traceback
import torch

# A shell starts what runs in its background with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def raises(kind, text, body):
    try:
        body()
    except Exception as error:
        assert type(error).__name__ == kind and text in str(error), repr(error)
    else:
        raise AssertionError(f"{kind} was not raised")

def run(job):
    for number, file in ((1, job["stdout"]), (2, job["stderr"])):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(job["env"])
    try:
        names = {"__name__": "__main__", "torch": torch, "raises": raises}
        exec(compile(job["code"], "<test>", "exec"), names)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0

for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)  # before pytest's own limit, after which nobody would read the answer
        os._exit(run(json.loads(line)))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Run the whole suite in one process more than there are cores, up to four, a part of it in this process.

    Tests that wait for processes, timeouts and pipelines leave a core idle.
    """
    if any(argument.startswith(("-n", "--numprocesses")) for argument in config.invocation_params.args):
        return None  # somebody wants what auto means elsewhere
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    return min(4, len(os.sched_getaffinity(0)) + 1) if is_whole else 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, under --in-this-process, what its settings do not reach; begin with what takes minutes."""
    if config.option.in_this_process:
        apart = [item for item in items if {"run_python", "fork_python"} & set(_fixtures(item))]
        config.hook.pytest_deselected(items=apart)
        left_out = set(apart)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: not _takes_minutes(item))


def _fixtures(item: pytest.Item) -> list[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else []


def _takes_minutes(item: pytest.Item) -> bool:
    limit = item.get_closest_marker("timeout")
    return limit is not None and limit.args[0] >= 600


def pytest_collection_finish() -> None:
    """Let the many tests that collect garbage not walk through all of PyTorch each time."""
    gc.collect()
    gc.freeze()


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
    if not _device_memory():
        return
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
    if left := _device_memory():
        pytest.fail(f"{item.path} leaves these bytes on devices: {left}", pytrace=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("torch-loom")
    group.addoption("--stateful-seconds", type=float, help="how long to run random programs (5)")
    group.addoption(
        "--in-this-process",
        action="store_true",
        help="leave out tests of programs that run in processes, and under settings, of their own",
    )
    group.addoption(
        "--stateful-seed", type=int, help="run the random programs of this seed, and of those after it"
    )


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    ours = ("TORCH_LOOM_", "TORCH_RBLN_", "RBLN_", "TORCH_DEVICE_BACKEND_AUTOLOAD", "CUDA_", "TORCH_CUDA_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**inherited, **(env or {})}


def _checked(done: subprocess.CompletedProcess[str], check: bool) -> subprocess.CompletedProcess[str]:
    if check and done.returncode != 0:
        pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done


def _run_python(
    code: str, env: Mapping[str, str] | None = None, *, flags: tuple[str, ...] = (), check: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(code)],
        env=_environment(env),
        capture_output=True,
        text=True,
        timeout=100,
    )
    return _checked(done, check)


@pytest.fixture(scope="session")
def run_python() -> PythonRunner:
    """``run_python(code, env)``: run a program in a fresh interpreter and return its CompletedProcess.

    No variable of torch-loom is set but those in ``env``. The test fails, showing the output, if the program
    does, unless ``check=False``.
    """
    return _run_python


@pytest.fixture(scope="session")
def fork_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PythonRunner]:
    """Like ``run_python``, but twenty times faster: a forked child of an interpreter that has imported torch.

    The program finds ``torch`` imported without loom, and imports ``torch_loom`` itself; it also finds
    ``raises(class_name, text, callable)``. Nothing is torn down at its end.
    """
    folder: Path = tmp_path_factory.mktemp("fork")
    with subprocess.Popen(
        [sys.executable, "-c", _FORK_SERVER],
        env=_environment({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        requests, answers = server.stdin, server.stdout

        def run(
            code: str, env: Mapping[str, str] | None = None, *, check: bool = True
        ) -> subprocess.CompletedProcess[str]:
            files = {name: folder / name for name in ("stdout", "stderr")}
            job = {"code": textwrap.dedent(code), "env": dict(env or {})}
            job |= {name: str(path) for name, path in files.items()}
            print(json.dumps(job), file=requests, flush=True)
            status = int(answers.readline())
            output = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
            return _checked(subprocess.CompletedProcess(["<fork>"], status, **output), check)

        yield run
        requests.close()


def _device_memory() -> dict[int, int]:
    import torch_loom.device as loom

    counted = {index: loom.memory_allocated(index) for index in range(loom.device_count())}
    return {index: num_bytes for index, num_bytes in counted.items() if num_bytes}


@pytest.fixture
def gate() -> Iterator[Gate]:
    """What holds streams up: see :class:`gate.Gate`."""
    from tests.gate import installed

    with installed() as gate:
        yield gate
