"""Names of ``torch.cuda`` that stand for NVIDIA's objects, and those that belong to no other folder."""
