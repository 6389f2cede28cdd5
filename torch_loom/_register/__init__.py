"""Makes PyTorch know the device: what is registered, and what has to be changed in PyTorch itself."""

from __future__ import annotations

from torch_loom import late


def register() -> Exception | None:
    """Register the device. See :func:`torch_loom._register.registration.register`."""
    with late.without_collections():
        from torch_loom._register import registration

        return registration.register()
