"""The benchmarks run, and their reports have the structure; numbers of such short runs mean nothing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from benchmarks import (
    _common,
    balance,
    compile,
    compiled_calls,
    compiled_models,
    dispatch,
    growth,
    import_time,
    models,
    nets,
    step_parts,
    streams,
    tape,
)
from benchmarks._figures import Figure

QUICK = Path(__file__).parent / "programs" / "quick.py"
ROOT = Path(__file__).parents[2]
# fmt: off
OPS = (
    "add", "mul", "add_", "relu", "gelu", "mm", "bmm", "addmm", "linear", "conv2d", "softmax", "layer_norm",
    "sum", "mean", "cat", "index_select", "gather", "where", "view", "transpose", "slice", "clone", "copy_",
    "embedding",
)
# fmt: on


@pytest.fixture
def run(fork_loom):
    """``run(name, …)``: run a module, or a script, with `--quick` and more; return its CompletedProcess."""

    def run(name, *arguments, limit_s=100):
        # One thread: with two, small ops crawl on a machine that is busy with other tests.
        threads = {"OMP_NUM_THREADS": "1"}
        given = (name, *arguments)
        return fork_loom(QUICK, threads, given=given, check=False, limit_s=limit_s, is_torn_down=True)

    return run


@pytest.mark.slow
def test_dispatch_reports_every_op(run, tmp_path):
    done = run("benchmarks.dispatch", "--json", str(tmp_path / "dispatch.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "dispatch.json").read_text())
    assert {(row["size"], row["name"]) for row in result["rows"]} == {
        (s, o) for s in ("tiny", "1mb") for o in OPS
    }
    assert all(row["ratio"] > 0 for row in result["rows"])
    last = done.stdout.splitlines()[-1]
    assert last == f"geomean tiny {result['geomean_tiny']:.3f}, 1mb {result['geomean_1mb']:.3f}"


@pytest.mark.slow
def test_first_calls_are_reported(run, tmp_path):
    done = run("benchmarks.cold", "--json", str(tmp_path / "cold.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "cold.json").read_text())
    ratios = [row["ratio"] for row in result["rows"]]
    assert len(ratios) == 20
    assert min(ratios) > 0
    assert done.stdout.splitlines()[-1] == (
        f"geometric mean {result['geometric mean']:.2f}, worst {max(ratios):.2f}"
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_growth_is_reported(run, tmp_path):
    done = run("benchmarks.growth", "--json", str(tmp_path / "growth.json"), limit_s=280)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "growth.json").read_text())
    assert {name: len(row) for name, row in result["ns"].items()} == dict.fromkeys(growth.SUBJECTS, 2)
    assert min(result["growths"].values()) >= 1
    assert done.stdout.splitlines()[-1] == f"worst {max(result['growths'].values()):.2f}"


def test_growth_is_drawn_with_a_line_for_each_subject():
    costs = {name: {1: 10.0, 1_000_000: 14.0} for name in growth.SUBJECTS}
    drawn = ElementTree.fromstring(growth.picture(costs))
    lines = [part for part in drawn.iter() if part.tag.endswith("polyline")]
    assert len(lines) == len(growth.SUBJECTS)
    assert {part.text for part in drawn.iter() if part.tag.endswith("text")} >= set(growth.SUBJECTS)


@pytest.mark.slow
def test_names_are_compared_op_by_op(run, tmp_path):
    done = run("benchmarks.names", "--json", str(tmp_path / "names.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "names.json").read_text())
    for size in ("tiny", "1mb"):
        assert set(result["ops"][size]) == set(OPS)
        assert min(result["ops"][size].values()) > 0
    assert done.stdout.splitlines()[-1] == f"geomean tiny {result['tiny']:.3f}, 1mb {result['1mb']:.3f}"


@pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf")
@pytest.mark.slow
def test_a_profile_counts_samples_of_the_library():
    here, there = step_parts.profile("loom", quick=True).values()
    assert here["torch-loom"] == 0
    assert there["torch-loom"] > 0
    assert here["PyTorch"] > 0
    assert there["PyTorch"] > 0


@pytest.mark.slow
def test_parts_of_steps_are_reported(run, tmp_path):
    done = run("benchmarks.step_parts", "--json", str(tmp_path / "parts.json"))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "parts.json").read_text())["rows"]
    assert [row["name"] for row in rows[:2]] == [
        f"{step_parts.SMALL[0]}, {n}" for n in ("forward and loss", "backward")
    ]
    assert len(rows) == 18
    assert all(row["ratio"] > 0 for row in rows)


@pytest.mark.slow
def test_calls_of_compiled_models_are_reported(run, tmp_path):
    done = run("benchmarks.compiled_calls", "--json", str(tmp_path / "calls.json"))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "calls.json").read_text())["rows"]
    assert [row["name"] for row in rows] == list(compiled_calls.WAYS)
    assert all(row["ratio"] > 0 for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_models_reports_every_case_as_a_script(run, tmp_path):
    done = run("benchmarks/models.py", "--json", str(tmp_path / "models.json"), limit_s=280)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "models.json").read_text())
    names = [f"{model.name}, {name}" for model in models.MODELS for name in model.passes]
    assert [row["name"] for row in result["rows"]] == names
    assert models.TARGETS.keys() <= set(names)
    assert all(row["ratio"] > 0 for row in result["rows"])


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("exported_once")
def test_plans_of_bert_base_beat_the_smallest_grids_and_come_near_the_bound():
    policies, bounds = balance.bert_base(12)
    limits = {name: target.limit for name, target in balance.SUBJECT.targets.items()}
    assert max(policies) <= limits["policy"]
    assert 1 <= max(bounds) <= limits["bound"]


def test_compiled_cases_have_their_own_targets():
    (mlp,) = [model for model in models.compiled_cases(quick=False) if model.name.startswith("MLP")]
    case = f"{mlp.name}, torch_loom.compile, Bfp8_b"
    assert models.target(case) == 1.2
    assert models.target(f"{mlp.name}, torch.compile") == 1.0
    assert models.target(f"{mlp.name}, {models.FORWARD}") == models.TARGET
    row = _common.Row(case, 1e-3, 2e-3, 2.0)
    assert f"| {case} | 1.000 | 2.000 | 2.00 | 1.2 |" in compiled_models.docs_body([row])


@pytest.mark.slow
def test_graphs_reports_a_step_of_a_hundred_ops(run, tmp_path):
    done = run("benchmarks.graphs", "--json", str(tmp_path / "graphs.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "graphs.json").read_text())
    assert 80 <= result["num_ops"] <= 120
    assert 0 < result["ratio"] < 2


@pytest.mark.slow
def test_streams_reports_every_figure(run, tmp_path):
    done = run("benchmarks.streams", "--json", str(tmp_path / "streams.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "streams.json").read_text())
    rows = {row["name"]: row for row in result["rows"]}
    assert rows.keys() == streams.SUBJECT.targets.keys()
    assert rows["overlap"]["median"] > 0
    assert 0 < rows["issue"]["median"] < 1000


@pytest.mark.parametrize(("median", "status"), [(0.5, 0), (99.0, 1)])
def test_check_of_streams(monkeypatch, median, status):
    figures = [Figure(name, median, 2 * median) for name in streams.SUBJECT.targets]
    monkeypatch.setattr(streams, "measure", lambda *_: figures)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    assert streams.main(["--check"]) == status
    assert streams.main([]) == 0
    assert "99.00 µs" in streams.SUBJECT.docs_body(figures) or median < 1


@pytest.mark.slow
def test_compile_reports_every_figure_and_pass(run, tmp_path):
    done = run("benchmarks.compile", "--json", str(tmp_path / "compile.json"))
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads((tmp_path / "compile.json").read_text())["rows"]}
    assert rows.keys() == compile.SUBJECT.targets.keys()
    # What compiling leaves out where it finds an entry is all that takes long.
    assert "cold: plan" in done.stdout
    assert "cold: export" in done.stdout
    assert "cached: cache" in done.stdout
    assert "cached: plan" not in done.stdout


@pytest.mark.slow
def test_tape_reports_every_figure(run, tmp_path):
    done = run("benchmarks.tape", "--json", str(tmp_path / "tape.json"))
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads((tmp_path / "tape.json").read_text())["rows"]}
    assert rows.keys() == tape.SUBJECT.targets.keys()


@pytest.mark.parametrize(("median", "status"), [(0.5, 0), (99.0, 1)])
def test_check_of_tape(monkeypatch, median, status):
    figures = [Figure(name, median, 2 * median) for name in tape.SUBJECT.targets]
    monkeypatch.setattr(tape, "measure", lambda *_: figures)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    assert tape.main(["--check"]) == status
    assert tape.main([]) == 0


@pytest.mark.slow
def test_import_time_reports_what_is_added(run, tmp_path):
    done = run("benchmarks.import_time", "--json", str(tmp_path / "import.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "import.json").read_text())
    assert result["added_ms"] == pytest.approx(result["with_ms"] - result["without_ms"])
    assert result["without_ms"] > 0


@pytest.mark.parametrize(("added_seconds", "status"), [(0.07, 0), (0.2, 1)])
def test_check_of_import_time(monkeypatch, added_seconds, status):
    times = ([1.0 + added_seconds, 9.0, 1.0], [1.0, 0.5, 9.0])
    monkeypatch.setattr(import_time, "measure", lambda _: times)
    assert import_time.main(["--check"]) == status
    assert import_time.main([]) == 0
    assert "200 ms" in import_time.docs_body(1.2, 1.0, 10)


def test_import_time_alternates_and_drops_the_first(monkeypatch):
    calls = []
    monkeypatch.setattr(import_time, "seconds", lambda folder: calls.append(folder.name) or len(calls))
    with_loom, without = import_time.measure(2)
    assert calls == ["with", "without", "without", "with", "with", "without"]
    assert (with_loom, without) == ([4, 5], [3, 6])


@pytest.mark.long
def test_import_time_compares_with_an_environment_that_lacks_torch_loom_alone():
    with import_time.environments() as (with_loom, without):
        assert {path.name for path in with_loom.iterdir()} > {path.name for path in without.iterdir()}
        for folder, name in ((with_loom, "loom"), (without, "privateuseone")):
            program = "import torch; print(torch._C._get_privateuse1_backend_name())"
            command = [sys.executable, "-S", "-c", program]
            environment = {"PYTHONPATH": str(folder)}
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
            assert done.stdout.split() == [name], done.stderr


def test_operand_sizes_are_as_stated():
    tiny, large = dispatch.SIZES
    for name, _, operands in dispatch.OPS:
        if name != "conv2d":
            assert max(tensor.numel() for tensor in operands(tiny).values()) <= 64, name
        main_operand = operands(large)["x"]
        assert main_operand.numel() * main_operand.element_size() == 2**20, name
        for tensor in operands(large).values():
            assert tensor.count_nonzero() > 0, name


@pytest.mark.parametrize(("ratio", "status"), [(1.0, 0), (9.0, 1)])
def test_check_fails_on_a_missed_target(monkeypatch, ratio, status):
    row = _common.Row("op", 1e-6, ratio * 1e-6, ratio)
    monkeypatch.setattr(dispatch, "measure", lambda *_: [row])
    monkeypatch.setattr(models, "measure", lambda *_: [row])
    monkeypatch.setattr(models, "compiled_cases", lambda _quick: [])
    for benchmark in (dispatch, models):
        assert benchmark.main(["--device", "cpu", "--check"]) == status
        assert benchmark.main(["--device", "cpu"]) == 0


def test_write_docs_replaces_its_own_section(monkeypatch, tmp_path):
    monkeypatch.setattr(_common, "DOCS_FILE", tmp_path / "docs" / "performance.md")
    _common.write_docs("one", "One", "first", "command one")
    _common.write_docs("two", "Two", "second", "command two")
    _common.write_docs("one", "One", "third", "command one")
    text = (tmp_path / "docs" / "performance.md").read_text()
    assert "first" not in text
    assert text.index("third") < text.index("second")
    assert text.count("command one --write-docs") == 1


def test_block_length_is_reached():
    measured = _common.Measured("x + 1", {"x": torch.ones(4)}, torch.device("cpu"))
    measured.fit(1e-3)
    assert measured.runs > 10


def test_nets_have_the_stated_sizes():
    resnet = nets.ResNet18()
    assert sum(parameter.numel() for parameter in resnet.parameters()) == 11_689_512
    assert nets.GPT(layers=1)(torch.zeros(2, 4, dtype=torch.long)).shape == (2, 4, 512)
    assert nets.LSTMClassifier()(torch.randn(2, 3, 256)).shape == (2, 10)
    assert nets.mlp()(torch.randn(2, 64)).shape == (2, 10)
