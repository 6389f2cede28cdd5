"""Each collective on 2 or 3 ranks, beside what it must give."""

import ast
import sys

import torch
import torch.distributed as dist

from tests.distributed.programs.ranks import can_be_other_machines, run
from tests.raising import raises

name, size, *machines = ast.literal_eval(sys.argv[1])
# More than one round each.
LONG = (1 << 18) + 5


def check(rank):
    def full(*shape, value=rank + 1.0, dtype=None):
        return torch.full(shape, value, device=name, dtype=dtype)

    total = sum(range(1, size + 1))
    assert dist.group.WORLD._get_backend(torch.device(name)).name() == ("nccl" if name == "cuda" else "loom")
    for length in (0, 4, LONG):
        for op, want in (
            (dist.ReduceOp.SUM, total),
            (dist.ReduceOp.AVG, total / size),
            (dist.ReduceOp.MAX, size),
            (dist.ReduceOp.MIN, 1),
            (dist.ReduceOp.PRODUCT, [0, 1, 2, 6][size]),
        ):
            x = full(length)
            dist.all_reduce(x, op)
            assert torch.equal(x, full(length, value=float(want))), (op, x)
        gathered = torch.empty(size * length, device=name)
        dist.all_gather_into_tensor(gathered, full(length))
        assert torch.equal(gathered.cpu(), torch.arange(1.0, size + 1).repeat_interleave(length))
        part = full(length)
        dist.reduce_scatter_tensor(part, torch.arange(1.0, size + 1, device=name).repeat_interleave(length))
        assert torch.equal(part, full(length) * size)
        received = torch.empty(size * length, device=name)
        sent = (torch.arange(size, device=name) + 10.0 * rank).repeat_interleave(length)
        dist.all_to_all_single(received, sent)
        assert torch.equal(received.cpu(), (torch.arange(size) * 10.0 + rank).repeat_interleave(length))
        x = full(length)
        dist.broadcast(x, 1)
        assert torch.equal(x, full(length, value=2.0))
    flags = torch.tensor([rank == 0, rank == 1, True, False], device=name)
    dist.all_reduce(flags)
    assert flags.tolist() == [True, True, True, False]
    for dtype in (
        torch.bfloat16,
        torch.float16,
        torch.float64,
        torch.int64,
        torch.uint8,
        torch.float8_e4m3fn,
    ):
        x = full(5).to(dtype)
        dist.all_reduce(x)
        assert x.float().tolist() == [total] * 5, x
    z = torch.full((2,), 1 + 2j, device=name)
    dist.all_reduce(z)
    assert z.tolist() == [size * (1 + 2j)] * 2
    bits = torch.tensor([1 << rank], device=name)
    dist.all_reduce(bits, dist.ReduceOp.BOR)
    assert bits.item() == (1 << size) - 1
    x = full(2)
    dist.all_reduce(x, dist._make_nccl_premul_sum(2.0))
    assert x.tolist() == [2.0 * total] * 2
    uneven = [torch.empty(i + 1, device=name) for i in range(size)]
    dist.all_gather(uneven, full(rank + 1))
    assert [one.tolist() for one in uneven] == [[i + 1.0] * (i + 1) for i in range(size)]
    dist.all_to_all(uneven, [full(rank + 1) for _ in range(size)])
    assert [one.tolist() for one in uneven] == [[i + 1.0] * (i + 1) for i in range(size)]
    columns = torch.zeros(2, size, device=name)
    dist.all_gather([columns[:, i] for i in range(size)], full(2))
    assert columns.tolist() == [list(range(1, size + 1))] * 2
    x = full(3)
    dist.reduce(x, 1)
    assert x.tolist() == [total if rank == 1 else rank + 1.0] * 3
    found = [torch.empty(2, device=name) for _ in range(size)]
    dist.gather(full(2), found if rank == 0 else None)
    assert rank != 0 or [one[0].item() for one in found] == list(range(1, size + 1))
    dist.scatter(x, [full(3, value=float(i)) for i in range(size)] if rank == 0 else None)
    assert x.tolist() == [float(rank)] * 3
    after, before = (rank + 1) % size, (rank - 1) % size
    long = torch.empty(LONG, device=name)
    both = [dist.P2POp(dist.isend, full(LONG), after), dist.P2POp(dist.irecv, long, before)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    assert torch.equal(long, full(LONG, value=before + 1.0))
    works = [dist.isend(full(4), after), dist.irecv(x := torch.empty(4, device=name), before)]
    torch.accelerator.synchronize()
    assert x.tolist() == [before + 1.0] * 4 and all(work.is_completed() for work in works)
    # A message between two ranks is nothing that the others count.
    if rank == 0:
        dist.send(full(4), 1)
    elif rank == 1:
        dist.recv(x, 0)
        assert x.tolist() == [1.0] * 4
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": i} for i in range(size)]
    work = dist.all_reduce(x := full(2), async_op=True)
    assert work.result()[0].device == work.get_future().value()[0].device == x.device
    assert work.wait() and x.tolist() == [total] * 2
    raises("ValueError", "Tensors must be contiguous", lambda: dist.all_reduce(full(4, 4)[:, ::2]))
    raises("RuntimeError", "No backend type associated with device type cpu", lambda: on_host())
    dist.barrier()
    dist.destroy_process_group()


def on_host():
    dist.all_reduce(torch.ones(1))


backend = "nccl" if name == "cuda" else "loom"
if not machines:
    run(size, check, backend)
elif can_be_other_machines():
    run(size, check, backend, machine_of=lambda rank: machines[rank])
else:
    print("no right to make namespaces")
