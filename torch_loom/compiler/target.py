"""What a graph is compiled for: the chips' grids, memories and rates, and what an op takes on some cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from torch_loom.chips import Chip, load
from torch_loom.chips.cost import CostModel, Kernel, Op
from torch_loom.chips.cost.lower import lower
from torch_loom.chips.rates import efficiency, rates
from torch_loom.compiler.descriptors import SRAM_RANGE, check_number, cores_of, num_chips_of, read_yaml
from torch_loom.compiler.options import Options
from torch_loom.config.boards import DEVICE_CONFIGS
from torch_loom.config.files import whole_file
from torch_loom.errors import CompilerOptionError

# What a description may lack.
GUESSED_SRAM_BYTES = 1 << 20
GUESSED_DRAM_GBPS = 256.0
GUESSED_CHANNELS = 4
# Firmware, tile headers and the routers' tables take so much of each core's memory (PyBuda's L1 map).
RESERVED_SRAM_BYTES = 204 << 10
# A core's router moves so many bytes a cycle (tt-isa-documentation: 32 B/clk).
NOC_BYTES_PER_CYCLE = 32
# The largest share of the cores that fits one op: a grid must leave no row of cores for half a tile.
TILE = 32
# Physical rows of a die that hold workers; 0 and 6 hold none, so rows 1 to 5 and 7 to 11 are 0 to 9 here.
_FIRST_ROWS, _OTHER_ROWS = range(1, 6), range(7, 12)


@dataclass(frozen=True)
class Target:
    """The chips that a graph is placed on, all alike.

    Attributes:
        chip: their description.
        num_chips: how many.
        rows, columns: of the cores that work.
        sram_bytes: of a core, what buffers may use.
        channels: of DRAM; channel_bytes: the capacity of each.
        dram_bytes_per_cycle: of all channels together, what large reads reach.
        clock_ghz: cycles a nanosecond.
        link_bytes_per_cycle: to the neighbouring chip.
        harvested: rows that are not used, for each chip.
    """

    chip: Chip
    num_chips: int
    rows: int
    columns: int
    sram_bytes: int
    channels: int
    channel_bytes: int
    dram_bytes_per_cycle: float
    clock_ghz: float
    link_bytes_per_cycle: float
    harvested: tuple[tuple[int, ...], ...] = ()
    _models: dict[tuple[int, float], CostModel] = field(default_factory=dict, compare=False, repr=False)

    @property
    def cores(self) -> int:
        """Cores of one chip."""
        return self.rows * self.columns

    @property
    def has_tiles(self) -> bool:
        """Whether cores compute on tiles of block floats, products in as many passes as a fidelity says."""
        return BLOCK_FLOAT in self.chip.peak_tflops

    def passes_against_peak(self, dtype: str, passes: int) -> float:
        """Return how many times longer a product takes than at the chip's peak rate of its dtype.

        The matrix unit takes as long for every format that it multiplies: passes alone decide, up to the
        highest rate that the chip has.
        """
        if not self.has_tiles:
            return 1.0
        flops = rates(self.chip).flops_per_ns
        most = max(flops[each] for each in self.chip.peak_tflops)
        return flops[dtype] / min(flops[BLOCK_FLOAT] * _PEAK_PASSES / passes, most)

    def timer(self, op: Op, phases: float = 1.0) -> Callable[[int], float]:
        """Return a function of a number of cores: how many cycles an op keeps these busy.

        Its operands are in the cores' memory.

        Args:
            phases: of a matrix product, against those that the chip's peak rate counts.
        """
        # Of layouts of images, which a GPU's libraries convert, tiles know nothing.
        lowered = [each for each in lower(op) if each.family != "layout" or not self.has_tiles]
        kernels = [(each, phases if _is_product(each) else 1.0) for each in lowered]
        moved = sum(tensor.memory_bytes for tensor in (*op.inputs, *op.outputs))
        # The chip's rates are those of its own clock; `clock_ghz` may be another.
        own_ghz = (self.chip.clock_mhz or 1000) / 1000

        def cycles(cores: int) -> float:
            compute = sum(self._model(cores, times).time(kernel).compute_ns for kernel, times in kernels)
            return max(compute * own_ghz, moved / (NOC_BYTES_PER_CYCLE * cores), 1.0)

        return cycles

    def _model(self, cores: int, phases: float) -> CostModel:
        # Phases slow the matrix units down, and not what else a kernel does, as attention's softmax.
        found = self._models.get((cores, phases))
        if found is None:
            whole = rates(self.chip)
            share = cores / whole.cores
            part = whole._replace(
                cores=cores,
                flops_per_ns={dtype: rate * share / phases for dtype, rate in whole.flops_per_ns.items()},
                cache_bytes=max(1.0, whole.cache_bytes * share),
            )
            found = self._models[cores, phases] = CostModel(part, efficiency(self.chip))
        return found


BLOCK_FLOAT = "bfp8"
# In which the matrix unit reaches the peak that a chip says for it (docs.tenstorrent.com: 74 FP16 and 148
# BFP8 TFLOPS are 296 in four and two; 262 FP8 are the most that is said).
_PEAK_PASSES = 2


def _is_product(kernel: Kernel) -> bool:
    """Return whether a kernel multiplies matrices on matrix units."""
    name = kernel.family
    return name.startswith(("matmul", "convolution", "attention")) and not name.endswith("_vector")


def target_of(chip: Chip, options: Options, num_chips: int = 1) -> Target:
    """Return the target of a chip under the options: boards, descriptors and harvested rows.

    Args:
        num_chips: how many there are, where no board or descriptor says so.

    Raises:
        CompilerOptionError: a descriptor cannot be read, or rows are harvested that the chip does not have.
    """
    if options.device_config:
        board = DEVICE_CONFIGS[options.device_config]
        chip, num_chips = load(board.chip), board.num_chips
    if options.backend_cluster_descriptor_path:
        num_chips = num_chips_of(options.backend_cluster_descriptor_path)
    rows, columns, sram = _grid(chip)
    if options.device_config and board.harvested_rows is not None:
        rows = (chip.grid_rows or rows) - len(board.harvested_rows)
    if options.backend_device_descriptor_path:
        of_chip = (chip.grid_rows or rows, chip.grid_columns or columns)
        rows, columns, sram = cores_of(options.backend_device_descriptor_path, (rows, columns), of_chip, sram)
    harvested = _harvested(options.harvested_rows, num_chips)
    if harvested:
        # All chips are placed alike, so the chip with the fewest rows counts.
        whole = chip.grid_rows or rows
        rows = whole - max(len(each) for each in harvested)
        if rows < 1 or any(row >= whole for each in harvested for row in each):
            raise CompilerOptionError(
                f"harvested_rows={[list(rows) for rows in options.harvested_rows]}: {chip.name} has "
                f"{whole} rows of cores"
            )
    clock = (chip.clock_mhz or 1000) / 1000
    channels = chip.dram_channels or GUESSED_CHANNELS
    share = chip.dram_share or 0.9
    target = Target(
        chip=chip,
        num_chips=num_chips,
        rows=rows,
        columns=columns,
        sram_bytes=max(sram - RESERVED_SRAM_BYTES, sram // 2),
        channels=channels,
        channel_bytes=chip.memory_bytes // channels,
        dram_bytes_per_cycle=(chip.dram_gbps or GUESSED_DRAM_GBPS) * share / clock,
        clock_ghz=clock,
        link_bytes_per_cycle=(chip.num_links * chip.link_gbps or chip.host_link_gbps or 16.0) / clock,
        harvested=harvested,
    )
    return _with_runtime_parameters(target, options)


def _grid(chip: Chip) -> tuple[int, int, int]:
    sram = chip.sram_per_core_bytes or GUESSED_SRAM_BYTES
    if chip.grid_rows:
        return chip.grid_rows - len(chip.harvested_rows), chip.grid_columns, sram
    cores = chip.num_cores or 1
    rows = next(r for r in range(math.isqrt(cores), 0, -1) if cores % r == 0)
    return rows, cores // rows, sram


def _harvested(given: Sequence[Sequence[int]], num_chips: int) -> tuple[tuple[int, ...], ...]:
    if not given:
        return ()
    if len(given) != num_chips:
        raise CompilerOptionError(
            f"harvested_rows={[list(each) for each in given]}: there are {num_chips} chips, and it takes a "
            "list for each"
        )
    return tuple(tuple(sorted({_logical(row) for row in each})) for each in given)


def _logical(row: int) -> int:
    return row - 1 if row in _FIRST_ROWS else row - 2


# What a file of runtime parameters may say: least and most; whole numbers where both are.
_PARAMETERS: Mapping[str, tuple[float, float]] = {
    "rows": (1, 1024),
    "columns": (1, 1024),
    "sram_bytes": SRAM_RANGE,
    "channels": (1, 1024),
    "channel_bytes": (1, 1 << 48),
    "dram_bytes_per_cycle": (1e-3, 1e9),
    "clock_ghz": (1e-3, 1e3),
}


def _with_runtime_parameters(target: Target, options: Options) -> Target:
    path = options.backend_runtime_params_path
    if not path:
        return target
    if options.store_backend_db_to_yaml:
        data = {name: getattr(target, name) for name in _PARAMETERS}
        try:
            with whole_file(path) as unfinished:
                unfinished.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        except OSError as error:
            raise CompilerOptionError(
                f"backend_runtime_params_path={path!r}: it cannot be written ({error})"
            ) from error
        return target
    if not Path(path).exists():
        return target
    data = read_yaml("backend_runtime_params_path", path)
    if not data.keys() <= set(_PARAMETERS):
        raise CompilerOptionError(
            f"backend_runtime_params_path={path!r}: it takes the keys {', '.join(_PARAMETERS)}"
        )
    for name, value in data.items():
        check_number("backend_runtime_params_path", path, name, value, *_PARAMETERS[name])
    return replace(target, **data)
