import torch

calls = []
trace = torch.loom._gpu_trace
trace.register_callback_for_stream_synchronization(calls.append)
x = torch.rand(5, device="loom")
side = torch.loom.Stream()


def waits(stream, what):
    calls.clear()
    with torch.loom.stream(stream):
        what()
    assert calls == [stream.cuda_stream], (stream, calls)


for stream in (torch.loom.default_stream(), side):
    waits(stream, x.nonzero)
    waits(stream, x[0].item)
    waits(stream, x.cpu)
    waits(stream, lambda: x[x > 0.5])
calls.clear()
y = x + 1
z = x.to("loom:1")
assert calls == [], calls
torch.loom.default_stream().synchronize()
assert calls == [0], calls
