"""What the conformance suite shares: a driver under test, the text of its contract, and work to give it."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch_loom._C_testing import driver

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
GRANULE_BYTES = 2 * MIB
CAPACITY_BYTES = 64 * MIB
# The driver of this folder: setup.py builds its library beside the extensions of a checkout.
MIRROR = str(ROOT / "build/temp/libloom_mirror.so")
every_driver = pytest.mark.parametrize("name", [*driver.names(), MIRROR], ids=[*driver.names(), "mirror"])
# Generous: only a driver that hangs ever waits so long.
TIMEOUT_S = 20.0


class Chip:
    """A driver, and what it says that it can do, so that a test can say what it does instead."""

    def __init__(
        self,
        name: str,
        device_count: int = 2,
        memory_bytes: int = CAPACITY_BYTES,
        launch: driver.Launch = driver.Launch.AUTO,
        protect: bool = False,
    ) -> None:
        self.driver = driver.create(name, device_count, memory_bytes, launch, protect=protect)
        self.name, self.is_blocking, self.is_protected = name, launch == driver.Launch.BLOCKING, protect
        info = self.driver.info()
        self.is_sticky, self.shares = info.sticky_failures, info.shared_memory

    @property
    def runs(self) -> bool:
        """Whether kernels run; where not, they are released at once and nothing is ever pending."""
        return self.driver.info().executes_kernels

    @property
    def queues(self) -> bool:
        """Whether side streams run elsewhere than in the thread that submits."""
        return self.driver.info().queues_kernels

    def used_bytes(self, device: int = 0) -> int:
        info = self.driver.memory_info(device)
        return info.total_bytes - info.free_bytes

    def buffer(self, where: str, data: bytes) -> Buffer:
        return Buffer(self, where, data)

    @contextlib.contextmanager
    def busy(self, stream: object, at_end: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Keep a stream busy with a kernel until the block ends. Where kernels do not run, it is idle."""
        started, gate = threading.Event(), threading.Event()
        end = self.driver.create_event()

        def kernel() -> None:
            started.set()
            assert gate.wait(TIMEOUT_S)
            at_end()

        with thread(lambda: self.driver.submit(stream, kernel)):
            try:
                assert not self.runs or started.wait(TIMEOUT_S)
                self.driver.record_event(end, stream)
                yield
            finally:
                gate.set()
        self.driver.synchronize_event(end)

    @contextlib.contextmanager
    def behind(self, call: Callable[[], object]) -> Iterator[None]:
        """Make a call that submits behind unfinished work, which blocks where everything is in place."""
        with thread(*([call] if self.is_blocking else [])):
            if not self.is_blocking:
                call()
            yield


class Buffer:
    """Bytes in device, pinned or pageable memory, read and written by the host."""

    def __init__(self, chip: Chip, where: str, data: bytes) -> None:
        self._driver, self._where, self._size = chip.driver, where, len(data)
        if where == "pageable":
            self._kept = ctypes.create_string_buffer(data, len(data))
            self.address = ctypes.addressof(self._kept)
            return
        if where == "pinned":
            self.address = chip.driver.allocate_host(len(data))
        else:
            self.address = chip.driver.allocate(int(where.removeprefix("device")), len(data))
        if self.readable:
            self._driver.write(self.address, data)

    @property
    def readable(self) -> bool:
        return not self._where.startswith("device") or self._driver.info().executes_kernels

    def read(self) -> bytes:
        if self._where == "pageable":
            return ctypes.string_at(self.address, self._size)
        return self._driver.read(self.address, self._size)


class KernelError(Exception):
    """What a failing kernel raises."""


class Log:
    """Kernels that write down when they run and when they are released."""

    def __init__(self) -> None:
        self.ran: list[object] = []
        self.released: list[object] = []

    def submit(
        self,
        chip: Chip,
        stream: object,
        name: object,
        error: Exception | None = None,
        in_place: bool = False,
    ) -> None:
        def run() -> None:
            self.ran.append(name)
            if error is not None:
                raise error

        chip.driver.submit(stream, run, lambda: self.released.append(name), in_place=in_place)


@contextlib.contextmanager
def thread(*bodies: Callable[[], object]) -> Iterator[None]:
    """Run each body in a thread while the block runs; an error of a body leaves the block."""
    errors: list[BaseException] = []

    def guarded(body: Callable[[], object]) -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        for each in threads:
            each.join(TIMEOUT_S)
    assert not any(each.is_alive() for each in threads), "a call into the driver did not return"
    if errors:
        raise errors[0]


def methods() -> dict[str, str]:
    """Each virtual method of driver.h but the destructor, with its comment ("" if it has none)."""
    text = (ROOT / "csrc/driver/driver.h").read_text(encoding="utf-8")
    found = {}
    comment: list[str] = []
    for line in text[text.index("class Driver {") :].splitlines():
        stripped = line.strip()
        if method := re.match(r"virtual [^~(]*?(\w+)\(", stripped):
            found[method[1]] = " ".join(comment)
        comment = [*comment, stripped.removeprefix("// ")] if stripped.startswith("// ") else []
    return found


def kernel_comment() -> str:
    """What driver.h says about a Kernel: part of the contract of submit()."""
    text = (ROOT / "csrc/driver/driver.h").read_text(encoding="utf-8")
    lines = re.search(r"((?:// .*\n)+)struct Kernel", text)
    assert lines is not None
    return " ".join(line.removeprefix("// ") for line in lines[1].splitlines())


def sentences(text: str) -> list[str]:
    """Split a comment at full stops that a capital letter follows."""
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", text)


def quotes() -> dict[str, dict[str, list[str]]]:
    """What the suite's docstrings quote: method -> quoted text -> tests."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(Path(__file__).parent.glob("test_contract_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = ast.get_docstring(node) or ""
                for method, quote in re.findall(
                    r"^(\w+): (.*?)(?=\n\w+: |\Z)", text, re.DOTALL | re.MULTILINE
                ):
                    found[method][" ".join(quote.split())].append(f"{path.name}::{node.name}")
    return found
