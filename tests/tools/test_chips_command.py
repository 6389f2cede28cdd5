"""`loom chips`: what it lists and shows, what it says of a bad description, and a fit from end to end."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from torch_loom import chips
from torch_loom.chips import measure
from torch_loom.chips.collectives import FILE, collective_seconds
from torch_loom.chips.cost import sweep
from torch_loom.chips.limits import beyond_limits
from torch_loom.chips.rates import efficiency, model
from torch_loom.tools import chip_fit, chip_list, console
from torch_loom.tools.cli import app
from torch_loom.tools.roofline import attainable, plot

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, ["chips", *arguments])


@pytest.mark.long
@pytest.mark.parametrize("arguments", [(), ("list",)])
def test_it_lists_every_shipped_chip_under_its_group(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "width", 80)
    result = run(*arguments)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()[1:]
    assert all(len(line) <= 80 for line in lines)
    groups: dict[str, list[str]] = {}
    for line in lines:
        if not line.startswith(" "):
            group = groups.setdefault(line.strip(), [])
        elif not line.startswith("   "):
            group.append(line.split()[0])
            # No figure is cut: memory, rate, cores and peak stand in the line of the name.
            assert re.match(r" +\S+ +[\d.]+ GiB +[\d.?]+ +[\d?]+ +(?:[\d.]+ (?:bf|fp)\d+|\?) ", line + " "), (
                line
            )
    assert sorted(name for group in groups.values() for name in group) == list(chips.available())
    nvidia = "Kepler Pascal Volta Turing Ampere Ada Hopper Blackwell"
    expected = [f"NVIDIA {name}" for name in nvidia.split()]
    assert [*groups] == [*expected, "AMD CDNA", "Tenstorrent", "Rebellions", "virtual"]
    assert groups["NVIDIA Ampere"] == ["a100", "a100_pcie40", "a10", "a40", "rtx3090"]
    assert groups["NVIDIA Blackwell"] == ["b200", "rtx5090"]
    assert groups["Tenstorrent"] == ["grayskull", "wormhole_b0", "blackhole"]
    assert groups["virtual"] == ["loom1"]


def test_a_chip_that_no_vendor_makes_is_virtual() -> None:
    made = dataclasses.replace(chips.load("h200"), description="a card of mine")
    assert chip_list.group_of(made) == "virtual"
    later = dataclasses.replace(chips.load("h200"), capability_major=13)
    assert chip_list.group_of(later) == "NVIDIA Blackwell"


@pytest.mark.parametrize("name", chips.available())
def test_it_shows_figures_sources_and_a_roofline(name: str) -> None:
    result = run("show", name)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(name)
    assert "peak_tflops" in result.stdout
    assert "flop/byte" in result.stdout
    assert any(0x2800 < ord(letter) <= 0x28FF for letter in result.stdout)


OWN = """
name = "own"
description = "a chip of mine"
memory = "4GiB"
memory_policy = "eager"
dtypes = ["float32", "bfloat16"]
amp_dtypes = ["bfloat16"]
capability_major = 1
capability_minor = 0
native_ops = ["add", "mm"]
deterministic = false
harvested_rows = []
num_chiplets = 1
derating = 1.0
clock_mhz = 900
efficiency_of = "h200"

[peak_tflops]
float32 = 2.0

