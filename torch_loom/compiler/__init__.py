"""From a model to something that runs on the devices: torch.compile, and the compiler of its own."""
