"""The command nvidia-smi: NVIDIA's layouts, units and sentences."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import PythonRunner
from tests.nvml.conftest import Environment
from torch_loom import chips
from torch_loom.nvml import BIN
from torch_loom.nvml.smi import command as smi_command

PROGRAMS = Path(__file__).parent / "programs" / "nvidia_smi"

UUID = r"GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def smi(environment: dict[str, str], *arguments: str, status: int = 0) -> str:
    """What the command, as a program finds it, prints."""
    command = shutil.which("nvidia-smi", path=environment["PATH"])
    assert command is not None
    done = subprocess.run([command, *arguments], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (status, ""), done
    return done.stdout


def test_table(under_loom_run: Environment) -> None:
    found = smi(under_loom_run(TORCH_LOOM_CHIP="h200,loom1", TORCH_LOOM_MEMORY="100GiB,4GiB"))
    time, _, table = found.partition("\n")
    assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} {7}", time)
    assert table == (
        "+-----------------------------------------------------------------------------------------+\n"
        "| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |\n"
        "+-----------------------------------------+------------------------+----------------------+\n"
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
        "|                                         |                        |               MIG M. |\n"
        "|=========================================+========================+======================|\n"
        "|   0  NVIDIA H200                    On  |   00000000:01:00.0 Off |                    0 |\n"
        "| N/A   30C    P0            115W /  700W |       0MiB / 102400MiB |      0%      Default |\n"
        "|                                         |                        |                  N/A |\n"
        "+-----------------------------------------+------------------------+----------------------+\n"
        "|   1  loom1                          On  |   00000000:02:00.0 Off |                  N/A |\n"
        "| N/A   30C    P0             20W /  120W |       0MiB /   4096MiB |      0%      Default |\n"
        "|                                         |                        |                  N/A |\n"
        "+-----------------------------------------+------------------------+----------------------+\n"
        "\n"
        "+-----------------------------------------------------------------------------------------+\n"
        "| Processes:                                                                              |\n"
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n"
        "|        ID   ID                                                               Usage      |\n"
        "|=========================================================================================|\n"
        "|  No running processes found                                                             |\n"
        "+-----------------------------------------------------------------------------------------+\n"
    )


def test_list_and_topology(under_loom_run: Environment) -> None:
    environment = under_loom_run()
    listed = smi(environment, "-L").splitlines()
    assert [re.sub(UUID, "…", line) for line in listed] == [
        "GPU 0: NVIDIA H200 (UUID: …)",
        "GPU 1: NVIDIA H200 (UUID: …)",
    ]
    matrix = smi(environment, "topo", "-m").splitlines()[:3]
    processors = f"0-{(os.cpu_count() or 1) - 1}"
    assert matrix == [
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID",
        f"GPU0\t X \tNV18\t{processors}\t0\t\tN/A",
        f"GPU1\tNV18\t X \t{processors}\t0\t\tN/A",
    ]


@pytest.mark.long
def test_queries(under_loom_run: Environment) -> None:
    environment = under_loom_run(TORCH_LOOM_MEMORY="2GiB")
    fields = "index,name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw,fan.speed"
    assert smi(environment, f"--query-gpu={fields}", "--format=csv", "-i", "1") == (
        "index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%], temperature.gpu, "
        "power.draw [W], fan.speed [%]\n"
        "1, NVIDIA H200, 2048 MiB, 0 MiB, 0 %, 30, 115.00 W, [N/A]\n"
    )
    assert smi(environment, f"--query-gpu={fields}", "--format=csv,noheader,nounits", "--id=0") == (
        "0, NVIDIA H200, 2048, 0, 0, 30, 115.00, [N/A]\n"
    )
    # Other spellings have the first one's title.
    assert smi(environment, "--query-gpu", "gpu_name, clocks.gr,pstate,count", "--format", "csv,nounits") == (
        "name, clocks.current.graphics [MHz], pstate, count\n" + "NVIDIA H200, 345, P0, 2\n" * 2
    )
    assert smi(environment, "--query-compute-apps=pid,used_memory", "--format=csv") == (
        "pid, used_gpu_memory [MiB]\n"
    )
    assert smi(environment, "--query-compute-apps=pid,used_memory", "--format=csv,noheader") == ""
    clocks = smi(environment, "--query-supported-clocks=mem,gr", "--format=csv,noheader", "-i", "0")
    assert clocks == "3201 MHz, 1980 MHz\n3201 MHz, 345 MHz\n"
    times = smi(environment, "--query-gpu=timestamp", "--format=csv,noheader", "--id=0")
    assert re.fullmatch(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}\n", times)


@pytest.mark.long
def test_every_field_of_the_help_has_a_value(under_loom_run: Environment) -> None:
    environment = under_loom_run()
    for query in (
        "gpu",
        "compute-apps",
        "supported-clocks",
        "accounted-apps",
        "retired-pages",
        "remapped-rows",
    ):
        names = re.findall(r'^"([^"]+)"', smi(environment, f"--help-query-{query}"), re.MULTILINE)
        rows = smi(environment, f"--query-{query}={','.join(names)}", "--format=csv,nounits").splitlines()
        assert len(names) > 6
        assert len({row.count(", ") for row in rows}) == 1
        assert rows[0].count(", ") == len(names) - 1
        if query == "gpu":
            assert len(names) > 100
            assert len(rows) == 3


HELP = "Please run 'nvidia-smi -h' for help.\n"


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        ("--query-gpu=name,foo --format=csv", 2, 'Field "foo" is not a valid field to query.\n\n'),
        ("--query-compute-apps=count --format=csv", 2, 'Field "count" is not a valid field to query.\n\n'),
        ("--query-gpu=name", 2, f'"--format=" switch is missing. {HELP}'),
        ("--format=csv", 2, f"Invalid combination of input arguments. {HELP}"),
        ("-format=csv", 2, f"ERROR: Option -format=csv is not recognized. {HELP}"),
        ("-i", 2, f"ERROR: Option -i is missing its value. {HELP}"),
        ("-i 2", 6, "No devices were found\n"),
        ("-L -i GPU-0", 6, "No devices were found\n"),
        ("-pl 300", 3, "-pl is not available: the devices are virtual, and have nothing of the kind.\n"),
    ],
)
def test_refusals(under_loom_run: Environment, arguments: str, status: int, sentence: str) -> None:
    assert smi(under_loom_run(), *arguments.split(), status=status) == sentence


def test_no_devices(under_loom_run: Environment) -> None:
    assert smi(under_loom_run(TORCH_LOOM_DEVICES="0"), status=6) == "No devices were found\n"


def test_bad_settings_are_told(under_loom_run: Environment) -> None:
    environment = {**under_loom_run(), "TORCH_LOOM_DEVICES": "many"}
    done = subprocess.run([f"{BIN}/nvidia-smi"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 9
    assert done.stdout.startswith(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    )
    assert "TORCH_LOOM_DEVICES='many'" in done.stderr


@pytest.mark.long
def test_devices_by_all_their_names(under_loom_run: Environment, tmp_path: Path) -> None:
    environment = under_loom_run()
    query = ("--query-gpu=index,uuid,pci.bus_id", "--format=csv,noheader")
    rows = smi(environment, *query).splitlines()
    _, uuid, bus_id = rows[1].split(", ")
    for name in ("1", uuid, bus_id):
        assert smi(environment, *query, "-i", name).splitlines() == [rows[1]]
    assert smi(environment, *query, "-i", "1,0").splitlines() == [rows[1], rows[0]]
    assert smi(environment, *query, "-f", str(tmp_path / "out")) == ""
    assert (tmp_path / "out").read_text().splitlines() == rows


def test_output_that_cannot_be_written(under_loom_run: Environment, tmp_path: Path) -> None:
    environment = under_loom_run()
    file = tmp_path / "missing" / "out"
    listing = subprocess.run(
        ["nvidia-smi", "-L", "-f", file], env=environment, capture_output=True, text=True, check=False
    )
    said = f'Unable to write to "{file}": No such file or directory.\n'
    assert (listing.returncode, listing.stdout, listing.stderr) == (2, "", said)
    with open("/dev/full", "w", encoding="utf-8") as full:
        table = subprocess.run(
            ["nvidia-smi"], env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    said = "Unable to write to the output: No space left on device.\n"
    assert (table.returncode, table.stderr) == (2, said)


def test_errors_that_are_not_of_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails on the way to the text is not said to be the output's fault."""

    def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(smi_command.signal, "signal", lambda *_: None)
    monkeypatch.setattr(smi_command.nvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(smi_command, "devices_of", fails)
    with pytest.raises(OSError, match="Too many open files"):
        smi_command.main(["-L"])


@pytest.mark.long
def test_report(under_loom_run: Environment) -> None:
    environment = under_loom_run(TORCH_LOOM_CHIP="a100")
    a100 = chips.load("a100")
    root = ElementTree.fromstring(smi(environment, "-q", "-x"))
    assert root.tag == "nvidia_smi_log"
    assert (root.findtext("driver_version"), root.findtext("cuda_version")) == ("580.95.05", "13.0")
    assert root.findtext("attached_gpus") == "2"
    first, second = root.findall("gpu")
    assert second.get("id") == "00000000:02:00.0" == second.findtext("pci/pci_bus_id")
    assert first.findtext("product_name") == a100.product_name
    assert first.findtext("product_architecture") == "Ampere"
    assert first.findtext("fb_memory_usage/total") == f"{a100.memory_bytes >> 20} MiB"
    assert first.findtext("fb_memory_usage/used") == "0 MiB"
    assert first.findtext("utilization/gpu_util") == "0 %"
    assert first.findtext("temperature/gpu_temp") == f"{a100.temperature_idle_celsius} C"
    assert first.findtext("gpu_power_readings/instant_power_draw") == f"{a100.power_idle_watts:.2f} W"
    assert first.findtext("clocks/sm_clock") == f"{a100.clock_idle_mhz} MHz"
    assert first.findtext("pci/pci_gpu_link_info/pcie_gen/current_link_gen") == "4"
    processes = first.find("processes")
    assert processes is not None
    assert len(processes) == 0
    text = smi(environment, "-q")
    assert "==============NVSMI LOG==============" in text
    assert text.count("\nGPU 00000000:") == 2
    assert f"    Product Name                                       : {a100.product_name}\n" in text
    only_memory = smi(environment, "-q", "-d", "MEMORY", "-i", "0")
    assert "FB Memory Usage" in only_memory
    assert "Product Name" not in only_memory


def test_loops_until_it_is_interrupted(under_loom_run: Environment) -> None:
    arguments = ["--query-gpu=index", "--format=csv", "-i", "0", "-lms", "10"]
    with subprocess.Popen(
        [f"{BIN}/nvidia-smi", *arguments],
        env=under_loom_run(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert [command.stdout.readline() for _ in range(5)] == ["index\n", *["0\n"] * 4]
        command.send_signal(signal.SIGINT)
        assert set(command.stdout.read().split()) <= {"0"}
        assert command.stderr.read() == ""
    assert command.returncode == 0


def test_help_and_version_and_what_they_import(under_loom_run: Environment) -> None:
    environment = under_loom_run()
    assert "--query-gpu=" in smi(environment, "-h")
    assert re.search(r"^CUDA Version +: 13\.0$", smi(environment, "--version"), re.MULTILINE)
    start = Path(BIN).parent / "smi" / "start.py"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-IS", str(start), "-L"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "ctypes" in imported
    assert not imported & {"torch", "numpy", "urllib", "torch_loom.config", "torch_loom.chips"}


@pytest.mark.slow
def test_what_a_program_and_its_children_find(warm_python: PythonRunner, tmp_path: Path) -> None:
    """Under the mere name, from `import torch` on: the helpers of libraries start the command like this."""
    warm_python(
        PROGRAMS / "what_a_program_and_its_children_find.py",
        {
            "TORCH_LOOM_DEVICE_NAME": "cuda",
            "TORCH_LOOM_MEMORY": "2GiB",
            "TORCH_LOOM_DEVICES": "1",
            "TORCH_LOOM_MACHINE": "nvidia_smi_children",
        },
    )


@pytest.mark.slow
def test_loom_run_has_the_command_and_others_do_not(under_loom_run: Environment) -> None:
    assert os.path.dirname(BIN) not in os.environ["PATH"]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_LOOM_")}
    run = [sys.executable, "-m", "torch_loom.tools.cli", "run", "--chip", "a100", "--devices", "1"]
    done = subprocess.run([*run, "nvidia-smi", "-L"], env=outside, capture_output=True, text=True, check=True)
    assert re.sub(UUID, "…", done.stdout) == f"GPU 0: {chips.load('a100').product_name} (UUID: …)\n"
