import torch

import torch_loom
from tests.raising import raises

rbln = torch.rbln
stream = rbln.Stream(device=1, priority=-1)
assert (stream.priority, rbln.Stream.priority_range(), stream.device) == (0, (0, 0), torch.device("rbln:1"))
assert repr(stream) == f"torch.rbln.Stream(device=rbln:1, stream_id={stream.stream_id})"
assert type(rbln.current_stream()) is type(rbln.default_stream(1)) is rbln.Stream
with rbln.stream(stream):
    assert rbln.current_stream() == stream
    x = torch.ones(4, dtype=torch.float16, device="rbln:1") + 1
first, last = rbln.Event(enable_timing=True, interprocess=True), stream.record_event()
assert type(last) is rbln.Event
first.record()
rbln.synchronize(1)
assert last.query()
raises("NotApplicableError", "RBLN does not support Event.elapsed_time", lambda: first.elapsed_time(last))
assert issubclass(torch_loom.errors.NotApplicableError, RuntimeError)
# The simulated time is under our own name.
begin, end = (torch.loom.Event(enable_timing=True) for _ in range(2))
begin.record(stream)
with rbln.stream(stream):
    x @ torch.ones(4, 4, dtype=torch.float16, device="rbln:1")
end.record(stream)
rbln.synchronize(1)
assert begin.elapsed_time(end) > 0
