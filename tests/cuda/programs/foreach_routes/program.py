import torch
from torch.profiler import ProfilerActivity, profile


def made(*shape, dtype=torch.float32):
    return [torch.ones(shape, dtype=dtype, device="cuda") for _ in range(3)]


def kernels(call):
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        call()
        torch.cuda.synchronize()
    rows = [event for event in profiled.events() if event.device_type.name == "CUDA"]
    return len(rows), sum("multi_tensor_apply_kernel" in row.name for row in rows)


x, half, double = made(4, 4), made(4, 4), made(4, 4, dtype=torch.float64)
half[1] = half[1].half()
whole = made(4, 4, dtype=torch.int32)
turned = [tensor.t() for tensor in made(4, 4)]
rows = [tensor[:, ::2] for tensor in made(4, 4)]
small = [tensor[:1] for tensor in x]
imaginary = made(4, dtype=torch.complex64)
