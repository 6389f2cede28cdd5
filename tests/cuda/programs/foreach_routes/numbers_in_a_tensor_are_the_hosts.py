import torch

import torch_loom  # noqa: F401
from tests.raising import raises

numbers = torch.tensor([0.5, 2.0])
x, y = ([torch.full((3,), value, device="cuda") for _ in range(2)] for value in (1.0, 4.0))
for name, wanted in (("addcdiv", (1.5, 3.0)), ("addcmul", (9.0, 33.0))):
    call = getattr(torch, f"_foreach_{name}")
    assert [t[0].item() for t in call(x, y, y, numbers)] == list(wanted), name
    in_place = [t.clone() for t in x]
    getattr(torch, f"_foreach_{name}_")(in_place, y, y, numbers)
    assert [t[0].item() for t in in_place] == list(wanted), name
    raises("RuntimeError", "Expected scalars to be on CPU, got cuda:0", lambda: call(x, y, y, numbers.cuda()))
    raises(
        "RuntimeError",
        "Expected length of scalars to match input of length 2",
        lambda: call(x, y, y, numbers[:1]),
    )
