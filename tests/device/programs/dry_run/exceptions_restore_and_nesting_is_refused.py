import threading

import torch

from tests.raising import raises

loom = torch.loom


def fail():
    with loom.dry_run(devices=5), loom.device(4):
        raise KeyError("mine")


raises("KeyError", "mine", fail)
assert loom.device_count() == 2 and loom.current_device() == 0


def nest():
    with loom.dry_run():
        try:
            with loom.dry_run():
                pass
        finally:
            assert loom.get_device_properties(0).driver == "null"


raises("DryRunError", "one cannot be within another", nest)
refusals = []


def elsewhere():
    try:
        with loom.dry_run():
            pass
    except RuntimeError as error:
        refusals.append(str(error))


with loom.dry_run(devices=1) as plan:
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert loom.device_count() == 1
assert len(refusals) == 1 and "one cannot be within another" in refusals[0], refusals
assert loom.get_device_properties(0).driver == "virtual"
raises("ChipError", "nochip", lambda: loom.dry_run(chip="nochip").__enter__())
assert torch.ones(2, device="loom").sum().item() == 2
# Again and again, with one object too.
again = loom.dry_run(devices=3)
for _ in range(3):
    with again:
        assert loom.device_count() == 3
graph = loom.CUDAGraph()


def capture():
    with loom.graph(graph), loom.dry_run():
        pass


raises("DryRunError", "captured", capture)
