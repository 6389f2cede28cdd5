"""Training steps as Megatron-LM shards them, in plain PyTorch, planned and held against its own figures."""
