"""What the tape tells beside what the driver was told; run with the driver of tests/driver/logged."""

from __future__ import annotations

import ctypes
import json
import os
import sys

import torch

from tests.device.tape_programs import PROGRAMS, Program, operands
from torch_loom import _C

KINDS = {
    _C.TapeReader.KERNEL: "kernel",
    _C.TapeReader.COPY: "copy",
    _C.TapeReader.STORE_RESULT: "copy",
    _C.TapeReader.FILL: "fill",
    _C.TapeReader.RECORD_EVENT: "record_event",
    _C.TapeReader.WAIT_EVENT: "wait_event",
}
Told = list[tuple[str, str]]


def driver_log() -> Told:
    text = ctypes.create_string_buffer(1 << 20)
    length = ctypes.CDLL(os.environ["TORCH_LOOM_DRIVER"]).take_log(text, len(text))
    assert length <= len(text)
    return [tuple(line.split("\t")) for line in text.raw[:length].decode().splitlines()]  # type: ignore[misc]


def both(program: Program, stream: torch.Stream) -> tuple[Told, Told]:
    """What the tape and the driver were told of a program, in any order."""
    given = operands()
    torch.loom.synchronize()
    heard: Told = []

    def listen(
        kind: int, device: int, on: int, name: str, used: object, at: int, size: int, *_: bool
    ) -> None:
        if kind in KINDS:
            heard.append((KINDS[kind], name if KINDS[kind] == "kernel" else str(size)))

    reader = _C.TapeReader(listen)
    log: Told = []
    with torch.no_grad(), stream:
        for _ in range(2):  # the first run and a later one
            driver_log()
            reader.attach()
            program(given)
            stream.record_event().synchronize()
            reader.detach()
            for note in reader.take_notes():
                if note[0] in KINDS:
                    heard.append((KINDS[note[0]], str(note[5]) if KINDS[note[0]] == "copy" else ""))
            log += driver_log()
    return sorted(heard), sorted(log)


def main() -> None:
    """Print, as JSON, what tape and driver were told of each program, on two streams."""
    streams = [torch.loom.default_stream(), torch.loom.Stream()]
    told = {name: [both(one, stream) for stream in streams] for name, one in PROGRAMS.items()}
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
