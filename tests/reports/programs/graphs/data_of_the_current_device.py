import torch

from tests.reports.programs.graphs.two_devices import captured_with, loss_of, x

loss, gradient = captured_with(1)
torch.testing.assert_close(loss, loss_of())
torch.testing.assert_close(gradient, torch.autograd.grad(loss_of(), x)[0])
