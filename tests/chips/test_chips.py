"""Chip descriptions: what is shipped, what a bad file says, and what the devices make of one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from torch_loom import chips
from torch_loom.chips import description as reader
from torch_loom.errors import ChipError, ConfigurationError

PROGRAMS = Path(__file__).parent / "programs" / "chips"

GOOD = """
name = "mine"
description = "A chip of my own"
memory = "1GiB"
memory_policy = "lazy"
dtypes = ["float16", "bfloat16"]
amp_dtypes = ["bfloat16"]
capability_major = 2
capability_minor = 3
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_shipped() -> None:
    gpus = "a10 a100 a100_pcie40 a40 b200 h100 h200 k80 l4 l40s mi300x p100 p4 rtx3090 rtx4090 rtx5090 t4"
    gpus += " v100 v100_pcie"
    others = "atom atom_max blackhole grayskull loom1 rebel wormhole_b0"
    assert chips.available() == tuple(sorted([*gpus.split(), *others.split()]))
    loom1, atom, h200 = chips.load("loom1"), chips.load("atom"), chips.load("h200")
    assert (loom1.memory_bytes, loom1.memory_policy) == (16 << 30, "eager")
    assert loom1.amp_dtypes == ("float16", "bfloat16")
    assert (atom.memory_bytes, atom.memory_policy) == (int(15.7 * 2**30), "lazy")
    assert atom.amp_dtypes == ("float16",)
    assert (h200.memory_bytes, h200.memory_policy) == (143_771 << 20, "eager")
    assert (h200.num_cores, h200.clock_mhz) == (132, 1980)
    assert (h200.capability_major, h200.capability_minor) == (9, 0)
    assert (h200.power_idle_watts, h200.power_max_watts) == (115, 700)
    assert (atom.power_idle_watts, atom.power_max_watts, atom.clock_idle_mhz) == (6.1, 43.9, 0)
    assert (atom.npu_name, atom.num_chiplets, loom1.npu_name, loom1.num_chiplets) == ("RBLN-CA12", 1, "", 1)


def test_the_newer_cards_of_rebellions() -> None:
    atom, one, rebel = (chips.load(name) for name in ("atom", "atom_max", "rebel"))
    # Of an ATOM-Max, torch-rbln sees each NPU.
    assert (one.npu_name, one.memory_bytes, one.num_chiplets) == ("RBLN-CA25", atom.memory_bytes, 1)
    assert one.dram_gbps == atom.dram_gbps
    assert {dtype: one.peak_tflops[dtype] for dtype in atom.peak_tflops} == dict(atom.peak_tflops)
    # What torch-rbln gives as an example of total_memory.
    assert (rebel.npu_name, rebel.memory_bytes, rebel.num_chiplets) == ("RBLN-CR13", 150_323_855_360, 4)
    assert (rebel.dram_gbps, rebel.peak_tflops["float16"], rebel.power_max_watts) == (4800, 1000, 600)
    assert one.native_ops == rebel.native_ops == atom.native_ops


@pytest.mark.parametrize("name", chips.available())
def test_each_figure_of_a_shipped_chip_has_its_source(name: str) -> None:
    path = Path(reader.__file__).with_name(f"{name}.toml")
    keys = set(reader.tomllib.loads(path.read_text(encoding="utf-8"))) - {"name", "description", "sources"}
    chip = chips.load(name)
    assert chip.name == name
    assert set(chip.sources) == keys