[sources]
clock_mhz = "the data sheet"
"""


def sources_of(output: str) -> dict[str, str]:
    """Return the last column of what `loom chips show` printed, by figure."""
    lines = output.partition("TFLOP/s\n")[0].splitlines()
    start = lines[1].index("source")
    return {line.split()[0]: line[start:].strip() for line in lines[2:] if line and line[0] != " "}


def test_figures_of_a_file_without_a_source_are_the_files(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN, encoding="utf-8")
    result = run("show", str(path))
    found = sources_of(result.stdout)
    given = {"memory", "dtypes", "native_ops", "deterministic", "harvested_rows", "derating", "peak_tflops"}
    assert {found[key] for key in given} == {"this file"}
    assert found["clock_mhz"] == "the data sheet"
    assert found["efficiency"] == "the description of h200"
    assert "default" not in found.values()
    rows = [line.split()[:2] for line in result.stdout.splitlines()]
    assert ["deterministic", "no"] in rows
    assert ["harvested_rows", "none"] in rows
    kept = [line for line in OWN.splitlines() if not line.startswith(("derating", "deter", "native", "eff"))]
    path.write_text("\n".join(kept), encoding="utf-8")
    found = sources_of(run("show", str(path)).stdout)
    keys = ("derating", "deterministic", "native_ops", "efficiency", "memory")
    assert [found[key] for key in keys] == [*["default"] * 4, "this file"]
    assert "num_cores" not in found


@pytest.mark.parametrize("name", chips.available())
def test_figures_of_a_shipped_chip_have_their_sources(name: str) -> None:
    found = sources_of(run("show", name).stdout)
    with Path(chips.__file__).with_name(f"{name}.toml").open("rb") as file:
        table = tomllib.load(file)
    assert "this file" not in found.values()
    assert {key for key, source in found.items() if source == "default"}.isdisjoint(table)


def test_an_unknown_chip_ends_with_1() -> None:
    result = run("show", "b300")
    assert result.exit_code == 1
    assert "There is no chip 'b300'" in result.output


def test_check_says_what_lacks_a_source_and_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    text = Path(chips.__file__).with_name("loom1.toml").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    assert run("check", str(path)).exit_code == 0
    assert "without a source" not in run("check", str(path)).output
    path.write_text(text.replace('clock_mhz = "chosen: one cycle is a nanosecond"\n', ""), encoding="utf-8")
    assert "without a source: clock_mhz" in run("check", str(path)).output
    path.write_text(text.replace("num_links = 4\n", "num_links = 4\nderating = 1.0\n"), encoding="utf-8")
    assert "without a source: derating" in run("check", str(path)).output
    path.write_text(text.replace("clock_mhz = 1000", "clock_mhz = -1", 1), encoding="utf-8")
    result = run("check", str(path))
    assert result.exit_code == 1
    assert "clock_mhz = -1" in result.output


@pytest.mark.long
def test_a_fit_from_end_to_end(tmp_path: Path) -> None:
    truth = model(chips.load("h200"))
    rows = []
    for op in ("add", "copy"):
        for power in range(8, 27, 3):
            kernels = sweep.lower(sweep.describe(op, [1 << power], "float32"))
            took = truth.total_ns(kernels) * 1e-6
            rows.append({"op": op, "shape": [1 << power], "dtype": "float32", "device_ms": took})
    source, out = tmp_path / "sweep.json", tmp_path / "own.toml"
    source.write_text(json.dumps({"ops": rows}), encoding="utf-8")
    result = run("fit", str(source), "--out", str(out), "--base", "h200", "--name", "mine")
    assert result.exit_code == 0, result.output
    assert "held-out error" in result.stdout
    mine = chips.load(out)
    assert mine.name == "mine"
    assert mine.sources["efficiency"].startswith(
        "loom chips fit: 14 timings; coefficients told, the others as h200: copy "
    )
    again = model(mine)
    for row in rows:
        kernels = sweep.lower(sweep.describe(row["op"], row["shape"], "float32"))
        assert again.total_ns(kernels) * 1e-6 == pytest.approx(row["device_ms"], rel=0.03)


def test_a_bad_sweep_ends_with_1(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    path.write_text("[]", encoding="utf-8")
    result = run("fit", str(path), "--out", str(tmp_path / "own.toml"))
    assert result.exit_code == 1
    assert "not a sweep" in result.output
    assert not (tmp_path / "own.toml").exists()


def swept(folder: Path, device: str, factors: dict[int, float]) -> Path:
    """Write a sweep of the chip t4's own times, some of them multiplied."""
    truth = model(chips.load("t4"))
    rows = []
    for number, power in enumerate(range(10, 24)):
        took = truth.total_ns(sweep.lower(sweep.describe("add", [1 << power], "float32"))) * 1e-6
        took *= factors.get(number, 1.0)
        rows.append({"op": "add", "shape": [1 << power], "dtype": "float32", "device_ms": took})
    path = folder / "sweep.json"
    path.write_text(json.dumps({"device": device, "ops": rows}), encoding="utf-8")
    return path


