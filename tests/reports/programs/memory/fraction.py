import torch

total = torch.cuda.get_device_properties(0).total_memory


def error_of(num_bytes):
    try:
        torch.empty(num_bytes, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError("there was memory")