def test_a_description_of_ones_own(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD + 'num_cores = 4\nclock_mhz = 900\n[sources]\nmemory = "the data sheet"\n')
    chip = chips.load(path)
    assert chip == chips.load(str(path))
    assert chip == chips.Chip(
        name="mine",
        description="A chip of my own",
        memory_bytes=1 << 30,
        memory_policy="lazy",
        dtypes=("float16", "bfloat16"),
        amp_dtypes=("bfloat16",),
        capability_major=2,
        capability_minor=3,
        num_cores=4,
        clock_mhz=900,
        sources={"memory": "the data sheet"},
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        chip.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        chip.sources["memory"] = "hearsay"  # type: ignore[index]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("power_idle_watts = 5", "only one of 'power_idle_watts' and 'power_max_watts'"),
        ("temperature_max_celsius = 5", "only one of 'temperature_idle_celsius'"),
        (
            "power_idle_watts = 5\npower_max_watts = 4.5",
            "power_idle_watts = 5.0. Allowed: at most power_max_watts = 4.5",
        ),
        ("grid_rows = 4", "only one of 'grid_rows' and 'grid_columns'"),
        ("grid_rows = 2\ngrid_columns = 3\nnum_cores = 7", "num_cores = 7. Allowed: 6: grid_rows less"),
        (
            "grid_rows = 2\ngrid_columns = 3\nharvested_rows = [0, 1]",
            r"harvested_rows = \[0, 1\]. Allowed: fewer rows than grid_rows = 2",
        ),
        ("l2_full_share = 0.9\nl2_none_share = 0.5", "l2_full_share = 0.9. Allowed: at most l2_none_share"),
        ("clock_idle_mhz = 9\nclock_mhz = 8", "clock_idle_mhz = 9. Allowed: at most clock_mhz = 8"),
    ],
)
def test_figures_that_contradict_one_another(tmp_path: Path, lines: str, complaint: str) -> None:
    with pytest.raises(ChipError, match=complaint):
        chips.load(written(tmp_path, GOOD + lines))


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ('name = "a b"', "letters"),
        ("name = 3", "letters"),
        ('description = ""', "1 to 400 characters"),
        (f'description = "{"x" * 401}"', "1 to 400 characters"),
        ('description = "two\\nlines"', "one line"),
        ('memory = "lots"', "2MiB to 16TiB"),
        ("memory = -1", "2MiB to 16TiB"),
        ("memory = 1.5e9", "2MiB to 16TiB"),
        ("memory = true", "2MiB to 16TiB"),
        ('memory = "17TiB"', "2MiB to 16TiB"),
        ('memory_policy = "sometimes"', "'eager', 'lazy'"),
        ("memory_policy = []", "'eager', 'lazy'"),
        ('dtypes = "float16"', "float64, float32"),
        ('dtypes = ["float16", "float12"]', "float64, float32"),
        ('dtypes = ["float16", "bfloat16", "float16"]', "without repetition"),
        ("dtypes = [[1], {a = 2}]", "float64, float32"),
        ('amp_dtypes = ["float32"]', "float16, bfloat16"),
        ("capability_major = -1", "0 to 99"),
        ("capability_minor = 1.0", "0 to 99"),
        ("capability_minor = true", "0 to 99"),
        ("num_cores = 0", "1 to 1000000"),
        ("clock_mhz = 1e3", "1 to 100000"),
        ("clock_mhz = 100001", "1 to 100000"),
        ("clock_mhz = 2024-01-01", "1 to 100000"),
        ("clock_idle_mhz = 0", "1 to 100000"),
        ("clock_idle_mhz = 10", "at most clock_mhz = missing"),
        ('power_idle_watts = "5W"', "a number of watts"),
        ("power_idle_watts = inf", "a number of watts"),
        ("power_idle_watts = nan", "a number of watts"),
        ("power_max_watts = 0", "a number of watts"),
        ("temperature_max_celsius = 20.5", "1 to 1000"),
        ("tf32 = 1", "true, false"),
        ("is_integrated = 'no'", "true, false"),
        ("warp_size = 0", "1 to 65536"),
        ("max_threads_per_core = -1", "1 to 1048576"),
        ("registers_per_core = []", "1 to 1073741824"),
        ('shared_memory_per_core = "much"', "1B to 1TiB"),
        ("l2_cache = 0", "1B to 1TiB"),
        ("l2_cache = true", "1B to 1TiB"),
        ("memory_clock_mhz = 1.0", "1 to 100000"),
        ("memory_bus_bits = 0", "1 to 1048576"),
        ("grid_rows = 0", "1 to 10000"),
        ("harvested_rows = 3", "whole numbers, 0 to 9999"),
        ("harvested_rows = [1, 1]", "without repetition"),
        ("harvested_rows = [-1]", "whole numbers, 0 to 9999"),
        ('sram_per_core = "some"', "1B to 1TiB"),
        ("dram_gbps = 0", "a number of GB/s, above 0"),
        ("dram_gbps = inf", "a number of GB/s, above 0"),
        ("dram_gbps = nan", "a number of GB/s, above 0"),
        ("dram_gbps = -3", "a number of GB/s, above 0"),
        ("dram_gbps = true", "a number of GB/s, above 0"),
        ("dram_share = 1.5", "a share, above 0, to 1"),
        ("derating = 0", "a share, above 0, to 1"),
        ("kernel_launch_ns = []", "a number of ns, above 0"),
        ("peak_tflops = 3", "a table, keys float64"),
        ("peak_tflops.bfloat16 = -1", "a number of TFLOP/s, above 0"),
        ("efficiency = []", "a table, keys elementwise"),
        ("efficiency.copy.start_ns = nan", "a number of ns"),
        ("efficiency.copy.start_ns = 0", "a number of ns, 0.001 to 1e+09"),
        ("efficiency.copy.memory_share = 1e9", "a number of share, 0.001 to 1.25"),
        ("efficiency.copy = 3", "a table, keys start_ns, item_cycles, memory_share"),
        ('efficiency_of = "b30"', "a10, a100, "),
        ('host_of = "b30"', "a10, a100, "),
        ('sources = "me"', "a table"),
        ("sources.memory = 1", "text of one line"),
    ],
)
def test_a_bad_value_names_file_key_value_and_what_is_allowed(
    tmp_path: Path, line: str, allowed: str
) -> None:
    key = line.split(" = ")[0]
    lines = [each for each in GOOD.splitlines() if not each.startswith(f"{key} =")]
    path = written(tmp_path, "\n".join([*lines, line]))
    with pytest.raises(ChipError) as raised:
        chips.load(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: {key} = ")
    assert allowed in message.split("Allowed: ")[1]
    assert isinstance(raised.value, ConfigurationError)


def test_amp_dtypes_are_dtypes(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace('["float16", "bfloat16"]', '["float32"]'))
    with pytest.raises(ChipError, match=r"amp_dtypes = \['bfloat16'.*in 'dtypes' as well"):
        chips.load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the key 'name' is missing, and so are 'description', 'memory'"),
        (GOOD + "cores = 3", "unknown key 'cores'. Allowed: num_cores, sources, or another key"),
        (GOOD.replace("dtypes", "types", 1), "unknown key 'types'"),
        (GOOD + "sram = 1", "unknown key 'sram'"),
        (GOOD + f"{'x' * 5000} = 1", "…"),
        (GOOD + '[sources]\nsram = "me"', "sources: unknown key 'sram'"),
        (GOOD + "[peak_tflops]\nfloat12 = 1", "peak_tflops: unknown key 'float12'"),
        (GOOD + "[efficiency.magic]\nx = 1", "efficiency: unknown key 'magic'"),
        (GOOD + "[efficiency.copy]\nspeed = 1", "efficiency.copy: unknown key 'speed'"),
        (GOOD + "dram_gbps = 1\ndram_gbps = 2", "not a TOML file"),
        (GOOD + "[[", "not a TOML file"),
        (GOOD + "clock_mhz = " + "9" * 5000, "not a TOML file"),
        (GOOD + "x = " + "[" * 5000, "not a TOML file"),
        ("#" * (1 << 17), "too large. Allowed: 65536 bytes"),
    ],
)
def test_a_bad_file(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ChipError) as raised:
        chips.load(path)
    assert str(path) in str(raised.value)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 2000


