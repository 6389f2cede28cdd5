import torch

x = torch.ones(4, device="cuda")
stream, event = torch.cuda.Stream(), torch.cuda.Event()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    y = x @ x
    event.record()
event.synchronize()
assert y.item() == 4
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    doubled = x * 2
x.fill_(5)
graph.replay()
assert doubled.tolist() == [10] * 4
for kind, text, body in (
    (torch.cuda.OutOfMemoryError, "CUDA out of memory. Tried", lambda: x.new_empty(1 << 40)),
    (RuntimeError, "found at least two devices, cuda:0 and cpu!", lambda: x + torch.ones(4)),
    (torch.AcceleratorError, "CUDA error: invalid device ordinal", lambda: x.to("cuda:7")),
    (torch.AcceleratorError, "CUDA error: invalid device ordinal", lambda: torch.cuda.set_device(7)),
    (torch.AcceleratorError, "CUDA error: invalid device ordinal", lambda: torch.cuda.Stream(7)),
    (torch.AcceleratorError, "CUDA error: invalid device ordinal", lambda: torch.cuda.synchronize(7)),
    (AssertionError, "Invalid device id", lambda: torch.cuda.get_device_properties(7)),
    (AttributeError, "there is none", lambda: x.__cuda_array_interface__),
):
    try:
        body()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