@pytest.mark.long
@pytest.mark.parametrize(
    ("device", "base", "factors", "complaint"),
    [
        (
            "Tesla T4",
            "h200",
            {},
            "timed on 'Tesla T4', where 'h200' describes 'NVIDIA H200'. Allowed: the chip 't4'",
        ),
        ("NVIDIA H100 PCIe", "h100", {}, "Allowed: a description whose product_name is 'NVIDIA H100 PCIe'"),
        ("Tesla T4", "t4", {5: 1e3}, "add [32768] float32 takes"),
        ("Tesla T4", "t4", {5: 1e-3}, "add [32768] float32 takes"),
        (
            "Tesla T4",
            "t4",
            dict.fromkeys(range(14), 1e3),
            "14 of 14 rows take about 1e+03 times what 't4' takes",
        ),
    ],
)
def test_a_fit_refuses_other_cards_and_other_units(
    tmp_path: Path, device: str, base: str, factors: dict[int, float], complaint: str
) -> None:
    out = tmp_path / "own.toml"
    result = run("fit", str(swept(tmp_path, device, factors)), "--out", str(out), "--base", base)
    assert result.exit_code == 1
    assert complaint in " ".join(result.output.split())
    assert not out.exists()


@pytest.mark.long
@pytest.mark.parametrize("device", ["", "t4", "Tesla T4", "NVIDIA T4 16GB"])
def test_a_fit_takes_a_sweep_of_its_card(tmp_path: Path, device: str) -> None:
    out = tmp_path / "own.toml"
    result = run("fit", str(swept(tmp_path, device, {})), "--out", str(out), "--base", "t4")
    assert result.exit_code == 0, result.output


def large(folder: Path) -> Path:
    """Write a sweep of the chip t4's own times of large additions, a tenth longer, and of a collective."""
    truth = model(chips.load("t4"))
    rows: list[dict[str, object]] = [
        {"op": "all_reduce", "shape": [2, 1 << 20], "dtype": "float32", "ms": 1.0}
    ]
    for size in (1 << 22, 1 << 23, 1 << 24, 1 << 25, 1 << 26):
        took = truth.total_ns(sweep.lower(sweep.describe("add", [size], "float32"))) * 1.1e-6
        rows.append({"op": "add", "shape": [size], "dtype": "float32", "device_ms": took})
    path = folder / "sweep.json"
    path.write_text(json.dumps({"device": "Tesla T4", "ops": rows}), encoding="utf-8")
    return path


def test_what_a_sweep_does_not_tell_is_kept_from_the_base(tmp_path: Path) -> None:
    out = tmp_path / "own.toml"
    result = run("fit", str(large(tmp_path)), "--out", str(out), "--base", "t4", "--name", "mine")
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "elementwise 5 memory_share 5 start_ns, item_cycles" in words
    assert "not told by the data: kept" in words
    assert "1 rows of collectives are left out" in words
    mine, base = chips.load(out), chips.load("t4")
    told = {"memory_share": mine.efficiency["elementwise"]["memory_share"]}
    assert mine.efficiency["elementwise"] == {**efficiency(base)["elementwise"], **told}
    others = {family for family in mine.efficiency if family != "elementwise"}
    assert {family: mine.efficiency[family] for family in others} == {
        family: table for family, table in base.efficiency.items() if family != "elementwise"
    }
    # Where each figure is from, the file says: of the base's what it kept of it.
    assert (mine.l2_gbps, mine.sources["l2_gbps"]) == (base.l2_gbps, base.sources["l2_gbps"])
    assert mine.dram_share < base.dram_share
    assert mine.sources["dram_share"] == "loom chips fit: told by 5 of 5 timings"
    assert mine.sources["efficiency"] == (
        "loom chips fit: 5 timings; coefficients told, the others as t4: elementwise 1 of 3"
    )
    head = out.read_text(encoding="utf-8").partition("name =")[0].replace("\n#  ", "")
    assert (
        "# elementwise: told by so many of 5 timings: memory_share 5; not told by the data, kept from t4: "
        "start_ns, item_cycles.\n"
    ) in head
    assert "# Not timed, kept from t4: elementwise_heavy, " in head


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_a_residual_report(tmp_path: Path, suffix: str) -> None:
    report = tmp_path / f"residuals{suffix}"
    options = ("--base", "t4", "--out", str(tmp_path / "own.toml"), "--report", str(report))
    result = run("fit", str(large(tmp_path)), *options)
    assert result.exit_code == 0, result.output
    text = report.read_text(encoding="utf-8")
    rows = json.loads(text)["rows"] if suffix == ".json" else list(csv.DictReader(text.splitlines()))
    assert [row["use"] for row in rows] == ["left out: a collective", *["fitted"] * 5]
    assert not rows[0]["forecast_ms"]
    fitted = model(chips.load(tmp_path / "own.toml"))
    for row in rows[1:]:
        (size,) = row["shape"] if suffix == ".json" else [int(row["shape"])]
        took = fitted.total_ns(sweep.lower(sweep.describe("add", [size], "float32"))) * 1e-6
        assert float(row["forecast_ms"]) == pytest.approx(took, rel=1e-3)
        assert float(row["error"]) == pytest.approx(took / float(row["measured_ms"]) - 1.0, abs=1e-3)
        assert abs(float(row["held_out_error"])) < 0.05
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.toml", report.name, "sweep.json"]


