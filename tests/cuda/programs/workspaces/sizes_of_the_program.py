import warnings

import torch

from tests.cuda.programs.workspaces.setup import MIB, kept, x

with torch.no_grad():
    x @ x
    assert torch.backends.cuda.cublas_workspace_size(16 * MIB) == 16 * MIB
    x @ x
    assert kept() == 32  # large enough
    torch.backends.cuda.cublas_workspace_size(48 * MIB)
    assert kept() == 32
    x @ x
    assert kept() == 48  # the old one has gone
    torch._C._cuda_resetCublasWorkspaceSize()
    assert torch.backends.cuda.cublas_workspace_size() == 32 * MIB
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.backends.cuda.cublaslt_workspace_size(64 * MIB) == 32 * MIB
    assert "exceeds CUBLAS workspace size of 33554432 bytes" in str(caught[0].message)
try:
    torch._C._cuda_setCublasWorkspaceSize(-1)
except ValueError as error:
    assert "cannot have a negative size, got -1" in str(error)
else:
    raise AssertionError
