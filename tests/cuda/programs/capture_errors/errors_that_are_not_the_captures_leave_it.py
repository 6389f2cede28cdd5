import warnings

import torch

from tests.cuda.programs.capture_errors.head import PREVIOUS, captured, first_line

x = torch.ones(3, device="cuda")


def fail():
    x.add_(1)
    raise KeyError("mine")


graph, error = captured(fail)
assert type(error) is KeyError and not torch.cuda.is_current_stream_capturing()
graph.replay()  # what was captured before
assert x.tolist() == [2, 2, 2]

_, error = captured(lambda: torch.zeros(2**40, device="cuda"))
assert type(error) is torch.OutOfMemoryError

own = torch.Generator("cuda")
draw = lambda: torch.rand(3, device="cuda", generator=own)
_, error = captured(draw)
assert type(error) is RuntimeError
assert "Attempt to increase offset for a CUDA generator not in capture mode." in str(error)
graph = torch.cuda.CUDAGraph()
graph.register_generator_state(own)
with torch.cuda.graph(graph):
    drawn = draw()
graph.replay()
first = drawn.tolist()
graph.replay()
assert drawn.tolist() != first

_, error = captured(lambda: torch.cuda.manual_seed(3))
assert type(error) is RuntimeError and "during stream capture" in str(error)
_, error = captured(lambda: torch.cuda.default_stream().wait_stream(torch.cuda.current_stream()))
assert first_line(error) == PREVIOUS
assert first_line(error.__context__) == (
    "CUDA error: operation would make the legacy stream depend on a capturing blocking stream"
)
with torch.cuda.device(1), warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = x + 1
    graph.replay()
    torch.cuda.synchronize()
assert ["The CUDA Graph is empty" in str(one.message) for one in warned] == [True]
assert z.tolist() == [3, 3, 3]
