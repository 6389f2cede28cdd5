import torch
import torch._dynamo

function = torch.compile(
    lambda x: x + 1 if torch.version.cuda is not None else x, backend="eager", fullgraph=True
)
assert function(torch.ones(2, device="cuda")).tolist() == [2, 2]
