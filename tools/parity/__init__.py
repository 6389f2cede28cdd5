"""`docs/api_parity.md`: each name of torch.cuda's interface, what it is here, and the test that shows it."""