def test_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ChipError, match="not a TOML file"):
        chips.load(path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing.toml", "there is no such file"),
        ("/dev/zero", "this is a device, not a file"),
        ("folder/", "there is no such file"),
        ("a\0b.toml", "it cannot be read"),
    ],
)
def test_what_is_no_file(path: str, reason: str) -> None:
    with pytest.raises(ChipError, match=reason):
        chips.load(path)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ChipError, match=r"There is no chip 'zz9'\. Shipped are: a10, a100, .*, wormhole_b0;"):
        chips.load("zz9")


@pytest.mark.parametrize(("text", "name"), [("wormhole", "wormhole_b0"), ("h20", "h200")])
def test_an_unknown_name_is_answered_with_the_nearest(text: str, name: str) -> None:
    with pytest.raises(
        ChipError, match=f"There is no chip '{text}'\\. Did you mean '{name}'\\? Shipped are: a10, a100,"
    ):
        chips.load(text)


@pytest.mark.parametrize(
    ("board", "chip", "count"),
    [
        ("n300", "wormhole_b0", 2),
        ("N150", "wormhole_b0", 1),
        ("bh_p150", "blackhole", 1),
        ("galaxy", "wormhole_b0", 32),
    ],
)
def test_a_board_is_answered_with_its_chip(board: str, chip: str, count: int) -> None:
    with pytest.raises(
        ChipError,
        match=f"'{board}' is a board with {count} chips? of {chip}: take the chip '{chip}', and "
        f"TORCH_LOOM_DEVICES={count} for the whole board. Shipped",
    ):
        chips.load(board)


