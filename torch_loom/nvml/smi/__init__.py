"""The command ``nvidia-smi``: NVIDIA's options and layouts, answered by :mod:`torch_loom.nvml.client`.

It imports nothing of torch and little of Python, because programs start it often.
"""
