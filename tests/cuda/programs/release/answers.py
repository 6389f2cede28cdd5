import torch


def answers():
    from torch.version import cuda

    assert cuda == torch.version.cuda == getattr(torch.version, "cuda", "none"), cuda
    assert torch.backends.cuda.is_built() and torch.cuda.is_available()
    cudnn = torch.backends.cudnn
    return cuda, cudnn.is_available(), cudnn.version(), torch._C._cuda_getCompiledVersion()
