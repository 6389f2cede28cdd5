"""Every error class that torch-loom raises from Python.

Each derives from :class:`LoomError` and from the built-in class that PyTorch's CUDA module raises in the same
place, so that ``except RuntimeError`` and ``except ValueError`` written for CUDA keep working.
Out of memory is PyTorch's own ``torch.OutOfMemoryError``.

Programs also print the name of a type, and PyTorch's DataLoader puts it into a message. So under the name
cuda a class with a ``cuda_type`` makes an error of that type instead: what a GPU raises. Classes without one
stand for what no GPU has, such as settings, chips and plans.
"""

from __future__ import annotations

import contextlib
import pickle
from types import WrapperDescriptorType
from typing import Any, ClassVar


class LoomError(Exception):
    """Base of all errors of torch-loom.

    Attributes:
        cuda_type: what a GPU raises in its place; None where a GPU raises nothing.
    """

    cuda_type: ClassVar[type[Exception] | None] = None

    def __init_subclass__(cls, *, cuda_type: type[Exception] | None = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        cls.cuda_type = cuda_type
        if cuda_type is not None:
            # Only where it is needed: Dynamo does not trace errors of classes with a __new__ of their own.
            cls.__new__ = _made_as_cudas  # type: ignore[method-assign, assignment]


def _made_as_cudas(cls: type[LoomError], *args: Any) -> Exception:
    if _raises_cuda_types and cls.cuda_type is not None:
        return cls.cuda_type(*args)
    return super(LoomError, cls).__new__(cls, *args)


_raises_cuda_types = False


def raise_cuda_types() -> None:
    """Have each class make an error of its ``cuda_type``, from now on: the devices are CUDA's."""
    global _raises_cuda_types
    _raises_cuda_types = True


class ConfigurationError(LoomError, ValueError):
    """A setting has a bad value; the message names the setting, the value and the values it takes."""


class ChipError(ConfigurationError):
    """A chip description cannot be used; the message names file, key, value and what is allowed."""


class TopologyError(ConfigurationError):
    """The description of a cluster, or a name or path for one, cannot be used, or ranks do not fit it."""


class AlreadyInitializedError(LoomError, RuntimeError, cuda_type=RuntimeError):
    """A setting was changed after the devices were first used."""


class VersionMismatchError(LoomError, RuntimeError):
    """The extension was built against another torch than the running one."""


class ExtensionError(LoomError, RuntimeError):
    """The extension ``torch_loom._C`` is missing, or could not be loaded or registered."""


class NoDeviceError(LoomError, RuntimeError, cuda_type=RuntimeError):
    """A device was used although the configuration has none."""


class InvalidDeviceError(LoomError, RuntimeError, cuda_type=RuntimeError):
    """A device index outside the devices that exist."""


class InvalidDeviceIdError(InvalidDeviceError, AssertionError, cuda_type=AssertionError):
    """The same where CUDA raises an AssertionError: its properties, and whether it can access a peer."""


class DeviceTypeError(LoomError, ValueError, cuda_type=ValueError):
    """Something that is no device of this backend where one was expected."""


class DryRunError(LoomError, RuntimeError):
    """A dry run cannot begin: another dry run is under way, or a graph is being captured."""


class ForkError(LoomError, RuntimeError, cuda_type=RuntimeError):
    """A device was used in a forked child of a process that had used it before."""


class ImplicitSynchronizationError(LoomError, RuntimeError, cuda_type=RuntimeError):
    """The host would have waited for the device without saying so, under ``set_sync_debug_mode("error")``."""


class SharingError(LoomError, RuntimeError, cuda_type=RuntimeError):
    """Memory or an event cannot be shared with another process, or what it shared no longer exists."""


class DummyDeviceError(LoomError, RuntimeError):
    """Something would have to be executed, under RBLN_DUMMY_DEVICE; the message says what works there."""


class DeviceLayoutError(LoomError, RuntimeError):
    """A tensor whose device memory cannot be taken or laid out as asked; the message says what it must be."""


class RegionError(LoomError, RuntimeError):
    """A region of ``torch.rbln.explain()`` was opened, read or closed out of turn."""


class FallbackError(LoomError, NotImplementedError):
    """An op or dtype that the chip does not do itself, under ``TORCH_LOOM_FALLBACK=error``."""


class DeferredCallError(LoomError, RuntimeError, cuda_type=RuntimeError):
    """A call made before first use, such as a seed, failed when the devices were initialised.

    Its ``cuda_type`` is ``torch.cuda.DeferredCudaCallError``, which this module cannot import.
    """


class CommunicationError(LoomError, RuntimeError, cuda_type=RuntimeError):
    """Tensors, devices or streams of a collective function do not fit together."""


class HostTensorError(CommunicationError, AssertionError, cuda_type=AssertionError):
    """A tensor of the host among those to be added up, where PyTorch raises an AssertionError."""


class ShapeError(LoomError, ValueError, cuda_type=ValueError):
    """Tensors that must have one shape have several."""


class InputCountError(LoomError, ValueError, AssertionError, cuda_type=AssertionError):
    """An element-wise kernel got no tensors, or more than it can take."""


class CompilationError(LoomError, RuntimeError, cuda_type=RuntimeError):
    """A program's C++ text was refused by the compiler; the message has the compiler's words and the text."""


class KernelTextError(LoomError, ValueError):
    """The text of a kernel's intermediate code cannot be read; the message names its line."""


class UnsupportedKernelError(LoomError, NotImplementedError):
    """A program's own kernel does what is not compiled; the message names the kernel, the line and the op."""


class KernelCheckError(LoomError, RuntimeError):
    """The sanitizer found a fault in a kernel: a race, a read of memory never written, an offset that wrapped
    around. The message names the kernel, the line, the program and the argument."""


class CompilerOptionError(LoomError, ValueError):
    """An option of the compiler that does not exist, is refused, or has a bad value."""


class ExportError(LoomError, RuntimeError):
    """A model is no graph of ops, as where it branches on values; the message names the line."""


class OnnxError(LoomError, ValueError):
    """An ONNX model is damaged or unsafe, or has operators that are not read; the message names them."""


class UnknownOpError(LoomError, ValueError):
    """A break or an override names an op that the compiled graph does not have."""


class IllegalGraphError(LoomError, RuntimeError):
    """A pass of the compiler left a graph that cannot be right; the message names the pass and the node."""


class HostOpError(LoomError, NotImplementedError):
    """A graph has ops that the chip lacks, under ``host_ops="error"``; the message says why."""


class PlacementError(LoomError, RuntimeError):
    """A graph does not fit a chip; the message names the op, what it needs, what there is, and what helps."""


class ImageError(LoomError, ValueError):
    """A file is no image of a compiled model, is damaged, or was made for another chip or version."""


class NotApplicableError(LoomError, NotImplementedError):
    """A name stands for what does not exist here: an object of an NVIDIA library, or what a vendor lacks."""


class AllocatorLibraryError(LoomError, OSError, cuda_type=OSError):
    """The shared library of a pluggable allocator cannot be loaded."""


class AllocatorFunctionError(LoomError, AttributeError, cuda_type=AttributeError):
    """The shared library of a pluggable allocator lacks a function."""


class PinnedMemoryError(LoomError, RuntimeError):
    """Host memory cannot be pinned, or is not pinned."""


class PipelineError(LoomError, RuntimeError):
    """A pipeline cannot do what was asked in its present state; the message says what to do first."""


class PipelineStoppedError(PipelineError):
    """A pipeline was shut down while a thread waited for it, or used after that."""


class RankError(PipelineError):
    """A process of a pipeline over several processes ended, or cannot be reached."""


class QueueFullError(PipelineError):
    """A queue has no room, and nothing runs that would make some."""


class QueueTypeError(LoomError, TypeError):
    """An object that cannot serve as a queue of a pipeline."""


_FIELDS = "errno", "strerror", "filename", "filename2", "name", "path", "obj", "value", "code"
"""What Python's own errors have beside their arguments and their dictionary."""


class StageError(PipelineError):
    """A stage of a pipeline failed: the message has its name and the worker's traceback.

    It is an instance of the original error's class too, with its attributes; ``__cause__`` is the original,
    ``stage`` the name.
    """

    stage: str = ""

    @classmethod
    def of(cls, stage: str, text: str, cause: BaseException | None) -> StageError:
        """Return the error of a stage with this text, of the class of its cause where Python allows both."""
        made = cls(text)
        if isinstance(cause, Exception) and not isinstance(cause, StageError):
            # Not by its constructor, which may take anything.
            with contextlib.suppress(Exception):
                kind = type(cls.__name__, (cls, type(cause)), {"__module__": cls.__module__})
                like: Any = type(cause).__new__(kind, *cause.args)
                if isinstance(type(cause).__init__, WrapperDescriptorType):  # Python's own: it sets fields
                    type(cause).__init__(like, *cause.args)
                for name in _FIELDS:
                    if getattr(cause, name, None) is not None:
                        setattr(like, name, getattr(cause, name))
                like.__dict__.update(cause.__dict__)
                like.args = (text,)
                made = like
        made.stage, made.__cause__ = stage, cause
        return made

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        cause: BaseException | None = self.__cause__
        try:
            pickle.loads(pickle.dumps(cause))
        except Exception:
            cause = None  # this one has its text
        return StageError.of, (self.stage, str(self), cause)


class PyBudaError(LoomError, RuntimeError):
    """PyBuda's API was used in a way that its documentation excludes; the message says what to do."""


class VerificationError(PyBudaError, AssertionError):
    """A verified value is neither close to the reference nor correlated with it; the message names it."""


class FormatError(LoomError, ValueError):
    """A data format, fidelity or accumulate format that an op cannot have, or an override that fits nothing;
    the message names what can be."""


class OperandError(LoomError, TypeError):
    """An operand of a numerics op has no such values, as integers where floats are due."""


class PackedDataError(LoomError, ValueError):
    """Packed tiles do not fit the format or the shape, or are cut short."""


__all__ = sorted(
    name for name, value in globals().items() if isinstance(value, type) and issubclass(value, LoomError)
)
