"""PyBuda's enumerations, with their values."""

from __future__ import annotations

import enum


class _Named(enum.Enum):
    """An enumeration that can be read from its members' names."""

    @classmethod
    def from_string(cls, text: str) -> _Named:
        """Return the member of this name, in any case; Invalid where there is one and none fits.

        Raises:
            ValueError: no member has that name.
        """
        for name, member in cls.__members__.items():
            if name.lower() == text.lower():
                return member
        if "Invalid" in cls.__members__:
            return cls.__members__["Invalid"]
        raise ValueError(f"{text!r} is no {cls.__name__}: {', '.join(cls.__members__)}")

    def to_string(self) -> str:
        """Return the member's name."""
        return self.name


class BackendType(_Named):
    """What executes: silicon, or a model of it."""

    Model = 0
    Versim = 1
    Silicon = 2
    Golden = 3
    Emulation = 4
    NoBackend = 5


class BackendDevice(_Named):
    """Tenstorrent's chips."""

    Grayskull = 0
    Wormhole_B0 = 1
    Blackhole = 2
    Invalid = 255


class DeviceMode(_Named):
    """Whether a device compiles, runs, or both."""

    CompileAndRun = 0
    CompileOnly = 1
    RunOnly = 2


class PerfTraceLevel(_Named):
    """How much a performance trace holds."""

    NONE = 0
    LIGHT = 1
    VERBOSE = 2


class CompileDepth(_Named):
    """After which stage a compilation stops."""

    INIT_COMPILE = 0
    GENERATE_INITIAL_GRAPH = 1
    POST_INITIAL_GRAPH_PASS = 2
    CONSTEVAL_GRAPH = 3
    POST_PATTERN_MATCHER = 4
    OPTIMIZED_GRAPH = 5
    AUTOGRAD = 6
    POST_AUTOGRAD_PASS = 7
    PRE_LOWERING_PASS = 8
    BUDA_GRAPH_PRE_PLACER = 9
    BALANCER_PASS = 10
    PRE_NETLIST_PASS = 11
    GENERATE_NETLIST = 12
    BACKEND_GOLDEN_VERIFY = 13
    FULL = 14


DRAMPlacementAlgorithm = enum.Enum(
    "DRAMPlacementAlgorithm",
    ["ROUND_ROBIN", "ROUND_ROBIN_FLIP_FLOP", "GREATEST_CAPACITY", "CLOSEST"],
    start=0,
    module=__name__,
)
PolicyType = enum.Enum(
    "PolicyType",
    ["MaximizeTMinimizeGrid", "MinimizeGrid", "Random", "NLP", "CNN", "Ribbon", "SingleOpPerEpoch"],
    start=0,
    module=__name__,
)
ChipPlacementPolicy = enum.Enum("ChipPlacementPolicy", ["MMIO_LAST", "SNAKE"], start=0, module=__name__)
SchedulerPolicy = enum.Enum("SchedulerPolicy", ["Topological", "ModuleInputsBFS"], start=0, module=__name__)
GraphSolverSelfCutType = enum.Enum(
    "GraphSolverSelfCutType",
    ["None", "ConsumerOperandDataEdgesFirst", "ProducerUserDataEdgesFirst", "FastCut"],
    start=0,
    module=__name__,
)
NodeEpochType = enum.Enum("NodeEpochType", ["Forward", "Backward", "Optimizer"], start=0, module=__name__)
RuntimeTensorTransformType = enum.Enum(
    "RuntimeTensorTransformType",
    [
        "NoTransform",
        "ReinterpretShape",
        "Prestride",
        "EmbeddingIndex",
        "ConstantInput",
        "Unpad",
        "Concatenate",
    ],
    start=0,
    module=__name__,
)
COMPILE_FAILURE = enum.Enum(
    "COMPILE_FAILURE",
    [
        "BriscCompile",
        "EriscCompile",
        "NriscCompile",
        "Net2Pipe",
        "PipeGen",
        "BlobGen",
        "L1Size",
        "OverlaySize",
        "Invalid",
    ],
    start=0,
    module=__name__,
)
TTIDumpFormat = enum.Enum(
    "TTIDumpFormat", ["DEFAULT", "BACKEND", "BACKEND_TILIZED"], start=0, module=__name__
)


class TestKind(_Named):
    """What a verification checks."""

    __test__ = False  # no class of tests

    INFERENCE = 1
    TRAINING = 2
    TRAINING_RECOMPUTE = 3

    def is_training(self) -> bool:
        """Whether this kind trains."""
        return self is not TestKind.INFERENCE

    def is_recompute(self) -> bool:
        """Whether this kind computes the forward again in the backward."""
        return self is TestKind.TRAINING_RECOMPUTE

    @classmethod
    def get(cls, training: bool, recompute: bool = False) -> TestKind:
        """Return the kind that trains or not, and recomputes or not."""
        if not training:
            return cls.INFERENCE
        return cls.TRAINING_RECOMPUTE if recompute else cls.TRAINING
