"""What writes the generated pages of a checkout. Not in the wheel: run it as ``python -m tools.docs``."""
