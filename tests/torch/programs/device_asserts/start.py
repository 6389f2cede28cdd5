import os

os.environ.update(TORCH_LOOM_ASSERTS="device", TORCH_LOOM_MEMORY="1GiB")
import torch

torch.set_num_threads(1)
x, i = torch.ones(3, 4, device="loom"), torch.tensor([0, 7], device="loom")


def asserts(*calls):
    for call in calls:
        try:
            call()
        except torch.AcceleratorError as error:
            assert "LOOM error: device-side assert triggered" in str(error), error
        else:
            raise AssertionError("no error")
