import threading

import torch
from torch import nn

import torch_loom  # noqa: F401
from tests.raising import raises

rbln = torch.rbln
HALF = torch.float16
model = nn.Linear(4, 3).half().to("rbln:1").eval()
x = torch.ones(2, 4, dtype=HALF, device="rbln:1")
with torch.no_grad():
    wanted = model(x)
    with rbln.capture_programs() as outer:
        compiled = torch.compile(model, backend="rbln", dynamic=False)
        compiled(x)
        with rbln.capture_programs() as inner:
            compiled(x)  # nothing is built
            torch.compile(lambda x: x + 1, backend="rbln")(x)
assert (len(outer), len(inner)) == (2, 1) and outer[1] is not inner[0]
program = outer[0]
assert type(program) is rbln.CompiledProgram
assert program.name.count("/") == 1 and program.device == torch.device("rbln:1")
assert sorted((spec.shape, spec.dtype) for spec in program.input_specs) == [
    ((2, 4), HALF),
    ((3,), HALF),
    ((3, 4), HALF),
]
assert all(type(spec) is rbln.InputSpec and spec.physical_placement is None for spec in program.input_specs)
assert len({spec.name for spec in program.input_specs}) == 3
assert program.output_specs == (rbln.OutputSpec((2, 3), HALF),)
given = {(2, 4): x, (3,): model.bias.detach(), (3, 4): model.weight.detach()}
(result,) = program.runtime.run(*(given[spec.shape] for spec in program.input_specs))
assert torch.equal(result, wanted)
raises("TypeError", "takes 3 inputs, got 0", program.runtime.run)

# A size that is open: where the tensor lies, as an expression of it.
cache = torch.zeros(16, 2, 8, dtype=HALF, device="rbln")
torch._dynamo.mark_dynamic(cache, 0)
with rbln.capture_programs() as programs:
    torch.compile(lambda kv, x: kv.reshape(-1, 8) + x, backend="rbln")(cache, cache.new_ones(8))
(open_one,) = [spec for spec in programs[0].input_specs if spec.physical_placement is not None]
placement = open_one.physical_placement
assert type(placement) is rbln.PhysicalPlacement
assert open_one.shape == (16, 2, 8) and placement.dtype == "float16"
assert placement.shape[0][0] == "symbol" and placement.shape[1:] == (2, 8)
assert [type(shard) for shard in placement.shards] == [rbln.ShardPlacement] * 4
assert [(shard.node_id, shard.chiplet_id) for shard in placement.shards] == [(0, c) for c in range(4)]
assert {shard.slice_shape[1:] for shard in placement.shards} == {(2, 2)}
(output,) = programs[0].output_specs
assert output.shape == (32, 8) and output.physical_placement.shape[0] == ("prod", 2, placement.shape[0])

# A scope is its thread's.
with rbln.capture_programs() as seen:
    thread = threading.Thread(target=lambda: torch.compile(lambda x: x * 3, backend="rbln")(x))
    thread.start()
    thread.join()
assert seen == []

# A training step: the forward and the backward program.
model.train()
with rbln.capture_programs() as steps:
    torch.compile(model, backend="rbln")(x).sum().backward()
assert [one.name for one in steps] == [steps[0].name] * 2
assert model.weight.grad is not None
