"""What PyTorch's shape functions take the device for."""

from __future__ import annotations

from typing import Any

from torch_loom.patches.declared import Place, patch


@patch("torch._meta_registrations:device_hint", shown_under="Shape functions that differ from the kernels")
def engine_hinted(place: Place) -> Any:
    """Shape functions of normalisation and of decompositions of matrices ask for the type of the device to
    know the layout of a result, and take what they do not know for CUDA. The engine's kernels compute it.
    """
    original, name = place.original, place.device

    def device_hint(tensor: Any) -> str:
        # Only fake tensors are of a device: plain meta tensors are called "cuda", for every caller.
        kind: str = original(tensor)
        return "cpu" if kind == name and _device_type(tensor) == name else kind

    return device_hint


def _device_type(tensor: Any) -> str:
    from torch._subclasses.fake_tensor import FakeTensor

    return str(tensor.fake_device.type if isinstance(tensor, FakeTensor) else tensor.device.type)
