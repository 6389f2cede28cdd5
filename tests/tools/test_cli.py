"""The `loom` command: each sub-command's output, exit status and errors."""

import json
import os
import sys

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import torch_loom
from torch_loom.config import SETTINGS
from torch_loom.tools import console, demo, digits
from torch_loom.tools.cli import DEFAULT_CHIP, app, main
from torch_loom.tools.training import NUM_COMPARED_STEPS, one_thread, train

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for setting in SETTINGS:
        monkeypatch.delenv(setting.env, raising=False)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with one_thread():
        yield


@pytest.fixture
def loom():
    """Runs the command with arguments and returns the result."""
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def data():
    return digits.load()


def test_version(loom):
    result = loom("--version")
    assert result.exit_code == 0
    assert result.stdout == f"loom {torch_loom.__version__}\n"
    assert loom("--version", "no-such-command").stdout == result.stdout
    assert "--version" in loom("--help").stdout


def test_run_says_the_defaults_of_its_options(loom):
    text = loom("run", "--help").stdout
    assert all(f"({default}" in text for default in (DEFAULT_CHIP, "1; under torchrun", "the chip's", "auto"))


def test_env_lists_every_variable(loom):
    result = loom("env")
    assert result.exit_code == 0
    for setting in SETTINGS:
        assert setting.env in result.stdout
        assert setting.type_name in result.stdout


def test_env_fits_a_narrow_terminal(loom, monkeypatch):
    monkeypatch.setattr(console, "out", Console(width=80))
    lines = loom("env").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    for setting in SETTINGS:
        assert any(line.startswith(f"{setting.env} = ") for line in lines), setting.env


def test_env_shows_the_value_in_force(loom, monkeypatch):
    monkeypatch.setenv("TORCH_LOOM_MEMORY", "123MiB")
    result = loom("env")
    assert result.exit_code == 0
    assert "123MiB" in result.stdout


def test_env_as_json_has_each_variable_with_its_value_and_source(loom, monkeypatch):
    monkeypatch.setenv("TORCH_LOOM_MEMORY", "123MiB")
    result = loom("env", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert list(found) == [setting.env for setting in SETTINGS]
    memory, clock = found["TORCH_LOOM_MEMORY"], found["TORCH_LOOM_CLOCK"]
    assert (memory["value"], memory["source"]) == ("123MiB", "environment")
    assert (clock["value"], clock["source"]) == ("simulated", "default")


@pytest.mark.parametrize(
    ("variable", "value"),
    [("TORCH_LOOM_DEVICES", "many"), ("TORCH_LOOM_MEMORY", "[red]"), ("TORCH_LOOM_DEVICE", "1")],
)
def test_env_names_a_bad_variable_and_fails(loom, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    result = loom("env")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {variable}={value!r}")
    assert "Traceback" not in result.output


def test_env_names_a_chip_that_is_not_there_and_fails(loom, monkeypatch):
    monkeypatch.setenv("TORCH_LOOM_CHIP", "loom9")
    result = loom("env")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: There is no chip 'loom9'")


def test_demo_without_scikit_learn_says_what_to_install(loom, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    result = loom("demo", "--device", "cpu")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: scikit-learn is not installed; the demo needs it: pip install scikit-learn"
    ]


@pytest.mark.parametrize("device", ["no-such-device", "loom:99"])
def test_demo_with_a_bad_device_is_one_error_line(loom, device):
    result = loom("demo", "--device", device)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("error: ")


@pytest.mark.long
def test_demo_that_misses_its_accuracy_says_so_and_fails(loom):
    result = loom("demo", "--device", "cpu", "--epochs", "1")
    assert result.exit_code == 1
    assert "error: accuracy on held-out digits" in result.stderr
    assert "0.0e+00" in result.stdout  # the losses agree


@pytest.mark.long
def test_demo_on_a_slow_machine_does_not_fail(loom, monkeypatch):
    monkeypatch.setattr(demo, "MAX_SECONDS", 0.0)
    monkeypatch.setattr(demo, "MIN_ACCURACY", 0.0)
    result = loom("demo", "--device", "cpu", "--epochs", "1")
    assert result.exit_code == 0
    assert "missed" in result.output


@pytest.mark.long
def test_demo_trains_on_loom(loom):
    result = loom("demo", "--epochs", "1")
    assert "device memory allocated, peak" in result.stdout
    assert "losses against cpu" in result.stdout
    assert "losses against cpu" not in result.stderr


def test_digits_are_split_by_class(data):
    assert len(data.train_labels) + len(data.held_out_labels) == 1797
    counts = torch.bincount(data.held_out_labels)
    assert counts.min() >= 34
    assert counts.max() <= 37
    assert data.train_images.shape[1:] == (1, 8, 8)
    assert data.train_images.min() == 0
    assert data.train_images.max() == 1


def test_batches_follow_the_seed(data):
    first, again, other = (list(digits.batches(data, 64, 1, seed)) for seed in (1, 1, 2))
    assert len(first) == len(data.train_labels) // 64
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], other[0][0])


def test_shifts_keep_what_stays_inside():
    image = torch.zeros(64, 1, 8, 8)
    image[:, :, 3:5, 3:5] = 1
    moved = digits.shifted(image, torch.Generator().manual_seed(0))
    assert torch.equal(moved.sum((1, 2, 3)), torch.full((64,), 4.0))
    assert len(moved.flatten(1).unique(dim=0)) == 9


@pytest.mark.long
def test_training_twice_gives_the_same_losses_and_leaves_the_generator_alone(data):
    state = torch.get_rng_state()
    runs = [train(data, CPU, epochs=2, seed=5, max_steps=NUM_COMPARED_STEPS) for _ in range(2)]
    assert runs[0].first_losses == runs[1].first_losses
    assert len(runs[0].first_losses) == NUM_COMPARED_STEPS
    assert torch.equal(torch.get_rng_state(), state)


def test_largest_relative_difference():
    assert demo.largest_relative_difference([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)
    assert demo.largest_relative_difference([float("nan")], [1.0]) == float("inf")


def test_picture_has_a_caption_for_each_digit():
    drawing = demo.picture(torch.ones(2, 1, 8, 8), torch.tensor([3, 4]), torch.tensor([3, 9]))
    assert len(drawing.splitlines()) == 9
    assert "says 3" in drawing
    assert "says 4, is 9" in drawing


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--device", "2", "x.py"), "no option --device"),
        (("plan", "--foo", "x.py"), "loom plan has no option --foo; `loom plan --help` lists them"),
        (("plan", "-m", "x"), "instead of -m MODULE, give the file that starts it"),
        (("run", "--", "no-such-command"), "no-such-command cannot be run"),
        (("run", "--memory", "lots", "x.py"), "not a size"),
        (("run", "--chip", "h20", "x.py"), "no chip 'h20'"),
    ],
)
def test_run_says_in_a_sentence_what_is_wrong(arguments, message, monkeypatch, capsys):
    # It writes its settings there.
    monkeypatch.setattr("torch_loom.config.sources.os.environ", dict(os.environ))
    monkeypatch.setattr("sys.argv", ["loom", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert message in printed
