import ast
import sys

import torch

from tests.commands import recorded_commands

name = ast.literal_eval(sys.argv[1])
options = {
    "SGD": [{"momentum": 0.9, "nesterov": True}, {"maximize": True}],
    "Adagrad": [{"lr_decay": 0.1}, {"maximize": True}],
}.get(name, [{"amsgrad": True}, {"maximize": True}, {"lr": torch.tensor(0.2)}])
for option in options:
    results = []
    for device in ("cpu", "loom"):
        torch.manual_seed(0)
        weights = [torch.randn(3, 2, device="cpu").to(device).requires_grad_() for _ in range(2)]
        settings = {"lr": 0.1, "weight_decay": 0.1, "fused": True, **option}
        optimizer = getattr(torch.optim, name)(weights, **settings)
        for step, found_inf in enumerate((0.0, 0.0, 1.0, 0.0)):
            for weight in weights:
                weight.grad = torch.full_like(weight, step + 1.0) * weight.detach()
            optimizer.grad_scale = torch.tensor(2.0, device=device)
            optimizer.found_inf = torch.tensor(found_inf, device=device)
            with recorded_commands() as commands:
                optimizer.step()
            assert not [command for command in commands if "fused" in command]
        results.append([weight.detach().cpu() for weight in weights])
    torch.testing.assert_close(results[1], results[0])
