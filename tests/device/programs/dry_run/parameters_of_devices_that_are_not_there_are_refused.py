import torch

from tests.raising import raises

loom = torch.loom
outer = torch.nn.Linear(4, 4).to("loom:1")
with loom.dry_run(devices=1):
    # Autograd asks for the streams of a device that the dry run does not have.
    raises("RuntimeError", "inside", lambda: outer(torch.ones(4, device="loom")))
    raises("RuntimeError", "inside", lambda: outer.weight * 2)
with loom.dry_run(devices=4):
    inner = torch.nn.Linear(4, 4).to("loom:3")
for call in (lambda: inner(torch.ones(4, device="loom")), lambda: inner.weight * 2):
    try:
        call()
    except RuntimeError as error:
        assert "has ended" in str(error), error
    else:
        raise AssertionError(call)
outer(torch.ones(4, device="loom:1")).sum().backward()
