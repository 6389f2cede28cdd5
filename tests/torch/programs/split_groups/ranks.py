import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

name, backend, store = sys.argv[1:]


def work(rank):
    device = torch.device(name, rank)
    torch.accelerator.set_device_index(rank)
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=4,
        device_id=device,
        timeout=timedelta(seconds=30),
    )

    def total(group, where=device if name == "cuda" else "cpu"):
        x = torch.full((1,), float(rank), device=where)
        dist.all_reduce(x, group=group)
        return x.item()

    mesh = init_device_mesh(name, (2, 2), mesh_dim_names=("dp", "tp"))
    sums = [total(mesh[dim].get_group()) for dim in ("dp", "tp")]
    assert sums == [2 * (rank % 2) + 2, 4 * (rank // 2) + 1], sums
    if "cpu" in backend:
        assert total(mesh["tp"].get_group(), "cpu") == 4 * (rank // 2) + 1
    # Only some ranks get a group, which are then in more groups than the others.
    assert (dist.split_group(split_ranks=[[0, 1]]) is None) == (rank > 1)
    crossed = dist.split_group(split_ranks=[[0, 2], [1, 3]])
    assert total(crossed) == [2, 4][rank % 2] and crossed.group_name != mesh["dp"].get_group().group_name
    again = dist.split_group(split_ranks=[[0, 2], [1, 3]])
    assert total(again) == [2, 4][rank % 2]
    # Of a part.
    assert total(dist.split_group(mesh["tp"].get_group(), [[0], [1]])) == rank
    dist.barrier()


children = []
for rank in range(4):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(rank)
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
