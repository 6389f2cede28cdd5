import torch

start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
x = torch.rand(256, 256, device="cuda")
start.record()
for _ in range(20):
    x = x @ x
end.record()
assert end.query() and torch.cuda.current_stream().query()
assert start.elapsed_time(end) > 0

side = torch.cuda.Stream()
with torch.cuda.stream(side):
    torch.cuda._sleep(10**9)
    end.record()
assert not end.query()
