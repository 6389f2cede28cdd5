import torch

from torch_loom.compiler.backend import compiled_graphs

x = torch.ones(4, device="loom", dtype=torch.float16)
program = lambda x: torch.linalg.norm(x.double()) + x.sum()
torch.compile(program, backend="loom")(x)
(graph,) = compiled_graphs()
print(graph.host_nodes)
try:
    torch.compile(program, backend="loom", options={"host_ops": "error"})(x)
except Exception as error:
    print("float64" in str(error) and "linalg" in str(error) and 'host_ops="host"' in str(error))
