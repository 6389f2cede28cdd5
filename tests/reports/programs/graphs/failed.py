import torch


def errors_of(capture):
    "The error that a program sees of a capture that fails, and the one before it."
    try:
        capture()
    except Exception as error:
        return error, error.__context__
    raise AssertionError("captured")


def assert_failed(capture):
    last, first = errors_of(capture)
    assert type(last) is type(first) is torch.AcceleratorError, (last, first)
    assert "CUDA error: operation failed due to a previous error during capture" in str(last), last
    assert "CUDA error: operation not permitted when stream is capturing" in str(first), first
