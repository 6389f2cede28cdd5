"""``pipeline``: as transformers' own, with the model on a TTDevice."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.device import program
from torch_loom.pybuda.formats import DataFormat
from torch_loom.pybuda.module import PyTorchModule
from torch_loom.pybuda.ttdevice import TTDevice

_CACHES = ("past_key_values", "encoder_outputs")
"""What a model returns for its own next call: it stays on the device."""


class NLPPipelineWrapper:
    """Lets a model of transformers compute on a TTDevice; its ``forward`` is the device's from then on.

    Keys and values that a forward caches stay on the device for the next.

    Args:
        model: of transformers, on the host; what it generates with stays there.
        tokenizer: kept.
        use_cache: whether keys and values are cached; None: as the model's configuration says.
        fp32_fallback: the format of the device.
        forward_fn: computes the logits from the tensors of a call, in the order of the model's ``forward``;
            then no device is made.
        max_length: the most tokens of a call; None: as many as the model takes.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any = None,
        name: str = "pb_model",
        use_cache: bool | None = None,
        fp32_fallback: DataFormat = DataFormat.Float16_b,
        forward_fn: Callable[[tuple[Any, ...]], torch.Tensor] | None = None,
        max_length: int | None = None,
    ) -> None:
        self.model, self.tokenizer, self.max_length = model, tokenizer, max_length
        self.use_cache, self.forward_fn = use_cache, forward_fn
        self.ttdevice: TTDevice | None = None
        self._parameters = list(inspect.signature(model.forward).parameters)
        if use_cache is not None:
            for config in filter(None, (model.config, getattr(model, "generation_config", None))):
                config.use_cache = use_cache
        if forward_fn is None:
            places = len(program.devices)
            self.ttdevice = TTDevice(f"tt{places}", fp32_fallback=fp32_fallback)
            self.ttdevice.place_module(PyTorchModule(name, model))
            [self._on_device] = self.ttdevice.make_stage().modules.values()
            self._on_device.eval()
        model.forward = self._forward

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        named = {**dict(zip(self._parameters, args, strict=False)), **kwargs}
        self._check_length(named)
        if self.forward_fn is not None:
            return self._by_function(named)
        assert self.ttdevice is not None
        stage = self.ttdevice.make_stage()
        given = {name: _moved(value, stage.device) for name, value in named.items()}
        with torch.no_grad(), stage.numbers():
            made = self._on_device(**given)
        if not hasattr(made, "items"):
            return _moved(made, torch.device("cpu"))
        for key, value in list(made.items()):
            if key not in _CACHES:
                made[key] = _moved(value, torch.device("cpu"))
        return made

    def _by_function(self, named: dict[str, Any]) -> Any:
        outputs: Any = importlib.import_module("transformers.modeling_outputs")
        assert self.forward_fn is not None
        given = [named[name] for name in self._parameters if named.get(name) is not None]
        tensors = [getattr(value, "last_hidden_state", value) for value in given]
        tensors = [value for value in tensors if isinstance(value, torch.Tensor)]
        return outputs.CausalLMOutputWithCrossAttentions(logits=self.forward_fn(tuple(tensors)))

    def _check_length(self, named: dict[str, Any]) -> None:
        ids = named.get("decoder_input_ids", named.get("input_ids"))
        cached = getattr(named.get("past_key_values"), "get_seq_length", int)()
        length = cached + (0 if ids is None else ids.shape[-1])
        if self.max_length is not None and length > self.max_length:
            raise PyBudaError(
                f"pipeline: {length} tokens, and pybuda_max_length is {self.max_length}: ask for fewer"
            )


def pipeline(pipeline_type: str, *args: Any, **kwargs: Any) -> Any:
    """Return transformers' pipeline of a task; its model computes on a TTDevice.

    Args:
        pipeline_type: the task, such as ``"text-generation"``.
        args, kwargs: of ``transformers.pipeline``; ``model`` is a model or a name of one. Beside them
            ``use_cache``, ``forward_fn`` and ``pybuda_max_length``: see :class:`NLPPipelineWrapper`.

    Raises:
        PyBudaError: no model is given, or more tokens come than ``pybuda_max_length``.
    """
    make: Any = importlib.import_module("transformers").pipeline
    ours = {key: kwargs.pop(key, None) for key in ("forward_fn", "use_cache", "pybuda_max_length")}
    if kwargs.get("model") is None:
        raise PyBudaError('pipeline: give a model, or its name: pipeline("text-generation", model=…)')
    made = make(pipeline_type, *args, **kwargs)
    name = type(made.model).__name__
    NLPPipelineWrapper(
        made.model,
        made.tokenizer,
        name,
        use_cache=ours["use_cache"],
        forward_fn=ours["forward_fn"],
        max_length=ours["pybuda_max_length"],
    )
    return made


def _moved(value: Any, device: torch.device) -> Any:
    """Return tensors, also those in containers and in a model's outputs, on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (tuple, list)):
        return type(value)(_moved(each, device) for each in value)
    if isinstance(value, dict):
        made = {key: _moved(each, device) for key, each in value.items()}
        return made if type(value) is dict else type(value)(**made)
    return value
