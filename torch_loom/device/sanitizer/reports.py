"""What the sanitizer reports, with the names and the words of ``torch.cuda._sanitizer``."""

from __future__ import annotations

import enum
import traceback
from dataclasses import dataclass

from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device.sanitizer.clocks import SeqNum, StreamId, unpack_stream
from torch_loom.device.sanitizer.history import Launch, Use
from torch_loom.device.sanitizer.stacks import program_line

# Errors go by the name that programs catch them by, as in torch.cuda._sanitizer.
_MODULE = f"torch.{DEVICE_TYPE}._sanitizer"


class AccessType(enum.Enum):
    """Whether a command reads or writes a tensor."""

    READ = enum.auto()
    WRITE = enum.auto()

    def __str__(self) -> str:
        return "reading from" if self is AccessType.READ else "writing to"


@dataclass
class Access:
    """One command's use of one tensor.

    Attributes:
        type: whether it reads or writes.
        seq_num: the number of the command in the order in which all were issued.
        stream: the stream, as ``clocks.pack_stream`` numbers it: on device 0 by its own id.
        operator: the name of the op, or as in ``"copy (4000 bytes) from cpu to cuda:0"``.
        data_ptr: the address of the tensor's first element.
        sizes: its shape; memory that an op takes for its result is given in bytes.
        item_bytes: the size of an element.
        stack_trace: the Python stack that issued the command.
    """

    type: AccessType
    seq_num: SeqNum
    stream: StreamId
    operator: str
    data_ptr: int
    sizes: tuple[int, ...]
    item_bytes: int
    stack_trace: traceback.StackSummary

    @classmethod
    def of(cls, use: Use) -> Access:
        """Return a use in words."""
        address, sizes, _, item_bytes, is_written = use.operand
        kind = AccessType.WRITE if is_written else AccessType.READ
        launch = use.launch
        stack = launch.stack_trace()
        return cls(
            kind, launch.seq_num, launch.stream, _command_name(launch), address, sizes, item_bytes, stack
        )

    @property
    def place(self) -> str:
        """The op with its stream and, where it is known, the line of the program."""
        line = program_line(self.stack_trace)
        return f"{self.operator} on stream {_stream_name(self.stream)}" + (f" ({line})" if line else "")

    def __str__(self) -> str:
        what = f"a tensor of shape {list(self.sizes)}, {self.item_bytes} bytes an element,"
        if not self.operator.startswith("aten::") and self.item_bytes == 1:
            repeats = [str(size) for size in self.sizes[:0:-1] if size > 1]
            what = " times ".join([*repeats, f"{self.sizes[0]} bytes"])
        return (
            f"{self.operator}\n{self.type} {what} at {self.data_ptr:#x}\n"
            f"With stack trace:\n{''.join(self.stack_trace.format())}"
        )


def _command_name(launch: Launch) -> str:
    if not launch.moved:
        return launch.operator
    text = f"{launch.operator} ({launch.moved[0][1][0]} bytes)"
    if launch.operator != "copy":
        return text
    source, target = launch.places
    return f"{text} from {source} to {target}"


def _stream_name(stream: StreamId) -> str:
    device, number = unpack_stream(stream)
    return f"{number} of {DEVICE_TYPE}:{device}"


class SynchronizationError(Exception):
    """Base class for errors detected by the sanitizer."""

    __module__ = _MODULE


class UnsynchronizedAccessError(SynchronizationError):
    """Two commands on two streams use the same bytes, one of them writes, and nothing orders them.

    Attributes:
        data_ptr: the address of the tensor that the later command uses.
        allocation_stack_trace: the stack that allocated it; None if that was before the sanitizer was
        enabled. current_access: of the later command, which was not submitted.
        previous_access: of the earlier command.
    """

    __module__ = _MODULE

    headline = "CSAN detected a possible data race on tensor with data pointer {0}"
    advice = ""
    verb = "is not ordered after"

    def __init__(
        self,
        data_ptr: int,
        allocation_stack_trace: traceback.StackSummary | None,
        current_access: Access,
        previous_access: Access,
    ) -> None:
        super().__init__(data_ptr, allocation_stack_trace, current_access, previous_access)
        self.data_ptr = data_ptr
        self.allocation_stack_trace = allocation_stack_trace
        self.current_access = current_access
        self.previous_access = previous_access

    @property
    def summary(self) -> str:
        """The two accesses on one line."""
        return f"{self.current_access.place} {self.verb} {self.previous_access.place}"

    def __str__(self) -> str:
        current, previous = self.current_access, self.previous_access
        text = (
            "============================\n"
            f"{self.headline.format(self.data_ptr)}\n"
            f"Access by stream {_stream_name(current.stream)} during kernel:\n{current}\n"
            f"Previous access by stream {_stream_name(previous.stream)} during kernel:\n{previous}\n"
        )
        if self.advice:
            text += self.advice.format(_stream_name(previous.stream)) + "\n"
        if self.allocation_stack_trace is None:
            return text + "Trace for tensor allocation not found."
        return text + (
            f"Tensor was allocated with stack trace:\n{''.join(self.allocation_stack_trace.format())}"
        )


class UseAfterFreeError(UnsynchronizedAccessError):
    """Memory is used again while a command on another stream, issued before it was freed, may still use it.

    ``allocation_stack_trace`` is that of the freed tensor.
    """

    __module__ = _MODULE

    headline = "CSAN detected a possible use after free in the memory at {0}"
    verb = "reuses freed memory of"
    advice = "The tensor of the previous access was freed while stream {0} may still be using it."


class MissingRecordStreamError(UseAfterFreeError):
    """As its base class; the freed tensor was used on another stream than its own."""

    __module__ = _MODULE

    advice = (
        UseAfterFreeError.advice + " It was allocated for another stream: call record_stream() on it, or let "
        "its own stream wait, before it is freed."
    )


class CUDASanitizerErrors(Exception):  # noqa: N818 (CUDA's name)
    """What the sanitizer raises: all that is wrong with one command.

    Attributes:
        errors: one for each pair of accesses.
    """

    __module__ = _MODULE

    def __init__(self, errors: list[SynchronizationError]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        text = f"detected {len(self.errors)} errors"
        first = next((error for error in self.errors if isinstance(error, UnsynchronizedAccessError)), None)
        return text if first is None else f"{text}: {first.summary}"


def report(current: Use, previous: Use) -> SynchronizationError:
    """Return the error that a use is, coming after another that it is not ordered with."""
    kind = UnsynchronizedAccessError
    if previous.tensor is not current.tensor:
        is_foreign = previous.launch.stream != previous.tensor.stream
        kind = MissingRecordStreamError if is_foreign else UseAfterFreeError
    return kind(
        current.operand[0], previous.tensor.allocation_stack_trace, Access.of(current), Access.of(previous)
    )
