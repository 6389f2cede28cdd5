"""What waits for the import of a module is called when that is whole, and once."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from torch_loom import late

PROGRAMS = Path(__file__).parent / "programs" / "late"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that calls `during.hook()` amid its import."""
    name = f"late_{tmp_path.name.replace('-', '_')}"
    shutil.copyfile(PROGRAMS / "calls_back.py", tmp_path / f"{name}.py")
    monkeypatch.syspath_prepend(tmp_path)
    during = ModuleType("during")
    during.hook = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "during", during)
    yield name
    sys.modules.pop(name, None)


def change(name: str, calls: list[str]) -> None:
    calls.append(sys.modules[name].value)
    sys.modules[name].value = "changed"  # type: ignore[attr-defined]


def test_before_the_import(module: str) -> None:
    calls: list[str] = []
    late.after_import(module, lambda: change(module, calls))
    assert importlib.import_module(module).value == "changed"
    assert calls == ["own"]


def test_after_the_import(module: str) -> None:
    calls: list[str] = []
    importlib.import_module(module)
    late.after_import(module, lambda: change(module, calls))
    assert calls == ["own"]


def test_amid_the_import(module: str) -> None:
    """As where importing a library imports torch: what the library defines later is there."""
    calls: list[str] = []
    sys.modules["during"].hook = lambda: late.after_import(  # type: ignore[attr-defined]
        module, lambda: change(module, calls)
    )
    found: dict[str, object] = {}
    exec(f"from {module} import value", found)
    assert found["value"] == "changed"
    assert calls == ["own"]
    assert type(sys.modules[module]) is ModuleType
    exec(f"from {module} import value", found)
    assert calls == ["own"]


def was_imported(module: ModuleType) -> bool:
    return type(module) is ModuleType


def test_lazily_imports_when_something_is_read(module: str) -> None:
    found = late.lazily(module)
    assert late.lazily(module) is found
    inspect.getmodule(sys._getframe())  # looks through the files of all modules
    assert not was_imported(found)
    assert module not in sys.modules
    assert found.value == "own"
    assert was_imported(found)
    assert sys.modules[module] is found
    assert importlib.reload(found) is found


def test_lazily_is_what_an_import_finds(module: str) -> None:
    found = late.lazily(module)
    assert importlib.import_module(module) is found
    assert was_imported(found)
    assert found.value == "own"


def test_what_is_written_before_the_import_stays(module: str) -> None:
    found = late.lazily(module)
    found.value = "written"
    assert was_imported(found)
    assert found.value == "written"


def test_a_late_package_is_imported_before_what_is_below_it(tmp_path: Path, module: str) -> None:
    package = tmp_path / f"{module}_package"
    package.mkdir()
    (package / "__init__.py").write_text("from . import below\nvalue = below.value\n")
    (package / "below.py").write_text("value = object()\n")
    found = late.lazily(package.name)
    below = late.lazily(f"{package.name}.below")
    assert importlib.import_module(f"{package.name}.below") is below
    assert was_imported(found)
    assert found.below is below
    assert found.value is below.value


def test_lazily_raises_what_the_import_raises_and_tries_again(module: str) -> None:
    def fail() -> None:
        raise OSError("amid the import")

    found = late.lazily(module)
    sys.modules["during"].hook = fail  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="amid the import"):
        _ = found.value
    sys.modules["during"].hook = lambda: None  # type: ignore[attr-defined]
    assert found.value == "own"


def test_threads_wait_for_a_late_import(module: str) -> None:
    begun, values = threading.Event(), []
    found = late.lazily(module)
    reader = threading.Thread(target=lambda: values.append(found.value))

    def hook() -> None:
        reader.start()
        begun.set()

    sys.modules["during"].hook = hook  # type: ignore[attr-defined]
    assert found.value == "own"
    assert begun.is_set()
    reader.join()
    assert values == ["own"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["plan", "jiterator", "memory.viz", "sanitizer.cuda_names"])
def test_import_of_torch_leaves_what_few_use(name: str) -> None:
    text = f"import sys, torch; torch.loom.Stream; print('torch_loom.device.{name}' in sys.modules)"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TORCH_LOOM_")}
    shown = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "False"


@pytest.mark.long
def test_import_of_torch_leaves_the_module_of_the_devices() -> None:
    text = "import sys, torch; print([name for name in sys.modules if name.startswith('torch_loom.device')])"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TORCH_LOOM_")}
    shown = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[]"


@pytest.mark.slow
def test_an_optimizer_leaves_the_compilers() -> None:
    program = PROGRAMS / "an_optimizer_leaves_the_compilers.py"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TORCH_LOOM_")}
    subprocess.run([sys.executable, program], env=environment, check=True)


def test_nothing_is_collected_in_the_body() -> None:
    assert gc.isenabled()
    with late.without_collections():
        assert not gc.isenabled()
        with late.without_collections():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_module_has_the_names_of_late_ones() -> None:
    lenders = {"dumps": importlib.import_module("json")}
    get, names = late.names("mine", {"own": 1}, lenders)
    assert get("dumps") is lenders["dumps"].dumps
    assert names() == ["dumps", "own"]
    with pytest.raises(AttributeError, match="module 'mine' has no attribute 'loads'"):
        get("loads")


def test_every_public_name_of_the_device_module_is_listed() -> None:
    module = importlib.import_module("torch_loom.device")
    for lender in (module.telemetry, module._report, module._fallback):
        assert set(lender.__all__) <= {
            name for name, late_one in module.NAMES_OF_LATE.items() if late_one is lender
        }
    for each in (module, module.memory, module.graphs, module.devices):
        assert set(each.__all__) <= set(dir(each))
        assert all(hasattr(each, name) for name in each.__all__)
