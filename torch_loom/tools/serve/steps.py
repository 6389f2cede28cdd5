"""What a step of a causal language model takes on a chip, by its size: run in a dry run, once for each size.

Sizes between those that were run are interpolated. A mixed step of a continuous batch is a prompt of all its
tokens, and what the requests that decode take longer for the tokens that they have in the cache.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch_loom.errors import ConfigurationError
from torch_loom.tools.serve.schedule import Step

DTYPES = ("bfloat16", "float16", "float32")
# Of the memory that is free beside the model, what the cache takes (transformers 5.17, continuous batching).
CACHE_SHARE = 0.9


class Memory(NamedTuple):
    """Bytes: the device's, of the model's weights, of a token in the cache; tokens that the cache holds."""

    capacity_bytes: int
    weight_bytes: int
    token_bytes: int
    cache_tokens: int


def model_of(path: str, dtype: str, device: str) -> tuple[Any, int | None]:
    """Return a causal language model by its configuration, with no weights in it, and its context.

    Args:
        path: a folder with a ``config.json``, or the file; nothing is fetched.
        dtype: of its weights.
        device: where it lies.

    Raises:
        ConfigurationError: there is no such configuration, or none of a causal language model.
    """
    import torch

    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError as error:
        raise ConfigurationError(f"--serve needs transformers: pip install transformers ({error})") from None
    if dtype not in DTYPES:
        raise ConfigurationError(f"dtype = {dtype!r:.100}. Allowed: {', '.join(DTYPES)}.")
    folder = Path(path)
    file = folder if folder.is_file() else folder / "config.json"
    if not file.is_file():
        raise ConfigurationError(f"{path}: no model. Allowed: a folder with a config.json, or that file.")
    try:
        config = AutoConfig.from_pretrained(file.parent if file.name == "config.json" else file)
        with torch.device(device):
            made: Any = AutoModelForCausalLM
            model = made.from_config(config, dtype=getattr(torch, dtype)).eval()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # by its numbers: a division, a size below 0, a field that is missing
        raise ConfigurationError(
            f"{file}: not a causal language model that transformers makes: {error!s:.300}"
        ) from None
    context = getattr(config, "max_position_embeddings", None)
    return model, context if isinstance(context, int) and context > 0 else None


class Steps:
    """The times of a model's steps on the device of a dry run."""

    def __init__(self, model: Any, device: str, clock: Callable[[], float]) -> None:
        self._model = model
        self._device = device
        self._clock = clock
        self._run = cache(self._forward)

    def token_bytes(self) -> int:
        """Return what a token takes in the cache."""
        import torch

        with torch.no_grad():
            kept = self._ids(1, 2)
            found = self._model(kept, use_cache=True).past_key_values
        return sum(_bytes(layer) for layer in found.layers) // 2

    def seconds(self, step: Step) -> float:
        """Return what a step takes."""
        if not step.prompt_tokens:
            return self._decode(step.decoding, step.context)
        took = self._between(step.prompt_tokens + step.decoding, lambda tokens: self._run(1, tokens, 0))
        if step.decoding:
            took += max(0.0, self._decode(step.decoding, step.context) - self._decode(step.decoding, 0.0))
        return took

    def _decode(self, requests: int, context: float) -> float:
        def at(batch: int) -> float:
            return self._between(context, lambda tokens: self._run(batch, 1, tokens))

        return self._between(requests, at)

    @staticmethod
    def _between(size: float, run: Callable[[int], float]) -> float:
        """Return what a size takes, from the powers of two and half-way points around it."""
        if size <= 1:
            return run(max(0, round(size)))
        sizes = [1]
        while sizes[-1] < size:
            last = sizes[-1]
            sizes += [last * 3 // 2, last * 2] if last > 1 else [2]
        place = bisect_left(sizes, size)
        high = sizes[place]
        if high == size:
            return run(high)
        low = sizes[place - 1]
        share = (size - low) / (high - low)
        return (1.0 - share) * run(low) + share * run(high)

    def _forward(self, batch: int, tokens: int, context: int) -> float:
        """Return what a forward pass and the choice of a token take, with so many tokens in the cache."""
        import torch

        with torch.no_grad():
            past = None
            if context:
                past = self._model(self._ids(batch, 1), use_cache=True).past_key_values
                for layer in past.layers:
                    _lengthen(layer, context)
            began = self._clock()
            logits = self._model(
                self._ids(batch, tokens), past_key_values=past, use_cache=True, logits_to_keep=1
            ).logits
            logits[:, -1].float().argmax(-1)
            return self._clock() - began

    def _ids(self, batch: int, tokens: int) -> Any:
        import torch

        return torch.zeros(batch, tokens, dtype=torch.long, device=self._device)


def _bytes(layer: Any) -> int:
    return sum(each.numel() * each.element_size() for each in _tensors(layer).values())


def _tensors(layer: Any) -> dict[str, Any]:
    return {name: value for name in ("keys", "values") if (value := getattr(layer, name, None)) is not None}


def _lengthen(layer: Any, tokens: int) -> None:
    """Give a layer's cache of one token room for more, without contents."""
    for name, value in _tensors(layer).items():
        setattr(layer, name, value.new_empty(*value.shape[:-2], tokens, value.shape[-1]))


def memory_of(model: Any, token_bytes: int, capacity_bytes: int) -> Memory:
    """Return what the model and its cache take.

    Raises:
        torch.OutOfMemoryError: nothing is left for the cache.
    """
    import torch

    weights = {each.data_ptr(): each.numel() * each.element_size() for each in model.parameters()}
    weight_bytes = sum(weights.values())
    left = (capacity_bytes - weight_bytes) * CACHE_SHARE
    if left < token_bytes:
        raise torch.OutOfMemoryError(
            f"the weights take {weight_bytes} of {capacity_bytes} bytes: nothing is left for the cache"
        )
    return Memory(capacity_bytes, weight_bytes, token_bytes, int(left // token_bytes))
