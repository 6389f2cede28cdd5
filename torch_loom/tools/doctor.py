"""`loom doctor`: versions, builds, devices, what installed libraries choose, and the next command."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions, version
from pathlib import Path

from rich.table import Table
from rich.text import Text

from torch_loom import chips, config, torch_version
from torch_loom._register import fitness
from torch_loom.config import settings
from torch_loom.errors import LoomError
from torch_loom.tools import console

# For a process that imports all libraries. Lightning and transformers take half a minute on a cold disk.
_LIMIT_S = 120
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Finding:
    """A row.

    Attributes:
        what: it is about.
        says: what was found, a sentence at most.
        remedy: the command, or what else helps, where something is wrong.
    """

    what: str
    says: str
    remedy: str = ""


def findings(*, asks_libraries: bool = True) -> Iterator[Finding]:
    """Yield what there is, from the ground up."""
    yield _python()
    yield Finding("torch-loom", f"{version('torch-loom')} in {_PACKAGE}", fitness.lost_files())
    yield from _torch_and_extension()
    yield from _devices()
    if asks_libraries:
        yield from _libraries()


def _python() -> Finding:
    refusal = torch_version.platform_refusal(torch_version.this_platform())
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return Finding("Python", f"{python}, {platform.system()} {platform.machine()}", refusal or "")


# In a process of its own, as an extension that does not fit may end it. Torch comes first, unregistered.
_ASKED = """
import json, torch
print(json.dumps([str(torch.__version__), torch.__file__, torch.version.cuda]), flush=True)
import sys, torch_loom
sys.exit(str(torch_loom._failure) if torch_loom._failure else 0)
"""


def _torch_and_extension() -> Iterator[Finding]:
    done = _start(["-W", "ignore", "-c", _ASKED], {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    said = done.stderr.strip().splitlines() or [f"ended by signal {-done.returncode}"]
    answer = done.stdout.strip().splitlines()
    if not answer:
        is_missing = "No module named 'torch'" in said[-1]
        says = "is not installed" if is_missing else "cannot be imported"
        yield Finding("torch", says, "pip install torch" if is_missing else said[-1])
        return
    running, file, cuda = json.loads(answer[0])
    folder = Path(file).parent
    kind = "a build for the CPU" if cuda is None else f"a build for CUDA {cuda}"
    gives_way = "" if cuda is None else ", whose kernels give way under the name cuda"
    refusal = torch_version.refusal(running, tries_any=config.value(settings.ANY_TORCH))
    yield Finding("torch", f"{running}, {kind}{gives_way}, in {folder}", refusal or _several(running, folder))
    if done.returncode == 0:
        yield Finding("extension", "fits this torch, and is loaded by `import torch`")
    else:
        yield Finding("extension", "does not fit", said[-1])


def _several(running: str, folder: Path) -> str:
    """Return what to do where the environment has more than one torch; an empty text where it has one."""
    noted = {
        (_real(str(distribution.locate_file(""))), distribution.version)
        for distribution in distributions(name="torch")
    }
    folders = {_real(place) for place in sys.path if (Path(place) / "torch/__init__.py").is_file()}
    places = {place for place, _ in noted} | folders | {_real(str(folder.parent))}
    if len(noted) < 2 and len(places) < 2:
        return ""
    found = [f"{number} noted by pip in {place}" for place, number in sorted(noted)]
    found += [f"the files in {place}/torch" for place in sorted(folders)]
    return (
        f"There is more than one torch: {', '.join(found)}; {running} in {folder} runs. Take all away, by "
        f"`pip uninstall torch` until none is left, and install one: `pip install torch=="
        f"{running.partition('+')[0]}`."
    )


def _real(place: str) -> str:
    return str(Path(place).resolve())


def _devices() -> Iterator[Finding]:
    for name in (config.device_name(), config.CUDA_NAME):
        environment = {"TORCH_LOOM_DEVICE_NAME": name}
        program = (
            f"import json, torch; m = torch.{name}; print(json.dumps([[m.get_device_name(i), "
            "m.get_device_properties(i).total_memory] for i in range(m.device_count())]))"
        )
        done = _start(["-W", "ignore", "-c", program], environment)
        how = "" if name != config.CUDA_NAME else ", under `loom run`"
        if done.returncode:
            yield Finding(
                f"devices {name}{how}", "cannot be used", (done.stderr.strip().splitlines() or ["?"])[-1]
            )
            continue
        devices = json.loads(done.stdout.strip().splitlines()[-1])
        shown = ", ".join(f"{chip} ({size / 2**30:.0f} GiB)" for chip, size in devices)
        yield Finding(f"devices {name}{how}", f"{len(devices)}: {shown}" if devices else "none")
    try:
        for chip in dict.fromkeys(config.resolve().chips):
            chips.load(chip)
    except LoomError as error:
        yield Finding("settings", "cannot be used", str(error))


def _libraries() -> Iterator[Finding]:
    command = ["-W", "ignore", "-m", "torch_loom.tools.library_choices"]
    done = _start(command, {"TORCH_LOOM_DEVICE_NAME": config.CUDA_NAME})
    if done.returncode:
        yield Finding("libraries", "could not be asked", (done.stderr.strip().splitlines() or ["?"])[-1])
        return
    for name, found in json.loads(done.stdout.strip().splitlines()[-1]).items():
        says = f"{found['version']}: {found.get('choice', 'could not be asked')}"
        yield Finding(name, says, found.get("error", ""))


def _start(
    arguments: list[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    try:
        return subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"did not end in {_LIMIT_S} s")


def run(*, is_json: bool = False, asks_libraries: bool = True) -> None:
    """Prints what was found; ends with exit status 1 if something must be mended first."""
    # Each torch and library is imported in a process of its own, which takes seconds.
    with console.err.status("looking at torch, devices and libraries"):
        found = list(findings(asks_libraries=asks_libraries))
    wrong = [each for each in found if each.remedy]
    if is_json:
        print(json.dumps([vars(each) for each in found], indent=2))
    else:
        table = Table(show_header=False, show_lines=False, box=None, padding=(0, 2, 0, 0))
        table.add_column()
        table.add_column(overflow="fold")  # a path is shown whole, in two lines where it must be
        for each in found:
            says = Text(each.says)
            if each.remedy:
                says.append(f"\n{each.remedy}", style="bold red")
            table.add_row(Text(each.what, style="bold"), says)
        console.out.print(table)
        following = "mend the first line in red" if wrong else "loom run YOUR_SCRIPT.py"
        console.out.print(Text("next: ", style="bold").append(following, style="default"))
    if wrong:
        raise SystemExit(1)
