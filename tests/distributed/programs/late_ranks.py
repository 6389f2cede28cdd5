"""In simulated time a collective begins when the latest rank is ready; prints each rank's times."""

import os

import torch
import torch.distributed as dist

from tests.distributed.programs.ranks import run

LATE_MS = 10.0


def compute(milliseconds):
    torch.loom._sleep(int(torch.loom.get_device_properties(0).clock_rate * milliseconds))


def align(x):
    dist.all_reduce(x)
    torch.loom.synchronize()


def milliseconds(action):
    start, end = (torch.loom.Event(enable_timing=True) for _ in range(2))
    start.record()
    action()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def milliseconds_of(operation, x, late):
    """Return how long an operation takes for which one rank is late."""
    align(x)
    if dist.get_rank() == late:
        compute(LATE_MS)
    return milliseconds(operation)


def ends_of(works, begin):
    ends = []
    for work in works:
        with torch.loom.stream(torch.loom.Stream()):
            work.wait()
            ends.append(torch.loom.Event(enable_timing=True))
            ends[-1].record()
    torch.loom.synchronize()
    return [begin.elapsed_time(end) for end in ends]


def check(rank):
    x, y = torch.ones(1024, device="loom"), torch.ones(1024, device="loom")
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    for group in groups:
        dist.all_reduce(y, group=group)
    found = {}

    def message():
        if rank == 0:
            dist.recv(x, 1)
        else:
            dist.send(x, 0)

    def batch():
        operations = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]
        for request in dist.batch_isend_irecv(operations):
            request.wait()

    message()
    for name, operation in (
        ("all_reduce", lambda: dist.all_reduce(x)),
        ("broadcast", lambda: dist.broadcast(x, 0)),
        ("all_to_all", lambda: dist.all_to_all_single(y, x)),
        ("nothing", lambda: dist.all_reduce(x[:0])),
        ("barrier", dist.barrier),
        ("message", message),
        ("batch", batch),
    ):
        alone = milliseconds_of(operation, x, late=-1)
        found[name] = late = milliseconds_of(operation, x, late=1)
        assert abs(late - alone - (LATE_MS if rank == 0 else 0)) < 0.1, (name, rank, alone, late)
        assert (name == "nothing" or alone > 0) and alone < 1, (name, alone)

    # Two groups, of which one is late: the other does not wait for it. In either order, where streams
    # run beside each other.
    align(x)
    begin = torch.loom.Event(enable_timing=True)
    begin.record()
    works = {}
    for number in (0, 1) if rank == 0 and "TORCH_LOOM_LAUNCH" not in os.environ else (1, 0):
        if rank == 1 and number == 0:
            compute(LATE_MS)
        works[number] = dist.all_reduce(y, group=groups[number], async_op=True)
    late, soon = ends_of([works[0], works[1]], begin)
    assert soon < 1 and LATE_MS < late < LATE_MS + 1, (rank, soon, late)

    # What rank 0 issues behind a collective that has not begun is moved with it, time and again.
    torch.loom.synchronize()
    align(x)
    before = torch.loom.clock()
    for _ in range(3):
        if rank == 1:
            compute(LATE_MS)
        dist.all_reduce(x)
        x.mul_(0.5)
    torch.loom.synchronize()
    found["clock"] = torch.loom.clock() - before
    assert abs(1e3 * found["clock"] - 3 * LATE_MS) < 0.2, found["clock"]

    # A replay takes its time, and begins when its own rank is ready.
    large = torch.ones(1 << 20, device="loom")
    eager = milliseconds_of(lambda: dist.all_reduce(large), x, late=-1)
    graph = torch.loom.LoomGraph()
    with torch.loom.graph(graph):
        dist.all_reduce(large)
    replayed = found["replay"] = milliseconds_of(graph.replay, x, late=1)
    assert abs(replayed - eager) < 0.01 < replayed, (eager, replayed)

    everything = [None, None]
    dist.all_gather_object(everything, found)
    if rank == 0:
        print(everything)


run(2, check)