def test_a_report_of_another_kind_is_refused_before_the_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        chip_fit.fit(large(tmp_path), "t4", tmp_path / "own.toml", None, tmp_path / "residuals.txt")
    assert "Allowed: a name that ends in .json or .csv" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "own.toml").exists()


def test_what_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "residuals.json"
    report.write_text("before", encoding="utf-8")

    def dumps(_: object) -> str:
        raise OSError("no space left on device")

    monkeypatch.setattr(chip_fit.json, "dumps", dumps)
    with pytest.raises(OSError, match="no space"):
        chip_fit.write_report(report, [{"row": 0}])
    assert report.read_text(encoding="utf-8") == "before"
    assert [path.name for path in tmp_path.iterdir()] == [report.name]


def collectives(folder: Path, device: str, factor: float = 1.0, spoilt: int = -1) -> Path:
    """Write what all_reduce over chips of an A100 takes, by the protocols that are shipped."""
    chip = chips.load("a100")
    rows = [
        {
            "op": "all_reduce",
            "shape": [ranks, 1 << size],
            "dtype": "float32",
            "ms": collective_seconds(chip, "all_reduce", 1 << size, ranks) * 1e3 * factor,
        }
        for ranks in (2, 4, 8)
        for size in range(12, 31)
    ]
    if spoilt >= 0:
        rows[spoilt]["ms"] *= 1000.0  # type: ignore[operator]
    path = folder / "nccl_collectives.json"
    path.write_text(json.dumps({"device": device, "ops": rows}), encoding="utf-8")
    return path


