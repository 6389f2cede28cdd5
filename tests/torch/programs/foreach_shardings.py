# Ops over lists are sharded as PyTorch shards them, alike tensors at once.
import warnings

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, _sharding_prop
from torch.distributed.tensor.placement_types import _StridedShard

warnings.filterwarnings("ignore")
names = ("_expand_single_dim_strategy_to_mesh", "_propagate_use_strided_shard_flag")
found = []
original = _sharding_prop.ShardingPropagator.propagate_op_sharding_non_cached


def both(propagator, schema):
    patched = original(propagator, schema)
    kept = {name: getattr(_sharding_prop, name) for name in names}
    for name, function in kept.items():
        setattr(_sharding_prop, name, function.__wrapped__)
    try:
        plain = original(propagator, schema)
    finally:
        for name, function in kept.items():
            setattr(_sharding_prop, name, function)
    assert patched.output_spec == plain.output_spec, schema
    assert patched.needs_redistribute == plain.needs_redistribute, schema
    assert str(patched.redistribute_schema) == str(plain.redistribute_schema), schema
    found.append(str(schema.op))
    return patched


with torch.loom.dry_run(chip="h100", devices=1) as plan:
    plan.world_size = 8
    assert all(hasattr(getattr(_sharding_prop, name), "__wrapped__") for name in names)
    _sharding_prop.ShardingPropagator.propagate_op_sharding_non_cached = both
    mesh = init_device_mesh("loom", (2, 4))
    placements = [
        [Shard(0), Shard(0)],
        [Replicate(), Shard(1)],
        [_StridedShard(0, split_factor=4), Shard(0)],
        [Shard(0), Shard(0)],
        [Partial(), Replicate()],
    ]
    sizes = [(16, 8), (16, 8), (32, 8), (16, 8), (64, 16), (16, 8)]

    def tensors(count=12):
        return [
            DTensor.from_local(
                torch.ones(sizes[i % len(sizes)], device="loom"), mesh, placements[i % len(placements)]
            )
            for i in range(count)
        ]

    alike = [
        DTensor.from_local(torch.ones(4, 4, device="loom"), mesh, [Shard(0), Shard(1)]) for _ in range(9)
    ]
    with torch.no_grad():
        for x, y in ((alike, alike), (tensors(), tensors())):
            torch._foreach_mul_(alike, 2.0)
            torch._foreach_add(x, y)
            torch._foreach_sqrt(x)
            torch._foreach_addcdiv_(alike, alike, alike, [float(i) for i in range(9)])
            torch.stack(alike)
    for fused in (False, True):
        parameters = [torch.nn.Parameter(x) for x in (*tensors(4), *alike)]
        optimizer = torch.optim.AdamW(parameters, foreach=not fused, fused=fused)
        for x in parameters:
            x.grad = torch.ones_like(x)
        optimizer.step()
assert sum("foreach" in name for name in found) > 8, found
assert any("fused" in name for name in found), found
