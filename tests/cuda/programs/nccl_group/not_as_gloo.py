import copy
import sys

import torch
import torch.distributed as dist

from tests.raising import raises

rank, file = int(sys.argv[1]), sys.argv[2]
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)
dist.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=2, device_id=device)


def full(*shape):
    return torch.full(shape, float(rank), device=device)


stacked = full(2, 3)
dist.all_gather_into_tensor(stacked, full(3))
assert stacked.tolist() == [[0] * 3, [1] * 3]
# Parts of a split, parameters and inference tensors: autograd would refuse to have them written in place.
whole = full(4, 1).requires_grad_() + 0
dist.all_gather_into_tensor(whole, full(2, 1) + 1)
assert whole.tolist() == [[1], [1], [2], [2]]
halves = list((full(4).requires_grad_() + 0).chunk(2))
dist.all_gather(halves, full(2))
assert [half.tolist() for half in halves] == [[0, 0], [1, 1]]
parameter = torch.nn.Parameter(full(2))
dist.all_reduce(parameter)
assert parameter.tolist() == [1, 1]
assert parameter.is_leaf
with torch.inference_mode():
    inferred = full(2)
dist.all_reduce(inferred)
assert inferred.tolist() == [1, 1]
uneven = [torch.empty(n + 1, device=device) for n in range(2)]
dist.all_gather(uneven, full(rank + 1))
assert [one.tolist() for one in uneven] == [[0], [1, 1]]
flat = full(2)
dist.reduce_scatter_tensor(flat, full(2, 2))
assert flat.tolist() == [1, 1]
for wrong, error in (
    (lambda: dist.all_gather_into_tensor(full(5), full(2)), ValueError),
    (lambda: dist.reduce_scatter_tensor(full(3), full(4)), ValueError),
    (lambda: dist.all_to_all_single(full(3), full(3)), RuntimeError),
):
    try:
        wrong()
    except error as raised:
        assert "(5,)" in str(raised) or "(3,)" in str(raised), raised
    else:
        raise AssertionError("no error")
for is_async in (False, True):
    with dist._coalescing_manager(device=device, async_ops=is_async) as together:
        first, second = full(2), full(3)
        dist.all_reduce(first)
        dist.all_reduce(second)
    if is_async:
        together.wait()
    assert first.tolist() == [1] * 2 and second.tolist() == [1] * 3
gathered = [full(2), full(4)]
with dist._coalescing_manager(device=device):
    dist.all_gather_into_tensor(gathered[0], full(1))
    dist.all_gather_into_tensor(gathered[1], full(2))
assert [one.tolist() for one in gathered] == [[0, 1], [0, 0, 1, 1]]
received = full(2)
with dist._coalescing_manager(device=device):
    dist.isend(full(2), 1 - rank)
    dist.irecv(received, 1 - rank)
assert received.tolist() == [1 - rank] * 2
sparse = torch.eye(2, device=device).to_sparse()
raises("RuntimeError", "sparse", lambda: dist.all_reduce(sparse))
# split_group does this.
options = dist.group.WORLD._get_backend(device).options
assert copy.deepcopy(options)._timeout == options._timeout
dist.destroy_process_group()
print("done")
