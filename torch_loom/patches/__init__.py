"""All that torch-loom replaces in PyTorch and other libraries, where they have no extension point.

Each replacement is declared with its reason and its issue upstream
(:mod:`~torch_loom.patches.declared`), from which ``make docs`` writes the table of docs/upstream.md. What
fills a table that PyTorch keeps for such entries is no patch, and stands with what it registers. A patch
knows none of the layers: what it calls is given to it.
"""
