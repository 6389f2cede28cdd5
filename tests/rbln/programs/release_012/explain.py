import threading

import torch

import torch_loom  # noqa: F401
from tests.raising import raises

rbln = torch.rbln
x = torch.ones(64, 64, dtype=torch.float16, device="rbln")
x += 1

with rbln.explain() as clean:
    y = x + x
assert clean.verdict()["clean"] and clean.dump()["dispatch"]["cpu_fallback"] == 0
assert clean.report().startswith("[clean]  RBLN EXPLAIN") and clean.help() == "nothing was counted"

with rbln.explain(with_stack=True) as p:
    values, _ = x.sort()
    x.float().exp()
    back = y.cpu().to("rbln")
    back + 1
assert str(p) == repr(p) == p.report()
found, verdict = p.dump(), p.verdict()
assert found["cpu_fallback_by_op"]["aten::sort"] == 1 and found["cpu_fallback_by_op"]["aten::exp"] == 1
assert found["cpu_fallback_reasons"]["op-not-native"] >= 2
assert found["hidden_host_bounce"]["by_site"]["copy_d2d_host_bounce"] == {"count": 1, "bytes": y.nbytes}
assert found["device_memory"]["peak_bytes"] >= found["device_memory"]["current_bytes"] > 0
assert found["loom"]["findings"] and found["wall_ns"] > 0
assert "explain.py:" in found["trace_by_op"]["aten::sort"]
assert not verdict["clean"] and verdict["hidden_host_bounces"] == 1 and len(verdict["reasons"]) == 2
assert [note["signal"] for note in verdict["notes"]] == [
    "host_bounce/copy_d2d_host_bounce",
    "dispatch/cpu_fallback",
]
report = p.report()
assert report.startswith("[overhead: 2 signals]") and "aten::sort" in report and "explain.py" in report
assert "dtypes" in p.help("dispatch/cpu_fallback") and "no signal 'x'" in p.help("x")

# Of memory that is not pinned: a stop in between.
with rbln.explain() as staged:
    torch.ones(8, dtype=torch.float16).to("rbln", non_blocking=True)
assert staged.dump()["hidden_host_bounce"]["by_site"]["copy_h2d_staging"] == {"count": 1, "bytes": 16}

region = rbln.RBLNExplain(trace=True)
assert type(region) is rbln.RBLNProfile and rbln.profile is rbln.explain
raises("RegionError", "not started", region.dump)
assert region.start() is region
raises("RegionError", "still open", region.report)
assert repr(region) == "<RBLNExplain, open (with_stack=True)>"
raises("RegionError", "explain.py:47: stop it first", rbln.explain().start)
failed: list[BaseException] = []


def overlap() -> None:
    try:
        rbln.explain().start()
    except RuntimeError as error:
        failed.append(error)


thread = threading.Thread(target=overlap)
thread.start()
thread.join()
assert len(failed) == 1
assert region.stop() is region and region.verdict()["clean"]
raises("RegionError", "started once", region.start)
raises("RegionError", "not open", region.stop)
raises("TypeError", "torch.loom.explain(function)", lambda: rbln.explain(lambda: None))
# One that ends by an error gives the place free.
try:
    with rbln.explain() as broken:
        raise KeyError
except KeyError:
    pass
assert broken.verdict()["clean"]

difference = p.diff(clean)
assert type(difference) is rbln.RBLNDiff
told = difference.dump()
assert told["signals"]["cpu_fallback"] == {"a": verdict["cpu_fallbacks"], "b": 0}
assert {"host_bounce", "cpu_fallback"} <= set(told["gone"]) and told["persists"] == []
assert "nothing of A is in B" in difference.report()
other = rbln.RBLNDiff(clean, p).dump()
assert "cpu_fallback" in other["appeared"] and other["signals"]["host_bounce"]["b_bytes"] == y.nbytes
assert {"aten::sort", "aten::exp"} <= {one["op"] for one in other["persists_by_op"]}
assert all("explain.py" in one["at"] for one in other["persists_by_op"])
assert ">> persists" in str(rbln.RBLNDiff(clean, p))

# In a compiled graph, too, each call that goes to the host says so: such a graph is not replayed.
net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU()).half().to("rbln").eval()
compiled = torch.compile(net, backend="rbln")
given = torch.rand(4, 16).half().to("rbln")
for _ in range(4):
    with rbln.explain() as calls, torch.no_grad():
        compiled(given)
    assert "aten::gelu" in calls.report(), calls.report()
