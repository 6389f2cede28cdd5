"""``torch.compile`` with its default backend: Inductor generates C++, a kernel is a command."""
