import torch

import torch_loom  # noqa: F401

rbln = torch.rbln
x = torch.ones(8, dtype=torch.float16, device="rbln")
calls: list[int] = []
function = torch.compile(lambda x: (x + 1) * 2, backend="rbln", dynamic=False)


def step() -> None:
    calls.append(1)
    function(x)
    x.exp()


cold, warm = rbln.explain_steady(step, warmup=3, return_cold=True)
assert len(calls) == 5
assert (cold.verdict()["recompiles"], warm.verdict()["recompiles"]) == (1, 0)
assert cold.dump()["recompile_by_op"] == {"graph 0/0": 1}
assert warm.verdict()["cpu_fallbacks"] == 1

shapes = iter(range(9, 20))
difference = rbln.explain_steady(
    lambda: function(x.new_ones(next(shapes))), warmup=0, as_diff=True, with_stack=True
)
assert difference.dump()["signals"]["recompile"] == {"a": 1, "b": 1}
assert "recompile" in difference.dump()["persists"]
assert type(rbln.explain_steady(step)) is rbln.RBLNExplain
