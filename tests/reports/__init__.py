"""What users of GPUs reported: a test for each, with the right value."""
