"""Names of ``torch.cuda`` that ``torch.loom`` has only so that programs find them."""
