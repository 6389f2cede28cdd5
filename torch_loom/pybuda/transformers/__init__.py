"""Pipelines of Hugging Face's transformers whose model runs on a TTDevice."""

from torch_loom.pybuda.transformers.pipeline import pipeline

__all__ = ["pipeline"]