@pytest.mark.long
def test_a_file_of_collectives_gives_protocols(tmp_path: Path) -> None:
    source, out, report = (
        collectives(tmp_path, "a100 x 8 (NVSwitch)", 1.3),
        tmp_path / "own.json",
        tmp_path / "r.csv",
    )
    chip_fit.fit(source, "a100", out, None, report)
    found = json.loads(out.read_bytes())
    shipped = json.loads(FILE.read_bytes())["protocols"]
    assert {name for name, each in found["protocols"].items() if each == shipped[name]} == {
        "mesh",
        "message",
        "network",
        "network_message",
    }
    assert found["source"].startswith(
        "loom chips fit: half of 57 timings of nccl_collectives.json; as shipped: mesh, "
    )
    rows = list(csv.DictReader(report.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 57
    assert {row["use"].partition(":")[0] for row in rows} == {"fitted", "left out"}
    errors = [abs(float(row["error"])) for row in rows]
    assert sum(errors) / len(errors) < 0.05
    assert all(one["link_share"] > 0 for each in found["protocols"].values() for one in each)


@pytest.mark.parametrize(
    ("device", "base", "out", "spoilt", "complaint"),
    [
        (
            "v100 x 8 (NVLink)",
            "dgx-a100",
            "own.json",
            -1,
            "where the topology 'dgx-a100' is of 'a100', 'NVIDIA A100-SXM4-80GB'.",
        ),
        (
            "a100 x 8",
            "loom1",
            "own.json",
            -1,
            "'loom1' is a chip whose collectives nobody timed. Allowed: 'a100'",
        ),
        ("", "loom1", "own.json", -1, "of no row it is known how 'loom1' would do it"),
        ("a100 x 8", "a100", "own.toml", -1, "Allowed: a name that ends in .json"),
        ("a100 x 8", "a100", "own.json", 3, "all_reduce of 32768 bytes over 2 ranks (ops[3]) takes"),
    ],
)
def test_collectives_that_cannot_be_fitted(
    tmp_path: Path, device: str, base: str, out: str, spoilt: int, complaint: str
) -> None:
    source = collectives(tmp_path, device, spoilt=spoilt)
    result = run("fit", str(source), "--out", str(tmp_path / out), "--base", base)
    assert result.exit_code == 1
    assert complaint in " ".join(result.output.split())
    assert not (tmp_path / out).exists()


def test_there_is_nothing_to_measure_without_a_gpu(tmp_path: Path) -> None:
    result = run("measure", "--out", str(tmp_path / "sweep.json"), "--device", "cpu")
    assert result.exit_code == 1
    assert not (tmp_path / "sweep.json").exists()


@pytest.mark.long
def test_every_op_that_is_measured_can_be_read_and_runs() -> None:
    import torch

    assert set(measure.SHAPES) == set(sweep.OPS)
    for op, shapes in measure.SHAPES.items():
        for shape in [*shapes, *measure._sampled(op)]:
            assert len(shape) == sweep.OPS[op][0]
        smallest = min(shapes, key=lambda sizes: sum(sizes))
        dtype = "uint8" if op in measure.COPIES else "float32"
        for layout in ("nchw", "nhwc") if op.startswith(measure.IMAGES) else ("",):
            measure._make(measure.Case(op, smallest, dtype, layout), torch.device("cpu"))()


def test_what_is_measured_first_tells_the_most() -> None:
    """Each op, dtype and layout has its turn before any has a second."""
    cases = list(measure._cases(quick=False))
    kinds = {(case.op, case.dtype, case.layout) for case in cases}
    assert {(case.op, case.dtype, case.layout) for case in cases[: len(kinds)]} == kinds
    assert cases == list(measure._cases(quick=False))


def test_measure_needs_nothing_of_this_package() -> None:
    source = Path(measure.__file__).read_text(encoding="utf-8")
    assert "torch_loom" not in source.replace("torch_loom/chips/measure.py", "")


def test_the_roofline() -> None:
    assert attainable(1.0, 100.0, 1000.0) == 1.0
    assert attainable(1e6, 100.0, 1000.0) == 100.0
    lines = plot({"a": 10.0, "b": 100.0, "c": 10.0}, 1000.0, width=30, height=8)
    assert [line.plain.strip() for line in lines[-2:]] == ["━ 100  b", "━ 10  a, c"]
    assert all(len(line.plain) <= 41 for line in lines[1:10])


BOUNDED = """
name = "mine"
description = "A chip that claims much"
memory = "4GiB"
memory_policy = "eager"
dtypes = ["float32"]
amp_dtypes = []
capability_major = 1
capability_minor = 0
"""


@pytest.mark.parametrize("name", chips.available())
def test_a_shipped_chip_does_what_hardware_can(name: str) -> None:
    assert beyond_limits(chips.load(name)) == []


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("dram_share = 0.97", "dram_share = 0.97. Allowed: at most 0.95"),
        (
            "num_cores = 2\nclock_mhz = 1000\nl2_gbps = 129.0",
            "l2_gbps = 129. Allowed: at most 128",
        ),
        ("[efficiency.matmul]\nflop_share = 1.8", "efficiency.matmul.flop_share = 1.8. Allowed: at most 1.1"),
        ("[efficiency.convolution_dgrad]\nstart_ns = 76884.0", "start_ns = 76884. Allowed: at most 20000"),
        ("[efficiency.copy]\nmemory_share = 1.2", "copy.memory_share = 1.2. Allowed: at most 1.05556"),
    ],
)
def test_what_no_hardware_does_is_refused(tmp_path: Path, lines: str, complaint: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(BOUNDED + lines, encoding="utf-8")
    result = run("check", str(path))
    assert result.exit_code != 0
    assert complaint in " ".join(result.output.split())
