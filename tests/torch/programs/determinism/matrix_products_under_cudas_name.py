import torch

x = torch.ones(2, 2, device="cuda")
torch.use_deterministic_algorithms(True)
linear = torch.nn.functional.linear
for use in (lambda: x @ x, lambda: linear(x, x, x[0]), lambda: torch.addmm(x, x, x)):
    try:
        use()
    except RuntimeError as error:
        assert "CUBLAS_WORKSPACE_CONFIG=:4096:8" in str(error)
        print("refused")
