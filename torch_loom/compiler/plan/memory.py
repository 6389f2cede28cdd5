"""Buffers: between ops of an epoch in SRAM, between epochs and chips in DRAM, inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch_loom.compiler.options import Options
from torch_loom.compiler.plan.model import Edge, Epoch, Plan, Queue, Work
from torch_loom.compiler.target import Target
from torch_loom.errors import PlacementError

# A buffer between two ops holds two results: one is written while the other is read.
PAIR = 2
ALIGNMENT_BYTES = 32


def depths(epoch: Epoch, edges: Iterable[Edge]) -> dict[str, int]:
    """Return how many ops of the epoch stand before each on its longest way."""
    names = {each.work.name for each in epoch.placed}
    before: dict[str, list[str]] = {name: [] for name in names}
    for edge in edges:
        if edge.producer in names and edge.consumer in names:
            before[edge.consumer].append(edge.producer)
    found: dict[str, int] = {}
    for placed in epoch.placed:  # in the order of the graph
        name = placed.work.name
        found[name] = max((found[each] + 1 for each in before[name]), default=0)
    return found


def plan_queues(
    plan: Plan,
    target: Target,
    options: Options,
    *,
    inputs: Mapping[str, tuple[int, tuple[str, ...]]],
    outputs: Mapping[str, tuple[int, str]],
    parameters: Mapping[str, tuple[int, str]],
    pinned: Mapping[str, tuple[int, int]],
    layouts: Mapping[str, str] | None = None,
) -> None:
    """Make the plan's queues, and give those in DRAM a channel and an address.

    Args:
        inputs: bytes and readers of each input.
        outputs: bytes and maker of each output.
        parameters: bytes of each op's parameters, and the op.
        pinned: chip and channel that the user has chosen, by the queue's name.
        layouts: how each input lies in its queue.

    Raises:
        PlacementError: a chip's DRAM is full; the message says what helps.
    """
    place_of = {each.work.name: (epoch, each) for epoch in plan.epochs for each in epoch.placed}
    for name, (size, readers) in inputs.items():
        chips = {place_of[reader][0].chip for reader in readers if reader in place_of} or {0}
        # Read once and passed on, or once by each of its readers.
        shared = options.enable_forked_dram_inputs or len(readers) < 2
        groups = [readers] if shared else [(reader,) for reader in readers]
        for number, group in enumerate(groups):
            suffix = f"_{number}" if number else ""
            where = "host" if options.input_queues_on_host else "dram"
            queue = Queue(name + suffix, "input", "", group, size, PAIR, where, min(chips))
            queue.layout = (layouts or {}).get(name, "")
            plan.queues.append(queue)
    for name, (size, maker) in outputs.items():
        chip = place_of[maker][0].chip if maker in place_of else 0
        where = "host" if options.output_queues_on_host else "dram"
        plan.queues.append(Queue(name, "output", maker, (), size, PAIR, where, chip))
    for name, (size, reader) in parameters.items():
        chip = place_of[reader][0].chip if reader in place_of else 0
        plan.queues.append(Queue(name, "parameter", "", (reader,), size, 1, "dram", chip))
    _between_ops(plan, target, place_of)
    if options.backend_opt_level >= 2:
        _share(plan)
    _allocate(plan, target, options, pinned, place_of)


def _between_ops(plan: Plan, target: Target, place_of: Mapping[str, tuple[Epoch, object]]) -> None:
    depth = {epoch.index: depths(epoch, plan.edges) for epoch in plan.epochs}
    later: dict[str, list[Edge]] = {}
    for edge in plan.edges:
        if edge.producer not in place_of or edge.consumer not in place_of:
            continue
        (epoch, _), (other, _) = place_of[edge.producer], place_of[edge.consumer]
        if epoch.index != other.index:
            later.setdefault(edge.producer, []).append(edge)
            continue
        steps = depth[epoch.index]
        # While the long branch of a fork fills, the short branch makes as many results as it has steps less.
        entries = PAIR + steps[edge.consumer] - steps[edge.producer] - 1
        name = f"{edge.producer}_to_{edge.consumer}"
        consumer = next(each for each in epoch.placed if each.work.name == edge.consumer)
        cores = consumer.grid[0] * consumer.grid[1]
        extra = -(-(entries - PAIR) * edge.bytes // (cores * consumer.t))
        if extra and consumer.sram_bytes + extra > target.sram_bytes:
            queue = Queue(
                name, "fork", edge.producer, (edge.consumer,), edge.bytes, entries, "dram", epoch.chip
            )
        else:
            consumer.sram_bytes += extra
            queue = Queue(
                name, "buffer", edge.producer, (edge.consumer,), edge.bytes, entries, "sram", epoch.chip
            )
        plan.queues.append(queue)
    for producer, edges in later.items():
        epoch, _ = place_of[producer]
        readers = tuple(edge.consumer for edge in edges)
        size = max(edge.bytes for edge in edges)
        plan.queues.append(
            Queue(f"e2e_{producer}", "epoch", producer, readers, size, PAIR, "dram", epoch.chip)
        )


def memory_breaks(works: Sequence[Work], target: Target) -> list[str]:
    """Return the ops that begin another chip, so that chips hold even shares of the parameters."""
    total = sum(work.parameter_bytes for work in works)
    if target.num_chips == 1 or total == 0:
        return []
    # The least share that suffices: it begins at an equal one, and grows by what one op has.
    share, step = total / target.num_chips, max(work.parameter_bytes for work in works) / 16
    while len(found := _begun(works, share)) >= target.num_chips:
        share += step
    return found


def _begun(works: Sequence[Work], share: float) -> list[str]:
    """Return the ops whose parameters, with those before them, are more than a share."""
    found: list[str] = []
    held = 0
    for work in works:
        if held and held + work.parameter_bytes > share:
            found.append(work.name)
            held = 0
        held += work.parameter_bytes
    return found


def _share(plan: Plan) -> None:
    """Give queues that the next epoch of the same chip reads one entry: reads and writes never overlap."""
    index = {each.work.name: epoch.index for epoch in plan.epochs for each in epoch.placed}
    chip = {each.work.name: epoch.chip for epoch in plan.epochs for each in epoch.placed}
    for queue in plan.queues:
        if queue.kind == "epoch" and all(
            index[reader] == index[queue.producer] + 1 and chip[reader] == queue.chip
            for reader in queue.consumers
        ):
            queue.entries = 1


def _allocate(
    plan: Plan,
    target: Target,
    options: Options,
    pinned: Mapping[str, tuple[int, int]],
    place_of: Mapping[str, tuple[Epoch, object]],
) -> None:
    used = [[0] * target.channels for _ in range(target.num_chips)]
    turn = [0] * target.num_chips
    for queue in plan.queues:
        if queue.place != "dram":
            continue
        size = -(-queue.bytes * queue.entries // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        chip = queue.chip
        if queue.name in pinned:
            chip, channel = pinned[queue.name]
            if not (0 <= chip < target.num_chips and 0 <= channel < target.channels):
                raise PlacementError(
                    f"{queue.name}: override_dram_queue_placement asks for chip {chip}, channel {channel}, "
                    f"and there are {target.num_chips} chips of {target.channels} channels"
                )
        else:
            channel = _channel(queue, used[chip], turn, target, options, place_of)
        if used[chip][channel] + size > target.channel_bytes:
            # The chosen channel is full, another may not be.
            channel = min(range(target.channels), key=lambda each: used[chip][each])
        if used[chip][channel] + size > target.channel_bytes:
            raise PlacementError(
                f"{queue.name} ({queue.kind} of {queue.producer or ', '.join(queue.consumers)}) needs "
                f"{size:,} bytes of DRAM, and no channel of chip {chip} has more than "
                f"{target.channel_bytes - used[chip][channel]:,} of {target.channel_bytes:,} left. Use more "
                "chips (device_config), other breaks where set_chip_break decides them, a narrower "
                "default_df_override, or host queues (input_queues_on_host, output_queues_on_host)"
            )
        queue.chip, queue.channel, queue.address = chip, channel, used[chip][channel]
        used[chip][channel] += size


def _channel(
    queue: Queue,
    used: list[int],
    turn: list[int],
    target: Target,
    options: Options,
    place_of: Mapping[str, tuple[Epoch, object]],
) -> int:
    how = options.dram_placement_algorithm
    channels = target.channels
    if how == "GREATEST_CAPACITY":
        return min(range(channels), key=lambda each: (used[each], each))
    if how == "CLOSEST":
        name = queue.producer or queue.consumers[0]
        placed = place_of[name][1] if name in place_of else None
        column = getattr(placed, "column", 0)
        return min(channels - 1, column * channels // max(target.columns, 1))
    number = turn[queue.chip]
    turn[queue.chip] += 1
    if how == "ROUND_ROBIN_FLIP_FLOP":
        # There and back again, so that neighbours in time are neighbours in place.
        step = number % (2 * channels)
        return step if step < channels else 2 * channels - 1 - step
    return number % channels
