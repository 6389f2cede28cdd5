"""What runs in the process of a stage: the stage itself, controlled by messages."""

from __future__ import annotations

import io
import os
import signal
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

from torch_loom.pipeline.message import Message, encode
from torch_loom.pipeline.process.connection import receive, send
from torch_loom.pipeline.stage import Stage
from torch_loom.pipeline.transfer import Parcel


def serve(connection: Connection[Any, Any], environment: Mapping[str, str], payload: bytes) -> None:
    """Make the stage of ``payload`` and do what the program says until it says ``quit`` or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the program's
    os.environ.update(environment)
    server: _Server | None = None
    while True:
        try:
            message = receive(connection)
        except (EOFError, OSError):
            return
        try:
            if server is None:
                server = _Server(payload)
            value, tensors = server.do(message)
            answer = encode(Message("done", message.run, value=value, tensors=tensors))
        except BaseException as error:
            kind = type(error)
            told = [kind.__module__, kind.__qualname__, str(error), traceback.format_exc()]
            answer = encode(Message("failed", message.run, value=told))
        try:
            send(connection, answer)
        except OSError:
            return
        if message.kind == "quit":
            return


class _Server:
    def __init__(self, payload: bytes) -> None:
        given = torch.load(io.BytesIO(payload), weights_only=False)
        torch.set_num_threads(given.pop("num_threads"))
        torch.manual_seed(given.pop("seed"))
        self._state: Mapping[str, Any] | None = given.pop("state")
        self._stage = Stage(**given, keep_modules=True)

    def do(self, message: Message) -> tuple[Any, Sequence[torch.Tensor | None]]:
        """Do what a message says; the answer's value and tensors."""
        stage, value = self._stage, message.value
        match message.kind:
            case "prepare":
                self._prepare(**value)
            case "forward":
                names = None if value["names"] is None else tuple(value["names"])
                count = value["num_inputs"]
                inputs, targets = message.tensors[:count], message.tensors[count:]
                outputs = stage.run_forward(
                    Parcel(tuple(inputs), ()), names, value["training"], lambda: Parcel(tuple(targets), ())
                )
                return None, [output.detach() for output in outputs]
            case "backward":
                received = Parcel(tuple(message.tensors), ()) if value["received"] else None
                grads, upstream = stage.run_backward(received)
                return len(grads), [*grads, *upstream]
            case "checkpoint" | "gradients":
                found = getattr(stage, message.kind)()
                return list(found), list(found.values())
            case "update":
                stage.update(dict(zip(value, message.tensors, strict=True)))  # type: ignore[arg-type]
            case "call":
                stage.call_modules(*value)
            case "choose":
                stage.choose(value)
            case "state":
                return None, [state_bytes(stage)]
            case "quit":
                pass
            case _:
                getattr(stage, message.kind)()
        return None, ()

    def _prepare(self, training: bool, is_first: bool, is_last: bool) -> None:
        stage = self._stage
        stage.reset()
        stage.is_first, stage.is_last = is_first, is_last
        stage.prepare(training)
        if self._state is not None and training:
            for name in ("optimizer", "scheduler"):
                each, state = getattr(stage, name), self._state[name]
                if state is not None and each is not None:
                    each.load_state_dict(state)
            self._state = None


def state_bytes(stage: Stage) -> torch.Tensor:
    """Return what a stage has learned, as bytes that ``torch.load`` reads: modules, optimizer, scheduler."""
    losses = [stage.loss] if isinstance(stage.loss, torch.nn.Module) else []
    state = {
        "modules": [module.state_dict() for module in [*stage.modules.values(), *losses]],
        **{name: _state_of(getattr(stage, name)) for name in ("optimizer", "scheduler")},
    }
    written = io.BytesIO()
    torch.save(torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.detach().cpu(), state), written)
    return torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8)


def _state_of(each: Any) -> Any:
    return each.state_dict() if callable(getattr(each, "state_dict", None)) else None
