"""The declaration of every setting: name, environment variable, default, what it takes and means.

Nothing is read here: :mod:`torch_loom.config` finds the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch_loom import torch_version
from torch_loom.config import rbln
from torch_loom.config.parsers import (
    COMPILE_CACHE_FOLDER,
    KERNEL_CACHE_FOLDER,
    MAX_DEVICES,
    MAX_SEED,
    one_of,
    parse_chips,
    parse_compile_cache,
    parse_cuda_devices,
    parse_cuda_flag,
    parse_cuda_version,
    parse_device_name,
    parse_devices,
    parse_driver,
    parse_flag,
    parse_folder,
    parse_indices,
    parse_machine,
    parse_memories,
    parse_memory,
    parse_microseconds,
    parse_place,
    parse_seconds,
    parse_seed,
)

T = TypeVar("T")


@dataclass(frozen=True, repr=False, eq=False)
class Setting(Generic[T]):
    """The declaration of one setting.

    Attributes:
        env: the environment variable.
        type_name: the type in words, for tables.
        default: the default as it would stand in the environment; None if it is "not set".
        allowed: the values it takes, in words, for tables and error messages.
        meaning: what it does, one sentence.
        parse: makes the value from text; raises ValueError with the reason.
        configurable: whether :func:`configure` takes it.
    """

    env: str
    type_name: str
    default: str | None
    allowed: str
    meaning: str
    parse: Callable[[str], T]
    configurable: bool = True

    @property
    def name(self) -> str:
        """Its name in :class:`Settings`, and the keyword of :func:`configure` if ``configurable``."""
        return self.env.removeprefix("TORCH_LOOM_").removeprefix("TORCH_").lower()


def _flag(env: str, meaning: str, default: str = "0", configurable: bool = True) -> Setting[bool]:
    return Setting(env, "flag", default, "0, 1", meaning, parse_flag, configurable)


def _choice(
    env: str, values: Sequence[str], meaning: str, default: str | None = None, configurable: bool = True
) -> Setting[str]:
    return Setting(env, "choice", default, ", ".join(values), meaning, one_of(*values), configurable)


DEVICE_NAME = Setting(
    env="TORCH_LOOM_DEVICE_NAME",
    type_name="name",
    default="loom",
    allowed="letters and underscores, and not a name that torch or torch.Tensor already has; or cuda",
    meaning=(
        "The name of the device type and of the module in torch; read when torch is imported. cuda makes the "
        "devices CUDA's."
    ),
    parse=parse_device_name,
    configurable=False,
)
ANY_TORCH = _flag(
    torch_version.ANY_TORCH,
    meaning="With 1, a version of PyTorch that this torch-loom does not know, because it is newer, is tried; "
    "read when torch-loom is built and when torch is imported.",
    configurable=False,
)
REQUIRED = _flag(
    "TORCH_LOOM_REQUIRED",
    meaning="With 1, `import torch` ends the program if the devices cannot be registered; else it warns and "
    "goes on. `loom run` and `pytest --loom` set it. Read when torch is imported.",
    configurable=False,
)
LIBRARIES = _flag(
    "TORCH_LOOM_LIBRARIES",
    default="1",
    meaning="Whether libraries that know devices by a list of names (accelerate, transformers, Lightning, "
    "safetensors) learn that of the devices when they are imported; read when torch is imported.",
    configurable=False,
)
DEVICES = Setting(
    env="TORCH_LOOM_DEVICES",
    type_name="integer",
    default="2",
    allowed=f"0 to {MAX_DEVICES}",
    meaning="How many devices the machine has; as many as a list of chips or memories has, if not set. Under "
    "the name cuda the default is 1, or as many as LOCAL_WORLD_SIZE says, which torchrun sets.",
    parse=parse_devices,
)
CHIP = Setting(
    env="TORCH_LOOM_CHIP",
    type_name="list of names or paths",
    default="loom1",
    allowed="names of shipped chips (`loom chips` lists them) or paths of descriptions (x.toml): one for all "
    "devices, or one for each, separated by commas (h200,h200,atom)",
    meaning="The chip that each device is; atom is the default under the name rbln, h200 under cuda.",
    parse=parse_chips,
)
MEMORY = Setting(
    env="TORCH_LOOM_MEMORY",
    type_name="list of sizes",
    default=None,
    allowed="2MiB to 16TiB, as bytes or with a unit (512MiB, 1.5GiB, 16GB): one for all devices, or one for "
    "each, separated by commas",
    meaning="The capacity of each device, its chip's if not set; only what is touched takes host memory.",
    parse=parse_memories,
)
HOST_MEMORY = Setting(
    env="TORCH_LOOM_HOST_MEMORY",
    type_name="size",
    default=None,
    allowed="2MiB to 16TiB, as bytes or with a unit (8GiB, 8GB)",
    meaning="The most host memory that this process may use, with its devices'; all there is if not set.",
    parse=parse_memory,
)
MEMORY_POLICY = _choice(
    "TORCH_LOOM_MEMORY_POLICY",
    ["eager", "lazy"],
    meaning="Device memory is taken when a tensor is made, or when an op needs it; each chip's if not set.",
)
RBLN_EAGER_MALLOC = _flag(
    "TORCH_RBLN_EAGER_MALLOC",
    meaning="With 1, the memory policy is eager where that is not set; read at the first tensor, only under "
    "the device name rbln.",
    configurable=False,
)
RBLN_DIAGNOSE = _flag(
    "TORCH_RBLN_DIAGNOSE",
    meaning="With 1, `import torch_rbln` imports no torch: `python -m torch_rbln.diagnose` runs without it.",
    configurable=False,
)
RBLN_DEVICES = Setting(
    env="RBLN_DEVICES",
    type_name="list of integers",
    default=None,
    allowed="NPU indices without repetition, separated by commas (0,1); empty for none",
    meaning="What TORCH_LOOM_VISIBLE_DEVICES is, where that is not set; only under the device name rbln.",
    parse=parse_indices,
    configurable=False,
)
RBLN_VISIBLE_DEVICES = Setting(
    env="RBLN_VISIBLE_DEVICES",
    type_name="list of integers",
    default=None,
    allowed="NPU indices without repetition, separated by commas (0,1); empty for none",
    meaning="The newer name of RBLN_DEVICES, which it goes before.",
    parse=parse_indices,
    configurable=False,
)
RBLN_DUMMY_DEVICE = Setting(
    env="RBLN_DUMMY_DEVICE",
    type_name="flag",
    default="0",
    allowed="1, true, t, on, yes, y; 0, false, f, off, no, n",
    meaning="With 1 there is no NPU: tensors, copies and compilation work, and what would execute raises. "
    "RBLN_DEVICE_MAP says how many devices there are, else one; only under the device name rbln.",
    parse=rbln.parse_boolean,
    configurable=False,
)
RBLN_OFFLOAD_DIR = Setting(
    env="RBLN_OFFLOAD_DIR",
    type_name="folder",
    default=rbln.OFFLOAD_FOLDER,
    allowed="a folder or its place",
    meaning="Where torch.rbln.offload() keeps files, in a folder of the process; made at the first one.",
    parse=parse_place,
    configurable=False,
)
RBLN_C10D_ASYNC = _flag(
    "TORCH_RBLN_C10D_ASYNC",
    meaning="With 1, collectives of rbln-ccl run on a thread of the process group beside the program; read "
    "when the group is made.",
    configurable=False,
)
RBLN_NPUS_PER_DEVICE = Setting(
    env="RBLN_NPUS_PER_DEVICE",
    type_name="integer",
    default="1",
    allowed=", ".join(str(size) for size in rbln.SIZES),
    meaning="How many of the visible NPUs make one device, with the memory of all; "
    "only under the device name rbln.",
    parse=rbln.parse_npus_per_device,
    configurable=False,
)
RBLN_DEVICE_MAP = Setting(
    env="RBLN_DEVICE_MAP",
    type_name="groups of integers",
    default=None,
    allowed="groups of visible NPUs, each NPU once ([0,1],[2,3,4,5])",
    meaning="Which NPUs make each device, instead of RBLN_NPUS_PER_DEVICE; only under the device name rbln.",
    parse=rbln.parse_map,
    configurable=False,
)
VISIBLE_DEVICES = Setting(
    env="TORCH_LOOM_VISIBLE_DEVICES",
    type_name="list of integers",
    default=None,
    allowed="device indices without repetition, separated by commas (1,0); empty for none",
    meaning="Which of the devices the program sees, numbered anew from 0 in this order; all if not set.",
    parse=parse_indices,
)
CUDA_VISIBLE_DEVICES = Setting(
    env="CUDA_VISIBLE_DEVICES",
    type_name="list of integers",
    default=None,
    allowed="device indices, separated by commas (1,0); those before the first that is none count",
    meaning="What TORCH_LOOM_VISIBLE_DEVICES is, where that is not set; only under the device name cuda.",
    parse=parse_cuda_devices,
    configurable=False,
)
CUDA_LAUNCH_BLOCKING = Setting(
    env="CUDA_LAUNCH_BLOCKING",
    type_name="flag",
    default="0",
    allowed="0; anything else is yes",
    meaning="With 1, TORCH_LOOM_LAUNCH is blocking where that is not set; only under the device name cuda.",
    parse=parse_cuda_flag,
    configurable=False,
)
CUBLAS_WORKSPACE_CONFIG = Setting(
    env="CUBLAS_WORKSPACE_CONFIG",
    type_name="text",
    default="",
    allowed=":KiB:count, as often as wanted",
    meaning="What the library of matrix products takes of a GPU's memory on each stream. With :4096:8 or "
    ":16:8 products are deterministic to torch.use_deterministic_algorithms. Read at the first product, "
    "under the device name cuda and in dry runs.",
    parse=str,
    configurable=False,
)
CUBLASLT_WORKSPACE_SIZE = Setting(
    env="CUBLASLT_WORKSPACE_SIZE",
    type_name="KiB",
    default="",
    allowed="a whole number",
    meaning="The same of products with a bias, where TORCH_CUBLASLT_UNIFIED_WORKSPACE is 0.",
    parse=str,
    configurable=False,
)
CUBLASLT_UNIFIED_WORKSPACE = _flag(
    "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
    default="1",
    meaning="Whether products with a bias share the workspace of the others.",
    configurable=False,
)
CUDA_VERSION = Setting(
    env="TORCH_LOOM_CUDA_VERSION",
    type_name="version",
    default=None,
    allowed="major.minor (12.8); none",
    meaning="What torch.version.cuda says under the device name cuda. If not set: on a GPU of NVIDIA's the "
    "version that the default wheel of this PyTorch is for, on another chip none.",
    parse=parse_cuda_version,
    configurable=False,
)
NVML = Setting(
    env="TORCH_LOOM_NVML",
    type_name="text",
    default=None,
    allowed="what `loom run` writes",
    meaning="What libnvidia-ml.so.1 and nvidia-smi know of the devices. Written by `loom run` and `import "
    "torch`, not by people; only under the device name cuda.",
    parse=str,
    configurable=False,
)
DRIVER = Setting(
    env="TORCH_LOOM_DRIVER",
    type_name="name or path",
    default="virtual",
    allowed="virtual, null, or the path of a library that has a driver (csrc/driver/driver.h), with a slash",
    meaning="virtual computes on host memory and threads; null computes nothing (shapes and memory only).",
    parse=parse_driver,
)
LAUNCH = _choice(
    "TORCH_LOOM_LAUNCH",
    ["auto", "blocking", "chaos"],
    default="auto",
    meaning="auto overlaps streams; blocking runs work at once; chaos delays and reorders what may be.",
)
ASSERTS = _choice(
    "TORCH_LOOM_ASSERTS",
    ["immediate", "device"],
    meaning="Where an op meets a value that it cannot take, as an index out of range: immediate raises "
    "there; device raises where the host waits, and nothing runs afterwards, as on a GPU. immediate if not "
    "set, device under the name cuda.",
)
RNG = _choice(
    "TORCH_LOOM_RNG",
    ["auto", "cuda", "loom"],
    default="auto",
    meaning="Random numbers of a device: cuda gives those of PyTorch's CUDA kernels on a card of the chip's "
    "size, loom our own; auto is cuda for GPUs under the name cuda.",
)
CHAOS_SEED = Setting(
    env="TORCH_LOOM_CHAOS_SEED",
    type_name="integer",
    default=None,
    allowed=f"0 to {MAX_SEED}",
    meaning="The seed of the order under TORCH_LOOM_LAUNCH=chaos; another one in each process if not set.",
    parse=parse_seed,
)
PROTECT = _flag(
    "TORCH_LOOM_PROTECT",
    meaning="With 1, host code that touches device memory faults, as on a card.",
)
CLOCK = _choice(
    "TORCH_LOOM_CLOCK",
    ["simulated", "wall"],
    default="simulated",
    meaning="What events and profiles measure: the chip's time, simulated, or that of this machine.",
)
SANITIZER = _flag(
    "TORCH_LOOM_SANITIZER",
    meaning="With 1, races between streams are reported from the first use on; in Triton's kernels races "
    "between programs, reads of memory that nothing has written, offsets that wrap around; in CUDA C++ races "
    "between threads of a block on shared memory.",
)
CUDA_SANITIZER = Setting(
    env="TORCH_CUDA_SANITIZER",
    type_name="anything",
    default=None,
    allowed="anything: that it is set counts, as in CUDA",
    meaning="The same as TORCH_LOOM_SANITIZER=1, for programs that have CUDA's name of it.",
    parse=str,
    configurable=False,
)
MACHINE = Setting(
    env="TORCH_LOOM_MACHINE",
    type_name="name",
    default="default",
    allowed="1 to 64 letters, digits and underscores; none to be alone",
    meaning="Processes of one user that name the same machine see each other's use of its devices.",
    parse=parse_machine,
    configurable=False,
)

COLLECTIVES = _choice(
    "TORCH_LOOM_COLLECTIVES",
    ["check", "nccl"],
    meaning="What happens where ranks call collectives that do not belong together: check raises on all of "
    "them, with both lines; nccl waits until the time is over and ends the process, as NCCL's watchdog. "
    "check if not set, and nccl under the name cuda where a variable of that watchdog is set.",
    configurable=False,
)

TOPOLOGY = Setting(
    env="TORCH_LOOM_TOPOLOGY",
    type_name="name or path",
    default=None,
    allowed="the name of a shipped topology (dgx-h100) or the path of a description (x.toml)",
    meaning="The cluster that collectives take the time of; that of the chip if not set and there is one.",
    parse=str,
    configurable=False,
)

HOST_ISSUE = Setting(
    env="TORCH_LOOM_HOST_ISSUE",
    type_name="number",
    default=None,
    allowed="microseconds, 0 to 1000000",
    meaning="What the host takes to issue a command: a slow one, or a framework with much Python around each "
    "op, makes small steps wait for it; the chip's figure if not set. Read when devices are made.",
    parse=parse_microseconds,
    configurable=False,
)

COMPILER = Setting(
    env="TORCH_LOOM_COMPILER",
    type_name="command",
    default="c++",
    allowed="a C++17 compiler that takes GCC's options",
    meaning="What compiles the kernels that a program gives as text; read at each compilation.",
    parse=str,
    configurable=False,
)
CHECK_KERNELS = _flag(
    "TORCH_LOOM_CHECK_KERNELS",
    meaning="With 1, CUDA C++ is compiled with a check of each access to memory, which names what is out of "
    "bounds. TORCH_LOOM_SANITIZER=1 does it, too.",
    configurable=False,
)
INDUCTOR = _choice(
    "TORCH_LOOM_INDUCTOR",
    ["cpp", "triton"],
    default="cpp",
    meaning="What torch.compile generates under the name cuda: C++, or what it generates on a GPU, Triton's "
    "kernels, which run slower here.",
    configurable=False,
)
AUTOTUNE = _choice(
    "TORCH_LOOM_AUTOTUNE",
    ["first", "model"],
    default="first",
    meaning="Which configuration triton.autotune takes: the first that the pruning leaves, or the fastest "
    "by the cost model of the device's chip.",
    configurable=False,
)
KERNEL_TIMEOUT = Setting(
    env="TORCH_LOOM_KERNEL_TIMEOUT",
    type_name="seconds",
    default="600",
    allowed="a number of seconds; 0: no limit",
    meaning="How long a launch of a kernel of a program's own, of Triton or CUDA C++, may take before it is "
    "an error, which names the kernel and the program or block.",
    parse=parse_seconds,
    configurable=False,
)
KERNEL_CACHE_LIMIT = Setting(
    env="TORCH_LOOM_KERNEL_CACHE_LIMIT",
    type_name="size",
    default="4GiB",
    allowed="2MiB to 16TiB, as bytes or with a unit (8GiB, 8GB)",
    meaning="How much the folder of compiled kernels may take: those that were used longest ago are removed.",
    parse=parse_memory,
    configurable=False,
)
KERNEL_REPORT = Setting(
    env="TORCH_LOOM_KERNEL_REPORT",
    type_name="folder",
    default=None,
    allowed="a folder, or its place",
    meaning="Where each process writes at its end which kernels of its own it launched, as JSON: `loom "
    "kernels` sets it.",
    parse=parse_place,
    configurable=False,
)
KERNEL_CACHE = Setting(
    env="TORCH_LOOM_KERNEL_CACHE",
    type_name="folder",
    default=KERNEL_CACHE_FOLDER,
    allowed="a folder that this user owns and nobody else may write, or its place",
    meaning="Where compiled kernels are kept; made at the first compilation. Empty: the default.",
    parse=parse_folder,
    configurable=False,
)
COMPILE_CACHE = Setting(
    env="TORCH_LOOM_COMPILE_CACHE",
    type_name="folder",
    default=COMPILE_CACHE_FOLDER,
    allowed="a folder or its place; off",
    meaning="Where torch_loom.compile keeps what it has compiled. Empty: the default; off: nowhere.",
    parse=parse_compile_cache,
    configurable=False,
)
MATMUL = _choice(
    "TORCH_LOOM_MATMUL",
    ["engine", "tensor_core"],
    default="engine",
    meaning="Whose sums products have in the thread that imports torch: the CPU's kernels', or those of the "
    "matrix instructions of TORCH_LOOM_CHIP, as under torch_loom.numerics.tensor_core.",
    configurable=False,
)
NUMERICS = _choice(
    "TORCH_LOOM_NUMERICS",
    ["fast", "silicon"],
    default="fast",
    meaning="Whose sums PyBuda's Silicon devices of Tensix chips have: float32's, rounded once, or the "
    "matrix unit's own (docs/numerics.md).",
    configurable=False,
)
FALLBACK = _choice(
    "TORCH_LOOM_FALLBACK",
    ["allow", "warn", "error"],
    default="allow",
    meaning="What an op or a dtype that the chip does not do itself is: logged, warned of, or refused.",
)
RBLN_DISABLE_FALLBACK = Setting(
    env="TORCH_RBLN_DISABLE_FALLBACK",
    type_name="list of words",
    default=None,
    allowed=", ".join(rbln.FALLBACKS),
    meaning="With unsupported_op or all, TORCH_LOOM_FALLBACK is error where not set; only under rbln.",
    parse=rbln.parse_fallbacks,
    configurable=False,
)
LOG_LEVEL = _choice(
    "TORCH_LOOM_LOG_LEVEL",
    ["DEBUG", "INFO", "WARNING", "ERROR"],
    meaning="The level of the logger torch_loom, written to stderr; Python's logging decides if not set.",
)
RBLN_LOG_LEVEL = _choice(
    "TORCH_RBLN_LOG_LEVEL",
    ["DEBUG", "INFO", "WARNING", "ERROR"],
    meaning="TORCH_LOOM_LOG_LEVEL where that is not set; only under the device name rbln.",
    configurable=False,
)

SETTINGS: tuple[Setting[object], ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Setting)
)
"""All of them, in the order in which they stand here."""