@pytest.mark.parametrize("text", ["1", "o", "cuda", ""])
def test_a_name_near_none_is_answered_with_the_list_alone(text: str) -> None:
    with pytest.raises(ChipError, match=f"There is no chip '{text}'\\. Shipped are: a10, a100,"):
        chips.load(text)


@pytest.mark.slow
def test_import_reads_no_chip(run_python: PythonRunner) -> None:
    run_python(PROGRAMS / "import_reads_no_chip.py")


@pytest.mark.long
@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, ("loom1", 16 << 30, "eager", (1, 0), ["float16", "bfloat16"])),
        (
            {"TORCH_LOOM_CHIP": "h200"},
            ("h200", 143_771 - 616 << 20, "eager", (9, 0), ["float16", "bfloat16"]),
        ),
        ({"TORCH_LOOM_CHIP": "atom"}, ("atom", int(15.7 * 2**30), "lazy", (1, 0), ["float16"])),
        (
            {"TORCH_LOOM_CHIP": "atom", "TORCH_LOOM_MEMORY": "1GiB", "TORCH_LOOM_MEMORY_POLICY": "eager"},
            ("atom", 1 << 30, "eager", (1, 0), ["float16"]),
        ),
        ({"TORCH_RBLN_EAGER_MALLOC": "1", "TORCH_LOOM_CHIP": "atom"}, ("atom", None, "lazy", None, None)),
    ],
)
def test_what_the_devices_make_of_it(
    fork_loom: PythonRunner, env: dict[str, str], expected: tuple[object, ...]
) -> None:
    fork_loom(PROGRAMS / "what_the_devices_make_of_it.py", env, given=expected)


@pytest.mark.long
@pytest.mark.parametrize("eager_malloc", ["0", "1"])
def test_under_the_vendors_name(fork_python: PythonRunner, eager_malloc: str) -> None:
    fork_python(
        PROGRAMS / "under_the_vendors_name.py",
        {"TORCH_LOOM_DEVICE_NAME": "rbln", "TORCH_RBLN_EAGER_MALLOC": eager_malloc},
        given=eager_malloc,
    )


def test_a_chip_that_cannot_be_used_is_told_at_first_use(fork_loom: PythonRunner, tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("1GiB", "1KiB"))
    fork_loom(PROGRAMS / "a_chip_that_cannot_be_used_is_told_at_first_use.py", {"TORCH_LOOM_CHIP": str(path)})
