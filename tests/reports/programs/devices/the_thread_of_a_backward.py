import contextvars
import threading

import torch

local, variable, seen = threading.local(), contextvars.ContextVar("variable", default=None), []
local.value = 1
variable.set(1)
x = torch.ones(3, device="cuda", requires_grad=True)
y = x * 2
y.register_hook(
    lambda gradient: seen.append((threading.get_ident(), hasattr(local, "value"), variable.get()))
)
y.sum().backward()
((thread, *values),) = seen
assert thread != threading.get_ident() and values == [False, None]
