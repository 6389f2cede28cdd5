import ast
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import torch_loom  # noqa: F401
from tests.raising import raises

HALF = torch.float16


def rank_main(rank: int, size: int, path: str) -> None:
    torch.rbln.set_device(rank)
    dist.init_process_group("rbln-ccl", rank=rank, world_size=size, store=dist.FileStore(path, size))
    assert dist.get_backend() == "rbln-ccl"
    own = torch.full((4,), rank + 1.0, dtype=HALF, device="rbln")
    assert own.device.index == rank

    total = own.clone()
    dist.all_reduce(total)
    assert total.tolist() == [3.0] * 4 and total.dtype == HALF
    parts = [torch.empty_like(own) for _ in range(size)]
    dist.all_gather(parts, own)
    assert [part[0].item() for part in parts] == [1.0, 2.0]
    flat = torch.empty(8, dtype=HALF, device="rbln")
    dist.all_gather_into_tensor(flat, own)
    assert flat.tolist() == [1.0] * 4 + [2.0] * 4
    mine = torch.empty(2, dtype=HALF, device="rbln")
    dist.reduce_scatter_tensor(mine, own)
    assert mine.tolist() == [3.0] * 2
    dist.reduce_scatter(mine, [own[:2], own[2:]])
    assert mine.tolist() == [3.0] * 2
    same = own.clone()
    dist.broadcast(same, src=1)
    assert same.tolist() == [2.0] * 4
    scattered = torch.empty(2, dtype=HALF, device="rbln")
    dist.scatter(scattered, [own[:2], own[2:] + 4] if rank == 0 else None, src=0)
    assert scattered.tolist() == [[1.0] * 2, [5.0] * 2][rank]
    if rank == 0:
        dist.send(own + 6, dst=1)
    else:
        got = torch.empty(4, dtype=HALF, device="rbln")
        dist.recv(got, src=0)
        assert got.tolist() == [7.0] * 4
    host = torch.ones(3)
    dist.all_reduce(host)
    assert host.tolist() == [2.0] * 3
    dist.barrier()

    # Several under way: in the order in which they were begun, after what was issued before.
    stream = torch.rbln.Stream()
    with torch.rbln.stream(stream):
        sums = [torch.ones(8, dtype=HALF, device="rbln") * (i + 1) for i in range(6)]
        works = [dist.all_reduce(one, async_op=True) for one in sums]
    is_async = os.environ.get("TORCH_RBLN_C10D_ASYNC") == "1"
    if not is_async:
        assert all(work.is_completed() for work in works)
    for work in works:
        assert work.wait()
    assert [one[0].item() for one in sums] == [2.0 * (i + 1) for i in range(6)]
    done = dist.all_reduce(sums[0], async_op=True)
    done.get_future().wait()
    assert sums[0][0].item() == 4.0
    raises("RuntimeError", "", lambda: dist.reduce(own, dst=0))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False).to("rbln"))
    with torch.no_grad():
        model.module.weight.fill_(1)
    model(torch.full((1, 2), rank + 1.0, device="rbln")).sum().backward()
    assert model.module.weight.grad.tolist() == [[1.5, 1.5]]
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(rank_main, (2, ast.literal_eval(sys.argv[1])), nprocs=2)
