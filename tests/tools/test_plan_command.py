"""`loom plan`: a script that trains, planned without its chip."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from rich.console import Console

from torch_loom import config
from torch_loom.device.plan.recording import Frame
from torch_loom.errors import NotApplicableError
from torch_loom.tools import console, misplaced, plan, plan_page, plan_text
from torch_loom.tools.cli import app

PROGRAMS = Path(__file__).parent / "programs" / "plan_command"


def planned(tmp_path: Path, device: str, size: int, *options: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    text = (PROGRAMS / "train.py").read_text(encoding="utf-8")
    script.write_text(text.replace("cuda", device), encoding="utf-8")  # the text says which name is meant
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_LOOM_")}
    command = [sys.executable, "-m", "torch_loom.tools.cli", "plan", *options, str(script), str(size)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "loom"])
def test_a_script_is_planned(tmp_path: Path, device: str) -> None:
    as_json, as_page = tmp_path / "plan.json", tmp_path / "plan.html"
    done = planned(tmp_path, device, 2048, "--steps", "2", "--json", str(as_json), "--html", str(as_page))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 0" in done.stdout
    assert "step 1" not in done.stdout
    found = json.loads(as_json.read_text(encoding="utf-8"))
    assert len(found["step_seconds"]) == 2
    parameters = 4 * (2048 * 2048 + 2048 + 10 * 2048 + 10)
    categories = found["devices"][0]["memory_by_category"]
    assert categories["parameters"] == pytest.approx(parameters, rel=0.01)
    assert categories["optimizer state"] == pytest.approx(2 * parameters, rel=0.01)
    assert found["out_of_memory"] is None
    # Before the first call of the model the four parameters are copied, and the first batch and its labels.
    assert found["setup"]["calls"] == 6
    assert 0 < found["setup"]["device_seconds"] <= found["setup"]["seconds"]
    assert sum(found["step_seconds"]) + found["setup"]["seconds"] <= found["seconds"] + 1e-12
    assert "setup" in done.stdout
    assert all(
        0 < busy <= step for busy, step in zip(found["step_busy_seconds"], found["step_seconds"], strict=True)
    )
    assert "of the last step devices run" in " ".join(done.stdout.split())
    assert "busy, whole program" in done.stdout
    interval = found["interval"]
    assert 0 < interval["low"] < found["step_seconds"][-1] < interval["high"]
    assert interval["share"] == 0.8
    assert "80% likely: that step takes" in " ".join(done.stdout.split())
    page = as_page.read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "src=" not in page
    assert "http" not in page
    assert "aten::addmm" in page
    assert "80% likely" in page


@pytest.mark.slow
def test_running_out_of_memory_ends_the_plan(tmp_path: Path) -> None:
    done = planned(tmp_path, "cuda", 32_768, "--memory", "4GiB")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "out of memory" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_full_disk(tmp_path: Path, option: str) -> None:
    done = planned(tmp_path, "cuda", 64, option, "/dev/full")
    assert done.returncode == 1
    assert done.stderr.endswith("error: /dev/full: cannot be written: [Errno 28] No space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch_loom.tools.cli", "plan", str(tmp_path / "no.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert "no.py" in done.stderr


def run_plan(script: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_LOOM_")}
    command = [sys.executable, "-m", "torch_loom.tools.cli", "plan", *options, str(script)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.slow
def test_a_group_of_a_said_size(tmp_path: Path) -> None:
    as_json = tmp_path / "plan.json"
    done = run_plan(PROGRAMS / "sharded.py", "--world-size", "16", "--json", str(as_json))
    assert done.returncode == 0, done.stdout + done.stderr
    ops = {name: calls for name, _, calls, _ in json.loads(as_json.read_text(encoding="utf-8"))["ops"]}
    assert any("all_gather" in name for name in ops), ops
    assert any("reduce_scatter" in name for name in ops), ops


@pytest.mark.slow
def test_a_rank_of_a_cluster(tmp_path: Path) -> None:
    as_json, as_page = tmp_path / "plan.json", tmp_path / "plan.html"
    cluster = ("--world-size", "1024", "--rank", "511", "--topology", "dgx-h100")
    done = run_plan(PROGRAMS / "data_parallel.py", *cluster, "--json", str(as_json), "--html", str(as_page))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(as_json.read_text(encoding="utf-8"))
    assert (found["chip"], found["first_device"], len(found["devices"])) == ("h100", 7, 1)
    assert {each["num_ranks"] for each in found["collectives"]} == {1024}
    assert 0 < found["exposed_seconds"] <= found["seconds_by_family"]["collective"]
    assert "while nothing else runs" in done.stdout
    assert "while nothing else runs" in as_page.read_text(encoding="utf-8")


@pytest.mark.long
def test_a_rank_that_the_group_has_not() -> None:
    done = run_plan(PROGRAMS / "sharded.py", "--world-size", "4", "--rank", "4")
    assert done.returncode != 0
    assert "--rank 4 is not one of --world-size 4: allowed are 0 to 3" in done.stderr
    done = run_plan(PROGRAMS / "sharded.py", "--world-size", "4", "--topology", "none")
    assert "There is no topology 'none'" in done.stderr


@pytest.mark.slow
def test_data_parallel_training_reduces_gradients_in_buckets(tmp_path: Path) -> None:
    as_json = tmp_path / "plan.json"
    done = run_plan(PROGRAMS / "data_parallel.py", "--world-size", "8", "--json", str(as_json))
    assert done.returncode == 0, done.stdout + done.stderr
    calls = {name: count for name, _, count, _ in json.loads(as_json.read_text(encoding="utf-8"))["ops"]}
    # 48 MiB of gradients in buckets of 8, after a first small one; three steps.
    assert 3 * 5 <= calls["c10d::all_reduce"] <= 3 * 8, calls


@pytest.mark.long
def test_what_a_script_raises_shows_its_own_frames(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("def inner():\n    return {}['missing']\n\ninner()\n", encoding="utf-8")
    done = run_plan(script)
    assert done.returncode == 1
    assert done.stderr.count('File "') == 2, done.stderr
    assert "broken.py" in done.stderr
    assert "KeyError: 'missing'" in done.stderr
    assert "runpy" not in done.stderr
    assert "torch_loom" not in done.stderr


@pytest.mark.long
def test_a_script_that_is_interrupted_shows_its_own_frames() -> None:
    script = PROGRAMS / "interrupted.py"
    done = run_plan(script)
    assert done.returncode == 130
    assert f'File "{script}", line 4' in done.stderr
    assert done.stderr.endswith("KeyboardInterrupt\n")
    assert "runpy" not in done.stderr


@pytest.mark.parametrize(
    ("error", "is_group"),
    [
        (ValueError("rendezvous: environment variable RANK expected, but not set"), True),
        (KeyError("LOCAL_RANK"), True),
        (KeyError("RANKS"), False),
        (ValueError("environment variable HOME expected, but not set"), False),
    ],
)
def test_a_script_that_expects_a_group_is_told_how_to_get_it(error: Exception, is_group: bool) -> None:
    hint = plan._group_hint(error, {"world_size": None})
    assert ("`loom plan --world-size N`" in hint) == is_group
    assert plan._group_hint(error, {"world_size": 8}) == ""


@pytest.mark.slow
def test_a_loop_that_waits_for_a_value_ends() -> None:
    done = run_plan(PROGRAMS / "waits_for_a_value.py")
    assert done.returncode == 1
    assert "waits_for_a_value.py:5 has read 1000 values of a device that computes nothing" in done.stderr


@pytest.mark.slow
def test_a_script_of_a_group_without_its_size() -> None:
    done = run_plan(PROGRAMS / "needs_a_group.py")
    assert done.returncode == 1
    assert "RANK expected, but not set\n" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("The script expects a process group")


@pytest.mark.slow
def test_a_script_that_runs_nothing_on_a_device(tmp_path: Path) -> None:
    as_json = tmp_path / "plan.json"
    done = run_plan(PROGRAMS / "runs_on_the_host.py", "--json", str(as_json))
    assert done.returncode == 1
    assert done.stdout == ""
    text = " ".join(done.stderr.split())
    assert text.startswith("error: ")
    assert text.endswith("its data on the device, as cuda or loom")
    assert not as_json.exists()


@pytest.mark.slow
def test_a_script_that_infers_has_the_time_of_a_forward(tmp_path: Path) -> None:
    as_json, as_page = tmp_path / "plan.json", tmp_path / "plan.html"
    script = PROGRAMS / "infers.py"
    done = run_plan(script, "--json", str(as_json), "--html", str(as_page))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(as_json.read_text(encoding="utf-8"))
    assert len(found["forward_seconds"]) == 4
    assert not found["is_cut_short"]  # it reads a value, and makes no steps
    text = " ".join(done.stdout.split())
    assert "for one of 4 forwards (median)" in text
    assert "80% likely: that forward takes" in text
    assert "peak, in the setup" in text
    assert "would fit" in text
    device = found["devices"][0]
    parameters = 4 * (2048 * 2048 + 2048)
    assert device["memory_by_category"]["parameters"] >= 4 * parameters
    assert device["step_memory_by_category"]["parameters"] == pytest.approx(2 * parameters, rel=0.01)
    page = as_page.read_text(encoding="utf-8")
    assert "a forward, median of 4" in page
    assert "peak after the setup" in page


@pytest.mark.slow
def test_a_script_that_ends_before_a_step_has_no_time(tmp_path: Path) -> None:
    script, as_json, as_page = tmp_path / "train.py", tmp_path / "plan.json", tmp_path / "plan.html"
    program = (PROGRAMS / "stops_on_a_value.py").read_text(encoding="utf-8")
    assert program.count("    optimizer.step()\n") == 1
    script.write_text(program.replace("    optimizer.step()\n", ""), encoding="utf-8")
    done = run_plan(script, "--json", str(as_json), "--html", str(as_page))
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "on h200: it ended before it made a step, after " in text
    assert json.loads(as_json.read_text(encoding="utf-8"))["interval"] is None
    for shown in (text, as_page.read_text(encoding="utf-8")):
        assert "likely" not in shown
        assert "It ended by itself after 0 steps" in shown


@pytest.mark.slow
def test_a_script_that_ends_in_failure_has_no_plan() -> None:
    done = run_plan(PROGRAMS / "ends_in_failure.py")
    assert done.returncode == 5
    assert "ended with status 5" in done.stderr


@pytest.mark.slow
def test_a_script_that_ends_on_a_value_says_which() -> None:
    done = run_plan(PROGRAMS / "ends_on_a_zero.py")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[-3] == "the loss is 0"
    assert "ended with status 1" in lines[-2]
    assert "read 1 value" in lines[-1]
    assert "ends_on_a_zero.py:10" in lines[-1]


@pytest.mark.parametrize(
    ("factor", "text"),
    [(0.0, "0.0"), (1.26, "1.2"), (57.3, "57"), (843.2, "840"), (197652.9, "more than 1,000")],
)
def test_times_are_told_as_well_as_they_are_known(factor: float, text: str) -> None:
    assert plan_text.times_text(factor) == text


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "loom"])
def test_both_names_are_understood_where_the_text_has_neither(tmp_path: Path, device: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"import torch\ntorch.ones(9, device='{device[:2]}' + '{device[2:]}') + 1\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "torch_loom.tools.cli", "plan", str(script), "--chip", "h100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "aten::add" in done.stdout
    assert "warning: --chip stands after" in done.stderr


def test_options_behind_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(command: str, *program: str) -> str:
        group = typer.main.get_group(app)
        misplaced.warn(typer.Context(group.commands[command], info_name=command), program)
        return " ".join(capsys.readouterr().err.split())

    (tmp_path / "train.py").write_text("import options  # takes no --chip\n", encoding="utf-8")
    (tmp_path / "options.py").write_text("parser.add_argument('--devices')\n", encoding="utf-8")
    (tmp_path / "typed.py").write_text("class Arguments:\n    memory: str = ''\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    behind = said("run", "train.py", "--chip=h100", "--epochs", "1", "--sanitize", "--devices", "2")
    assert "--chip, --sanitize stands after train.py" in behind  # --devices is of the module that it imports
    assert "--chip stands after -m train and goes to it" in said("run", "-m", "train", "--chip", "x")
    assert "--chip stands after -c and goes to it" in said("run", "-c", "print(1)", "--chip", "x")
    assert "--devices stands after torchrun" in said("run", "torchrun", "--devices", "2")
    assert said("run", "torchrun", "train.py", "--devices", "2") == ""
    assert said("run", "-m", "typed", "--memory", "1GiB") == ""
    assert said("plan", "train.py", "--epochs", "1") == ""


def test_only_pytorchs_own_sentence_is_a_wrong_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def raised(call: Callable[[], object]) -> Exception:
        try:
            call()
        except Exception as error:
            return error
        raise AssertionError("it raised nothing")

    wrong = [
        # What PyTorch says of a name that is none, with this one in its place.
        RuntimeError(str(raised(lambda: torch.device("nothing:0"))).replace("nothing", "loom")),
        AttributeError(str(raised(lambda: torch.ones(1).nothing())).replace("nothing", "loom")),  # type: ignore[attr-defined]
        AttributeError(str(raised(lambda: torch.nothing)).replace("nothing", "loom")),  # type: ignore[attr-defined]
    ]
    others: list[Exception] = [
        NotApplicableError("kernel is a Triton kernel, and the cuda devices are torch-loom's"),
        RuntimeError("no device is free: see /x/loom/y"),
        ValueError("the device loom has no room"),
        AttributeError("module 'a' has no attribute 'loom_b'"),
    ]
    monkeypatch.setattr(config, "device_name", lambda: config.CUDA_NAME)
    assert [plan._names_own_devices(error) for error in wrong] == [True] * len(wrong)
    assert not any(plan._names_own_devices(error) for error in others)
    monkeypatch.setattr(config, "device_name", lambda: "loom")
    assert not any(plan._names_own_devices(error) for error in wrong)


def test_lines_at_the_peak_are_the_programs() -> None:
    own, package = "/home/me/torch_loom/train.py", Path(plan.__file__).parents[1]
    library = "/lib/site-packages/torch/nn/modules/module.py"
    frames = [
        Frame(str(package / "image" / "replay.py"), 1, "call"),
        Frame(library, 2, "forward"),
        Frame(str(package / "device" / "plan" / "host.py"), 3, "__torch_function__"),
        Frame(own, 4, "step"),
        Frame(library, 5, "_call_impl"),
        Frame(own, 6, "<module>"),
        Frame(str(package / "tools" / "plan.py"), 7, "_main"),
        Frame("<frozen runpy>", 8, "run_path"),
    ]
    assert [frame.line for frame in plan._own_frames(frames)] == [2, 4, 6]


@pytest.mark.slow
def test_warnings_are_about_the_program() -> None:
    script = PROGRAMS / "compiled.py"
    done = run_plan(script, "--chip", "wormhole_b0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{script}:8: UserWarning: reads a value of a device that computes nothing" in done.stderr
    for words in ("global hooks", "Triggered internally", "torch_loom"):
        assert words not in done.stderr


# As PyTorch's example word_language_model does it.


@pytest.mark.slow
def test_a_script_without_an_optimizer_is_stopped_after_its_steps(tmp_path: Path) -> None:
    as_json = tmp_path / "plan.json"
    done = run_plan(PROGRAMS / "by_hand.py", "--steps", "2", "--json", str(as_json))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(as_json.read_text(encoding="utf-8"))
    first, second = found["step_seconds"]
    assert 0 < second == pytest.approx(first, rel=0.2)
    parameters = 4 * (1000 * 200 + 2 * (2 * 800 * 200 + 2 * 800) + 1000 * 200 + 1000)
    most = max(point["gradients"] for point in found["devices"][0]["memory_over_time"])
    assert most == pytest.approx(parameters, rel=0.01)
    # The third batch has begun, and its model was not called.
    assert "batch 2" in done.stdout
    assert "batch 3" not in done.stdout
    assert "of 2 steps" in " ".join(done.stdout.split())
    assert (found["model"], found["arguments"]) == ("Model", [])
    assert "by_hand.py (Model) on h200" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_what_a_plan_does_not_know_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script, as_json, model = tmp_path / "train.py", tmp_path / "plan.json", tmp_path / "model.pt"
    program = (PROGRAMS / "stops_on_a_value.py").read_text(encoding="utf-8")
    script.write_text(program, encoding="utf-8")
    model.write_bytes(b"good")
    done = run_plan(script, "--json", str(as_json), "--html", str(tmp_path / "plan.html"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert model.read_bytes() == b"good"
    found = json.loads(as_json.read_text(encoding="utf-8"))
    assert found["value_reads"] == {"train.py:11": 1}
    assert found["unwritten_files"] == ["model.pt"]
    assert found["is_cut_short"]
    text = " ".join(done.stdout.split())
    assert "the plan may be too low. It ended by itself after 1 step" in text
    assert "would fit" not in text
    assert "may be too low" in (tmp_path / "plan.html").read_text(encoding="utf-8")
    # With all its steps, what was read is named and the advice given.
    script.write_text(program.replace("< 0.1", "< 0"), encoding="utf-8")
    text = " ".join(run_plan(script).stdout.split())
    assert "the plan may be too low" in text
    assert "would fit" in text


def found(**changes: Any) -> dict[str, Any]:
    """What the summary of a plan has, with changes."""
    device = {
        "capacity_bytes": 1 << 33,
        "peak_memory_bytes": 1 << 20,
        "peak_reserved_bytes": 1 << 21,
        "memory_by_category": {"activations": 1 << 20},
        "step_memory_by_category": None,
        "peak_stack": [],
        "utilisation": 0.5,
        "memory_over_time": [{"seconds": 0.0, "activations": 1 << 20}],
    }
    unused = {**device, "peak_memory_bytes": 0, "memory_over_time": []}
    return {
        "script": "train <b>.py",
        "arguments": ["--model", "large one"],
        "model": "Net",
        "chip": "h200",
        "seconds": 1.0,
        "step_seconds": [0.5],
        "step_busy_seconds": [0.2],
        "forward_seconds": [],
        "interval": {"share": 0.8, "low": 0.45, "high": 0.6, "source": "steps of cards"},
        "seconds_by_family": {"attention": 0.5},
        "setup": {"seconds": 0.1, "calls": 0, "device_seconds": 0.0},
        "ops": [[f"aten::{name}", "attention", 1, 0.1] for name in LONG_NAMES],
        "out_of_memory": None,
        "batch_factor": 2.0,
        "is_cut_short": False,
        "value_reads": {},
        "unwritten_files": [],
        "devices": [device, unused],
        "first_device": 0,
        "collectives": [],
        "spans": [],
        **changes,
    }


LONG_NAMES = [f"_scaled_dot_product_fused_attention_overrideable{end}" for end in ("", "_backward")]


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (2.0, "a batch about 2.0 times as large would fit, if activations grow with it"),
        (1000.0, "a batch more than 1,000 times as large would fit, if activations grow with it"),
        (1.0, "a batch that is much larger would not fit, if activations grow with it"),
        (None, ""),
    ],
)
def test_words_for_a_larger_batch(factor: float | None, text: str) -> None:
    assert plan_text.batch_text(found(batch_factor=factor)) == text
    assert plan_text.batch_text(found(batch_factor=factor, out_of_memory="no room")) == ""


def test_the_page_names_script_and_model() -> None:
    text = plan_page.page(found())
    title = "train &lt;b&gt;.py&#x27; --model &#x27;large one&#x27;"
    assert f"{title}</title>" in text
    assert f"{title}</h1>" in text
    assert "<p>Net, planned on 2 &times; h200, without the chip</p>" in text
    assert "<h2>Memory of device 1</h2><p>Nothing was taken.</p>" in text
    assert text.count("aria-label='memory over time'") == 1
    assert "<p>planned on" in plan_page.page(found(model=""))


def test_the_table_has_names_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Console(width=80, record=True, file=io.StringIO())
    monkeypatch.setattr(console, "out", out)
    plan._show(found())
    text = out.export_text()
    assert text.startswith("train <b>.py (Net) on h200: 1 s, 500 ms for the last of 1 steps\n")
    assert "80% likely: that step takes 450 ms to 600 ms on the card, as steps of cards\n" in text
    assert "…" not in text
    cells = "".join(line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│"))
    assert "".join(f"aten::{name}" for name in LONG_NAMES) in cells
