import torch

stream = torch.rbln.Stream()
assert repr(stream) == "torch.rbln.Stream(device=rbln:0, stream_id=1)"
assert type(stream.record_event()) is torch.rbln.Event
own = torch.loom.current_stream()
assert repr(own) == "<torch.rbln.Stream device=rbln:0 stream_id=0>"
