import torch

import torch_loom

torch_loom._autoload()


def planted(x):
    x.exp()
    return x.float() * 2


def repaired(x):
    return x.sigmoid() * 2


x = torch.zeros(4, dtype=torch.float16, device="loom")
report = torch.loom.explain(planted, x)
found = [(f.kind, f.op, f.count, f.stack[-1].lineno, f.stack[-1].name) for f in report.findings]
first = planted.__code__.co_firstlineno
assert found == [
    ("fallback_op", "aten::exp", 1, first + 1, "planted"),
    ("fallback_dtype", "aten::mul", 1, first + 2, "planted"),
], found
assert report.verdict == "2 findings: 1 op that is not native, 1 op in a dtype that is not native"
assert "float32" in report.findings[1].detail
report = torch.loom.explain(repaired, x)
assert report.verdict == "clean: 2 ops, nothing that was not asked for", str(report)

# Lazy memory: what was never on the device makes no round trip, and nobody waits for it.
report = torch.loom.explain(lambda: torch.zeros(4, device="loom", dtype=torch.float16).cpu())
assert report.findings == [], str(report)
