"""All changes to PyTorch's compilers where they have no extension point.

Each stands with its reason and the upstream issue, to be removed when that is closed; docs/upstream.md has
them, too. :mod:`~torch_loom.compiler.patches.rules` says what Inductor makes of an op,
:mod:`~torch_loom.compiler.patches.captures` what it captures, :mod:`~torch_loom.compiler.patches.tracing`
what a trace sees. What fills a table that PyTorch keeps for such rules stands in
:mod:`torch_loom.compiler.inductor`: fake kernels, Dynamo's rules of the device module, flex attention.
"""
