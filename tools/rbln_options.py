"""The page of programs for torch-rbln, with the options of its backend."""

from __future__ import annotations

from tools.blocks import markdown_table
from torch_loom.compiler.backend import VENDOR_OPTIONS

FILE = "docs/rbln.md"
_INTRODUCTION = """# Programs for torch-rbln

Programs for torch-rbln run unchanged: the device is `"rbln"`, an ATOM of 15.7 GiB, its module is
`torch.rbln`, and `import torch_rbln` works. Checkpoints load under either name.
[examples/rbln](../examples/rbln) has the vendor's tutorials: a breakpoint in a module, the log of
fallbacks, hunting a NaN, generating text with a Llama.

```text
$ export TORCH_LOOM_DEVICE_NAME=rbln
$ python examples/rbln/basic_add.py
tensor([[1.5000, 2.5000],
        [3.5000, 4.5000]], device='rbln:0', dtype=torch.float16)
…
$ TORCH_LOOM_DEVICES=6 RBLN_NPUS_PER_DEVICE=4 python -c "import torch; torch.rbln.device_summary()"
[RBLN] Device Topology Initialized:
+----------------+------------------+---------------------+
| Logical Device | Physical NPU IDs | Status              |
+----------------+------------------+---------------------+
| rbln:0         | [ 0, 1, 2, 3 ]   | Active (Aggregated) |
| -              | [ 4, 5 ]         | Unused              |
+----------------+------------------+---------------------+
[Warning] 2 physical NPU(s) belong to no device.
```

`TORCH_LOOM_CHIP` chooses the card: `atom` (RBLN-CA12), `atom_max` (RBLN-CA25), `rebel` (RBLN-CR13). The
interface is that of torch-rbln 0.12, name by name in [api_parity.md](api_parity.md). Where it gives a
name another meaning than `torch.cuda` does, ours is in `torch.loom`: the times of events, `explain` with
its findings, the long table of `memory_summary`.

```py
with torch.rbln.explain(with_stack=True) as p:  # what a region cost that it did not ask for
    model(x)
print(p.report())
with torch.rbln.capture_programs() as programs:  # what torch.compile builds
    torch.compile(model, backend="rbln")(x)
print(programs[0].input_specs)
```

- `capture_programs` lists what is compiled while it is open: nothing for a model that was compiled before.
- A new tensor takes memory of the device when it is first used there: what does not fit raises then.
- Memory by chiplet (`memory_stats_per_chiplet` and its like): a device has one pool, which counts as
  spread evenly over its chiplets.
- `RBLN_DUMMY_DEVICE=1` makes tensors, copies and builds; what would execute raises. With
  `options={"mode": ["compile_only"], "cache_dir": …}` a program is written as JSON, and nothing is run.
  `repr()` of a tensor computes: print `tensor.cpu()`.
- `torch.rbln.offload()` keeps the host side of tensors that wait for the device in files below
  `RBLN_OFFLOAD_DIR`.
- `init_process_group("rbln-ccl")` makes a group with the collectives of the vendor's
  ([distributed.md](distributed.md)).
"""


def page() -> str:
    """Returns the page."""
    rows = [[f"`{name}`", effect] for name, effect in VENDOR_OPTIONS.items()]
    return (
        f"{_INTRODUCTION}\n## Options of its backend\n\n"
        '`torch.compile(model, backend="rbln", options={…})` takes these, and the options of '
        "[compiler_options.md](compiler_options.md). Other names raise, with the nearest. Written by "
        "`python -m tools.docs`.\n\n"
        f"{markdown_table(['option', 'effect'], rows)}\n"
    )
