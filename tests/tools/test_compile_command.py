"""`loom compile` and `loom run-image`: what they write and print, and what they refuse."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

import torch_loom
from torch_loom.chips import load
from torch_loom.chips.cost import sweep
from torch_loom.compiler import load_onnx
from torch_loom.config.boards import DEVICE_CONFIGS
from torch_loom.errors import LoomError
from torch_loom.image.report import duration
from torch_loom.tools import cli
from torch_loom.tools.cli import app

PROGRAMS = Path(__file__).parent / "programs" / "compile_command"
SCRIPT = (PROGRAMS / "net.py").read_text(encoding="utf-8")

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_COMPILE_CACHE", "off")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "parts.py").write_text("WIDTH = 8\n")
    path = tmp_path / "net.py"
    path.write_text(SCRIPT)
    return path


def loom(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_arguments_are_the_scripts(script: Path) -> None:
    script.write_text(SCRIPT + "import sys; assert sys.argv == [__file__], sys.argv\n")
    assert loom("compile", script, "--chip", "wormhole_b0").exit_code == 0


@pytest.mark.long
def test_a_script_becomes_a_report_a_netlist_and_an_image_that_runs_without_the_compiler(
    script: Path, tmp_path: Path, fork_python: PythonRunner
) -> None:
    files = {name: tmp_path / name for name in ("plan.html", "plan.yaml", "net.loom", "x.st", "y.st")}
    report, netlist, image, x, y = files.values()
    option = "--option=balancer_policy=SingleOpPerEpoch"
    done = loom(
        *("compile", script, "--chip", "wormhole_b0", "--report", report, "--netlist", netlist),
        *("--out", image, option, "--option", "default_df_override=null"),
    )
    assert done.exit_code == 0, done.output
    assert "wormhole_b0" in done.stdout
    assert "2 in 2 epochs" in done.stdout
    (whole,) = [line for line in done.stdout.splitlines() if "with the host" in line]
    rate = torch_loom.Executable.load(image).end_to_end_samples_per_second
    assert f" {rate:,.0f} samples/s, predicted" in whole
    (reached,) = torch_loom.Executable.load(image).plan["end_to_end"]["reached"].values()
    assert f"under PyBuda   {reached:,.0f} samples/s, fitted" in done.stdout
    assert len(yaml.safe_load(netlist.read_text())["graphs"]) == 2
    assert report.read_text().count('aria-label="Epoch') == 2
    assert "<h1>Plan of Sequential (net.py) for " in report.read_text()

    given = torch.arange(16.0).reshape(2, 8)
    save_file({"input": given}, x)
    fork_python(
        PROGRAMS / "a_script_becomes_a_report_a_netlist_and_an_image_that_runs_without_the_compiler.py",
        given=(str(image), str(x), str(y)),
    )
    torch.manual_seed(0)
    linear = torch.nn.Linear
    net = torch.nn.Sequential(linear(8, 16), torch.nn.GELU(), linear(16, 4)).to("loom")
    assert torch.equal(load_file(y)["output_0"], net(given.to("loom")).detach().cpu())


def test_a_short_interval_is_told_in_its_unit_and_the_default_chip_is_that_of_plan(script: Path) -> None:
    done = loom("compile", script)
    assert done.exit_code == 0, done.output
    (interval,) = [line for line in done.stdout.splitlines() if "interval" in line]
    value, unit = interval.split()[1:3]
    assert float(value) >= 1
    assert unit in ("ns,", "µs,")
    assert f"1 x {cli.DEFAULT_CHIP}" in done.stdout
    for command, text in (("compile", "[default: ("), ("plan", "the topology's, else ")):
        shown = loom(command, "--help").stdout.replace("│", " ")
        assert f"{text}{cli.DEFAULT_CHIP}" in " ".join(shown.split())


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "chips"),
    [
        (("--chip", "N300"), "2 x wormhole_b0, 8 x 8 cores"),
        (("--chip", "gs_e150"), "1 x grayskull"),
        (("--option", "device_config=bh_p150"), "1 x blackhole"),
        (("--chip", "wormhole_b0", "--option", "device_config=galaxy"), "32 x wormhole_b0"),
    ],
)
def test_a_board_stands_in_the_place_of_a_chip(script: Path, arguments: tuple[str, ...], chips: str) -> None:
    done = loom("compile", script, *arguments)
    assert done.exit_code == 0, done.output
    assert chips in done.stdout
    shown = loom("compile", "--help").stdout
    assert all(board.short_name in shown for board in DEVICE_CONFIGS.values())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (34.56e-6, "34.6 µs"), (7.1e-9, "7.1 ns"), (0.0, "0 ns")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.long
def test_run_image_names_what_the_image_takes(script: Path, tmp_path: Path) -> None:
    image, x = tmp_path / "net.loom", tmp_path / "x.st"
    assert loom("compile", script, "--chip", "grayskull", "--out", image).exit_code == 0
    for tensors, text in (
        ({"other": torch.ones(2, 8)}, "the image takes input: float32 [2, 8]"),
        ({"input": torch.ones(3, 8)}, "compiled for float32 [2, 8], but got float32 [3, 8]"),
    ):
        save_file(tensors, x)
        done = loom("run-image", image, "--inputs", x)
        assert done.exit_code == 1
        assert text in done.stderr
    script.write_text("import torch; model = torch.nn.Embedding(4, 2); inputs = torch.ones(2).long()")
    assert loom("compile", script, "--out", image).exit_code == 0
    save_file({"input": torch.tensor([0, 9])}, x)
    done = loom("run-image", image, "--inputs", x)
    assert done.exit_code == 1
    assert f"{x}: a value of the inputs is out of range" in done.stderr.replace("\n", "")
    script.write_text(SCRIPT)
    assert loom("compile", script, "--chip", "grayskull", "--out", image).exit_code == 0
    done = loom("run-image", image)
    assert done.exit_code == 1
    assert "give --inputs, a file of safetensors; the image takes input: float32 [2, 8]" in done.stderr
    x.write_bytes(b"none")
    for arguments in ((image, "--inputs", x), (x, "--inputs", x)):
        done = loom("run-image", *arguments)
        assert done.exit_code == 1
        assert str(x) in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("x = 1", (), "does not define 'model'"),
        ("model = 1", (), "model is a int"),
        ("import torch; model = torch.nn.ReLU()", (), "does not define 'inputs'"),
        ("import torch; model = torch.nn.ReLU(); inputs = 3", (), "inputs is a int"),
        ("1 / 0", (), "ZeroDivisionError"),
        (SCRIPT, ("--option", "math_fidelity"), "NAME=VALUE"),
        (SCRIPT, ("--option", "math_fidelity=Perfect"), "HiFi3"),
        (SCRIPT, ("--chip", "no_such_chip"), "no_such_chip"),
        (SCRIPT, ("--chip", "n15"), "Boards are: e150, e300, n150, n300, galaxy, p150."),
        (SCRIPT, ("--chip", "test"), "There is no chip 'test'"),
        (SCRIPT, ("--option", "device_config=n150"), "do you mean wh_n150?"),
        (SCRIPT, ("--chip", "grayskull", "--option", "device_config=wh_n300"), "exclude one another"),
        (SCRIPT, ("--chip", "n150", "--option", "device_config=wh_n300"), "n150"),
        (
            "import torch; model = torch.nn.ReLU(); inputs = torch.ones(2), torch.ones(3)",
            (),
            "the inputs do not fit the model (too many positional arguments): they are 2 by position",
        ),
        ("import torch; model = torch.nn.Linear(8, 4); inputs = torch.ones(2, 5)", (), "(2x5 and 8x4)"),
        (SCRIPT, ("--inputs", "none.safetensors"), "none.safetensors"),
        (SCRIPT, ("--out", "/no/folder/net.loom"), "there is no folder /no/folder"),
        (
            "import torch; model = torch.nn.ReLU()\ndef inputs():\n    {}['x']",
            (),
            "inputs() failed: KeyError",
        ),
        ("import torch; model = torch.nn.Linear(2, 2).cuda()", (), "or set TORCH_LOOM_DEVICE_NAME=cuda"),
        ("import torch\nmodel = torch.nn.Rlu()", (), "net.py:2, in <module>, `model = torch.nn.Rlu()`"),
    ],
)
def test_what_cannot_be_compiled_is_one_sentence(
    script: Path, text: str, options: tuple[str, ...], message: str
) -> None:
    script.write_text(text)
    done = loom("compile", script, *options)
    assert done.exit_code == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


MODEL = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        {body}
model, inputs = Net(), torch.ones(2, 4)
"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return x if x.sum() > 0 else -x", "net.py:5, in forward, `return x if x.sum() > 0 else -x`"),
        ("return x[: int(x.sum())]", "depends on the values of tensors"),
        ("return x[x > 0] * 2", "net.py:5, forward: the size of what aten::index.Tensor returns"),
        ("return x + no_such_name", "NameError: name 'no_such_name' is not defined"),
        ("return torch.from_numpy(x.numpy())", "net.py:5, in forward, `return torch.from_numpy(x.numpy())`"),
    ],
)
def test_models_that_are_no_graph_are_named_with_their_line(script: Path, body: str, message: str) -> None:
    script.write_text(MODEL.format(body=body))
    done = loom("compile", script, "--chip", "wormhole_b0")
    assert done.exit_code == 1
    assert message in done.stderr.replace("\n", "")
    assert "net.py:5" in done.stderr.replace("\n", "")
    assert "Traceback" not in done.stderr
    assert "def forward(self" not in done.stderr


def test_inputs_by_wrong_names_are_refused(script: Path, tmp_path: Path) -> None:
    save_file({"no_such_argument": torch.ones(1)}, tmp_path / "x.safetensors")
    done = loom("compile", script, "--inputs", tmp_path / "x.safetensors")
    assert done.exit_code == 1
    assert "forward takes (input)" in done.stderr


def test_an_onnx_file_is_compiled(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the package onnx is not installed: pip install onnx")
    from tests.compiler.onnx_files.models import parsed

    path, image, report = tmp_path / "model.onnx", tmp_path / "net.loom", tmp_path / "plan.html"
    path.write_bytes(parsed("y = Relu (x)").SerializeToString())
    done = loom("compile", path, "--chip", "wormhole_b0", "--out", image, "--report", report)
    assert done.exit_code == 0
    assert "<h1>Plan of model.onnx for wormhole_b0</h1>" in report.read_text()
    save_file({"x": -torch.ones(2, 3)}, tmp_path / "x.st")
    assert loom("run-image", image, "--inputs", tmp_path / "x.st", "--out", tmp_path / "y.st").exit_code == 0
    assert load_file(tmp_path / "y.st")["output_0"].tolist() == [[0.0] * 3] * 2

    open_sizes = parsed("y = Relu (x)", "(float[rows, 3] x) => (float[rows, 3] y)")
    path.write_bytes(open_sizes.SerializeToString())
    done = loom("compile", path)
    assert done.exit_code == 1
    assert "x ([rows, 3])" in done.stderr
    assert "--inputs" in done.stderr
    assert loom("compile", path, "--inputs", tmp_path / "x.st").exit_code == 0


@pytest.mark.parametrize("sizes", [[-2, 3], [1 << 62, 1 << 62]])
def test_sizes_that_no_input_can_have(sizes: list[int], tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install onnx")
    from tests.compiler.onnx_files.models import parsed

    model, path = parsed("y = Relu (x)"), tmp_path / "model.onnx"
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, sizes, strict=True):
        dim.dim_value = size
    onnx.save(model, str(path))
    done = CliRunner().invoke(app, ["compile", str(path)])
    assert done.exit_code != 0
    assert not isinstance(done.exception, RuntimeError), done.exception
    assert "no input can be as x" in " ".join(done.output.split())


def test_a_damaged_onnx_file_is_refused_by_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x07")
    done = loom("compile", path)
    assert done.exit_code == 1
    assert "no ONNX model" in done.stderr
    assert "Traceback" not in done.stderr


def test_inputs_by_the_names_of_the_arguments(script: Path, tmp_path: Path) -> None:
    save_file({"input": torch.ones(5, 8)}, tmp_path / "x.st")
    image = tmp_path / "net.loom"
    assert loom("compile", script, "--inputs", tmp_path / "x.st", "--out", image).exit_code == 0
    done = loom("run-image", image, "--inputs", tmp_path / "x.st")
    assert done.exit_code == 0
    assert "[5, 4]" in done.stdout


def test_outputs_are_written_whole_or_not_at_all(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, x, y = tmp_path / "net.loom", tmp_path / "x.st", tmp_path / "y.st"
    assert loom("compile", script, "--chip", "grayskull", "--out", image).exit_code == 0
    save_file({"input": torch.ones(2, 8)}, x)
    y.write_bytes(b"earlier")

    def full_disk(_: Any, path: Any) -> None:
        Path(path).write_bytes(b"a part")
        raise OSError("No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full_disk)
    done = loom("run-image", image, "--inputs", x, "--out", y)
    assert done.exit_code == 1
    assert "the file of outputs cannot be written (No space left on device)" in done.stderr
    assert y.read_bytes() == b"earlier"
    assert sorted(tmp_path.glob(".*")) == []


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_a_path_that_is_no_file_is_told(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    _ = path.mkdir() if kind == "folder" else os.mkfifo(path)
    chip = tmp_path / "chip.toml"
    _ = chip.mkdir() if kind == "folder" else os.mkfifo(chip)
    for arguments in (
        ("compile", path),
        ("run-image", path, "--inputs", path),
        ("compile", tmp_path / "none.py", "--chip", chip),
    ):
        done = loom(*arguments)
        assert done.exit_code == 1
        wanted = "there is no such file" if "none.py" in str(arguments) else f"this is a {kind}, not a file"
        assert wanted in done.stderr
    for read in (load, load_onnx, torch_loom.Executable.load, sweep.read):
        with pytest.raises(LoomError, match=f"this is a {kind}, not a file"):
            read(chip)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--option", "chip=n300"], "'chip' is no option of the compiler: give --chip"),
        (["--option", "kwargs=1"], "'kwargs' is no option of the compiler"),
        (["--chip", "n150", "--option", "device_config=wh_n300"], "exclude one another"),
        (["--option", "harvested_rows=[[1.5]]"], "rows 1 to 5 and 7 to 11"),
        (["--option", "harvested_rows=[[true]]"], "rows 1 to 5 and 7 to 11"),
        (["--option", "backend_opt_level=5"], "an integer, 0 to 4"),
    ],
)
def test_options_that_are_none_are_a_sentence(script: Path, given: list[str], says: str) -> None:
    done = loom("compile", script, *given)
    assert done.exit_code == 1
    assert says in " ".join(done.output.split())


def test_a_boards_name_is_taken_twice(script: Path) -> None:
    assert loom("compile", script, "--chip", "n150", "--option", "device_config=n150").exit_code == 0


def test_a_netlist_that_cannot_be_written_leaves_what_was_there(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: torch_loom.Executable) -> str:
        raise OSError(28, "No space left on device")

    netlist = tmp_path / "plan.yaml"
    netlist.write_text("old")
    monkeypatch.setattr(torch_loom.Executable, "netlist", fails)
    done = loom("compile", script, "--chip", "n150", "--netlist", netlist)
    assert done.exit_code == 1
    assert "plan.yaml: the netlist cannot be written" in done.output.replace("\n", "")
    assert netlist.read_text() == "old"
    assert list(tmp_path.glob(".plan*")) == []
