"""The functions that compute ONNX operators, a file a family; importing this fills the table."""

from importlib import import_module

for _family in (
    *("attention", "elementwise", "indexing", "layout", "losses", "matmul", "normalization", "pooling"),
    *("quantization", "recurrent", "reductions", "resizing", "sequences"),
):
    import_module(f"{__name__}.{_family}")
