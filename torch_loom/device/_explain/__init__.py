"""What a program did that it may not have meant to: findings of ``torch.loom.explain``, and fallbacks."""
