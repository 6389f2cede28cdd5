"""`docs/api_parity.md`: each name of torch.cuda's and torch-rbln's interface, and the test that shows it."""
