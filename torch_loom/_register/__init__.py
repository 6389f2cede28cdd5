"""Makes PyTorch know the device: what is registered, and what has to be changed in PyTorch itself."""
