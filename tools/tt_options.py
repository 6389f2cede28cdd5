"""The page of tt-xla's options and names."""

from __future__ import annotations

from tools.blocks import markdown_table
from torch_loom.compat.tt.options import DECLINED_NAMES, DECLINED_OPTIONS, EFFECTS, defaults

FILE = "docs/tt.md"
_INTRODUCTION = """# Programs for tt-xla

Tenstorrent's front end is tt-xla. After `import torch_loom.compat.tt` its `import tt_torch` works,
and `torch.compile(model, backend="tt", options={…})` computes in the formats of a Tensix chip:

```python
import torch
import torch_loom.compat.tt
import tt_torch

layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
model = torch.nn.Sequential(*layers).to("loom").eval()
tt_torch.apply_weight_dtype_overrides(model, {"2.weight": "bfp_bf8"})
compiled = torch.compile(model, backend="tt", options={"math_fidelity": "hifi2", "enable_trace": True})
with torch.no_grad():
    assert compiled(torch.rand(4, 64, device="loom")).shape == (4, 8)
```

`apply_weight_dtype_overrides` takes names of weights, patterns of them (`"layers.*.weight"`) and `"default"`,
each with `bfp_bf8`, `bfp_bf4` or `bf16`, one of these for all, or the path of a JSON file. As in tt-mlir,
weights of matrix products alone have formats: those of embeddings, convolutions and norms stay. A weight that
an embedding and a product share has its format in the product.

The device is `loom`: leave out `import torch_xla` and write `"loom"` for `xm.xla_device()`.
`tt_torch.codegen_py(model, x)` writes the graphs of a model into `codegen_result`, or `export_path=`, as
Python and as JSON. A file defines `forward`, whose arguments are the model's weights and inputs by the names
that it gives them; weights are not written.
`TORCH_LOOM_CHIP` says which chip it is:
`wormhole_b0` is that of an n150 and `blackhole` that of a p150. `TORCH_LOOM_DEVICES` says how many: 2 for an
n300, 32 for a
galaxy. Values are those of the formats on any chip, and for a model on the CPU. The chip decides times:
events and profiles say what ops take one after the other, in PyTorch's dtypes. What formats,
fidelities and fused kernels make of a placed model is what [`loom compile`](compiler.md) forecasts.
Written by `python -m tools.docs`.
"""


def page() -> str:
    """Returns the page."""
    values = defaults()
    rows = [[f"`{name}`", f"`{values[name]!r}`", effect] for name, (_, effect) in EFFECTS.items()]
    declined = [[f"`{name}`", reason] for name, reason in {**DECLINED_OPTIONS, **DECLINED_NAMES}.items()]
    return (
        f"{_INTRODUCTION}\n## Options\n\nOther names raise, with the nearest. `mode=` takes PyTorch's "
        "names, and none changes anything.\n\n"
        f"{markdown_table(['option', 'default', 'effect'], rows)}\n\n## Declined\n\nSetting such an option, "
        f"or using such a name of `tt_torch`, raises with the reason.\n\n"
        f"{markdown_table(['option or name', 'reason'], declined)}\n"
    )
