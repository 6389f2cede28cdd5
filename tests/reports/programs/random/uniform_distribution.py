import torch

torch.manual_seed(0)
bounds = (torch.tensor(bound, device="cuda") for bound in (0.0, 1.0))
drawn = torch.distributions.Uniform(*bounds).rsample((5,)).cpu()
expected = torch.tensor([0.3990, 0.5167, 0.0249, 0.9401, 0.9459])
torch.testing.assert_close(drawn, expected, atol=6e-5, rtol=0)
