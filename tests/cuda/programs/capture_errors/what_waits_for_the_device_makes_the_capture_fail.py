import torch

from tests.cuda.programs.capture_errors.head import NOT_PERMITTED, PREVIOUS, captured, first_line

x = torch.rand(4, 4, device="cuda") + torch.eye(4, device="cuda")
mask, numbers = x > 0.5, torch.arange(4, device="cuda")
stream = torch.cuda.Stream()
event = torch.cuda.Event()
calls = {
    "item": lambda: x.sum().item(),
    "tolist": lambda: x.tolist(),
    "bool": lambda: bool(mask.any()),
    "cpu": lambda: x.cpu(),
    "cuda": lambda: torch.ones(3).cuda(),
    "tensor": lambda: torch.tensor([0], device="cuda"),
    "equal": lambda: torch.equal(x, x + 0),
    "nonzero": lambda: x.nonzero(),
    "where": lambda: torch.where(mask),
    "masked_select": lambda: x.masked_select(mask),
    "index": lambda: x[mask],
    "indices of the host": lambda: x[torch.tensor([0, 1])],
    "pinned indices": lambda: x[torch.tensor([0, 1]).pin_memory()],
    "a list of indices": lambda: x[[0, 1]],
    "write by indices of the host": lambda: x.index_put_((torch.tensor([0, 1]),), x[:2].clone()),
    "a value by indices of the host": lambda: x.__setitem__(torch.tensor([0, 1]), 0.0),
    "a histogram of all": lambda: x.histc(4),
    "unique": lambda: x.unique(),
    "bincount": lambda: numbers.bincount(),
    "repeat_interleave": lambda: x.repeat_interleave(numbers, 0),
    "one_hot": lambda: torch.nn.functional.one_hot(numbers),
    "inverse": lambda: torch.linalg.inv(x),
    "repr": lambda: repr(x),
    "synchronize": torch.cuda.synchronize,
    "stream.synchronize": lambda: torch.cuda.current_stream().synchronize(),
    "stream.query": lambda: torch.cuda.current_stream().query(),
    "another stream": stream.synchronize,
    "another event": event.synchronize,
}
event.record()
for name, call in calls.items():
    graph, error = captured(call)
    first = error.__context__
    assert type(error) is type(first) is torch.AcceleratorError, (name, error, first)
    assert first_line(error) == PREVIOUS and first_line(first) == NOT_PERMITTED, (name, error, first)
    assert (error.error_code, first.error_code) == (901, 900)
    for text in ("cudaErrorStreamCaptureUnsupported", "CUDA_LAUNCH_BLOCKING=1", "TORCH_USE_CUDA_DSA"):
        assert text in str(first), name
    assert not torch.cuda.is_current_stream_capturing()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    try:
        graph.replay()
    except RuntimeError as error:
        assert str(error).startswith("Called CUDAGraph::replay without a preceding successful capture.")
    else:
        raise AssertionError(name)
torch.cuda.synchronize()
assert (x + 1).sum().item() > 16
held = [x[0].clone(), x.histc(4, 0, 2)]
graph, error = captured(
    lambda: (x[numbers[:1]].sum(), torch.histc(x, 4, 0, 2, out=held[1]), x[torch.tensor(0)].sum(), x.fill_(5))
)
assert error is None, error
graph.replay()
assert held[1].sum().item() == 16
assert x.sum().item() == 80
