import torch


def i(*shape, dtype=torch.long):
    return torch.ones(shape, dtype=dtype, device="cuda")


def refused(call, kernel, dtype="Long"):
    text = f"'{kernel}' not implemented for '{dtype}'".replace("'", chr(34), 2)
    try:
        call()
    except NotImplementedError as error:
        assert str(error) == text, str(error)
    else:
        raise AssertionError(text)
