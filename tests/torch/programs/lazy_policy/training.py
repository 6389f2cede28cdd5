import hashlib

import torch
from torch import nn

torch.manual_seed(7)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 10)
)
state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
model = model.to("loom")
nn.init.normal_(model[0].weight)
head = nn.Linear(10, 10, device="loom")
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-2)
images = torch.randn(32, 1, 8, 8, device="loom")
labels = torch.randint(0, 10, (32,), device="loom")
digest = hashlib.sha256()


def see(tensor):
    digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())


for step in range(6):
    noise = torch.empty_like(images).uniform_(-0.1, 0.1)
    rows = torch.randperm(32, device="loom")
    loss = nn.functional.cross_entropy(head(model(images[rows] + noise)), labels[rows])
    optimizer.zero_grad(set_to_none=step % 2 == 0)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    see(loss)
model.load_state_dict(state)
coins = torch.bernoulli(torch.rand(99, device="loom"))
for tensor in [*model.state_dict().values(), *head.parameters(), coins]:
    see(tensor)
see(torch.loom.get_rng_state())
print(digest.hexdigest(), torch.loom.memory_stats()["lazy.materializations"])
