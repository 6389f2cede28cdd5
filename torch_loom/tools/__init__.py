"""The `loom` command: one file a sub-command, gathered in `cli.py`."""
