"""C++ of a kernel: a function for one program of a launch, and the entry that runs some of its programs."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from torch_loom.kernels.emission import elements
from torch_loom.kernels.emission.function import FunctionText
from torch_loom.kernels.emission.ordered import quoted
from torch_loom.kernels.emission.origins import Origins
from torch_loom.kernels.emission.types import cpp_type
from torch_loom.kernels.lowering import lower
from torch_loom.kernels.lowering import ops as kinds
from torch_loom.kernels.lowering.plan import LoweredFunction
from torch_loom.kernels.ttir.model import Function, Module, Op, Pointer, Scalar, Value

_HEADERS = ("numbers.h", "functions.h", "products.h", "kernel.h")
_BLOCK_ALIGNMENT = 64


@dataclass(frozen=True)
class Emitted:
    """A kernel as C++.

    Attributes:
        text: the text, which defines ``loom_entry_``.
        name: of the kernel.
        parameters: for each argument of the kernel, in order: ``p`` an address, ``i`` a whole number, ``f``,
            ``d``, ``h``, ``b`` a float of 32, 64, 16 bits, a bfloat16.
        are_written: for each address among them, whether the kernel writes there.
        block_bytes: how much memory a program needs for its blocks.
        checks: how many loads and stores are checked at the ``ends`` of their blocks, at those of ``rows``,
            and at ``each`` element.
    """

    text: str
    name: str
    parameters: str
    are_written: tuple[bool, ...]
    block_bytes: int
    checks: dict[str, int]


def emit(module: Module, *, is_watched: bool = False, num_threads: int = 128) -> Emitted:
    """Return the C++ of a kernel.

    Args:
        module: the kernel and what it calls.
        num_threads: how many a GPU has for a program; each of them prints.
        is_watched: report each access to the sanitizer, and look for offsets that wrap around.

    Raises:
        UnsupportedKernelError: an op or a type in it is not compiled; the message names its line.
    """
    return KernelText(module, is_watched=is_watched, num_threads=num_threads).emitted()


class KernelText:
    """The text of a kernel and what its functions share."""

    def __init__(self, module: Module, *, is_watched: bool, num_threads: int) -> None:
        self.is_watched = is_watched
        self.num_threads = num_threads
        lowered = lower(module)
        self.functions = {function.function.name: function for function in lowered.functions}
        self.kernel = self.functions[module.kernel.name]
        self.once = None if is_watched else lowered.once
        self.bounds = lowered.bounds
        self._blocks = 0
        self._sites: dict[tuple[str, str, str, int], int] = {}
        self._origins: dict[FunctionText, Origins] = {}
        self._written: set[int] = set()
        self.checks: Counter[str] = Counter()
        self.has_assembly = False
        self.has_libdevice = any(
            op.name == "tt.extern_elementwise" for function in module.functions for op in function.walk()
        )

    def emitted(self) -> Emitted:
        bodies = [
            self._function(function) for function in self.functions.values() if function is not self.kernel
        ]
        kernel, parameters = self._kernel()
        arguments = self.kernel.function.arguments
        pointers = [number for number, each in enumerate(arguments) if isinstance(each.type, Pointer)]
        declared = [
            self._signature(function) + ";"
            for function in self.functions.values()
            if function is not self.kernel
        ]
        sites = [
            f"{{{quoted(what)}, {quoted(place)}, {quoted(argument)}, {number}}},"
            for what, place, argument, number in self._sites
        ]
        lines = [
            *(["#define LOOM_WATCHED"] if self.is_watched else []),
            prelude(has_assembly=self.has_assembly, has_libdevice=self.has_libdevice),
            "namespace loom {",
            "namespace {",
            "const Site sites[] = {",
            *sites,
            '{"", "", "", 0}};',
            *declared,
            *(line for body in bodies for line in body),
            *kernel,
            "}  // namespace",
            "}  // namespace loom",
            f"constexpr int loom_num_memories_ = {len(pointers)};",
            _ENTRY,
        ]
        written = tuple(number in self._written for number in range(len(pointers)))
        return Emitted(
            "\n".join(lines) + "\n",
            self.kernel.function.name,
            parameters,
            written,
            self._blocks,
            dict(self.checks),
        )

    # -------------------------------------------------------------- for functions

    def reserve(self, count: int) -> int:
        """Return where memory of a function begins; all blocks of all functions have their own."""
        begin = self._blocks
        self._blocks += -(-count // _BLOCK_ALIGNMENT) * _BLOCK_ALIGNMENT
        return begin

    def site(self, function: FunctionText, op: Op) -> str:
        """Return C++ of the record of a load or store, for errors."""
        is_write = op.name in kinds.STORES or op.name in kinds.ORDERED
        number = self.argument(function, op)
        argument = self._pointers()[number].name if number >= 0 else ""
        if is_write and number >= 0:
            self._written.add(number)
        return self._site("writes" if is_write else "reads", op, argument, number)

    def site_of_assembly(self, op: Op, *, is_write: bool) -> str:
        """Return C++ of the record of an access by inline assembly: its address may be any argument's."""
        if is_write:
            self._written.update(range(len(self._pointers())))
        return self._site("writes" if is_write else "reads", op, "", -1)

    def _site(self, what: str, op: Op, argument: str, number: int) -> str:
        key = (what, str(op.place), argument, number)
        return f"sites[{self._sites.setdefault(key, len(self._sites))}]"

    def argument(self, function: FunctionText, op: Op) -> int:
        """Return which address among the arguments the address of an access comes from; -1: not known."""
        if function.lowered is not self.kernel and function.lowered is not self.once:
            return -1
        if function not in self._origins:
            self._origins[function] = Origins(function.lowered)
        origin = self._origins[function].of(op.operands[0])
        return -1 if origin is None else self._pointers().index(origin)

    def _pointers(self) -> list[Value]:
        return [argument for argument in self.kernel.function.arguments if isinstance(argument.type, Pointer)]

    def call(self, function: FunctionText, op: Op) -> list[str]:
        callee = self.functions.get(str(op.attributes.get("callee")))
        if callee is None:
            raise elements.refused(op, f"the call of {op.attributes.get('callee')}")
        lines: list[str] = []
        arguments = ["program"]
        for value in op.operands:
            if kinds.is_number(value.type):
                arguments.append(function.number(value))
                continue
            if value in function.lowered.inline:
                place = function.scratch(function.element_type(value), value.type.size)  # type: ignore[union-attr]
                lines += function.fill(value, place)
                arguments.append(place)
            else:
                arguments.append(function.buffer(value))
        for result in op.results:
            if kinds.is_number(result.type):
                lines += function.declare(result)
                arguments.append(function.number(result))
            else:
                arguments.append(function.buffer(result))
        return [*lines, f"function_{_identifier(callee.function.name)}({', '.join(arguments)});"]

    def returned(self, function: FunctionText, end: Op) -> list[str]:
        lines: list[str] = []
        for number, value in enumerate(end.operands):
            if kinds.is_number(value.type):
                lines.append(f"result{number} = {function.number(value)};")
            else:
                lines += function.fill(value, f"result{number}")
        return lines

    # ------------------------------------------------------------------ functions

    def _signature(self, lowered: LoweredFunction) -> str:
        parts = ["const Program& program"]
        for number, value in enumerate(lowered.function.arguments):
            kind = _cpp(value)
            is_number = kinds.is_number(value.type)
            parts.append(f"const {kind} {'' if is_number else '*'}argument{number}")
        for number, result in enumerate(lowered.function.results):
            kind = _cpp(Value("", result))
            parts.append(f"{kind} {'&' if kinds.is_number(result) else '*'}result{number}")
        return f"void function_{_identifier(lowered.function.name)}({', '.join(parts)})"

    def _function(self, lowered: LoweredFunction) -> list[str]:
        function = FunctionText(self, lowered)
        for number, value in enumerate(lowered.function.arguments):
            if kinds.is_number(value.type):
                function.set_number(value, f"argument{number}")
            else:
                function.set_buffer(value, f"argument{number}")
        return [f"{self._signature(lowered)} {{", *function.lines(), "}"]

    def _kernel(self) -> tuple[list[str], str]:
        arguments = self.kernel.function.arguments
        letters = "".join(_parameter(self.kernel.function, argument)[0] for argument in arguments)
        if self.once is None:
            return self._run(FunctionText(self, self.kernel), "run_program"), letters
        begin, checks = self._blocks, Counter(self.checks)
        once = self._run(FunctionText(self, self.once), "run_once")
        # One of the two runs: they share memory, and the checks are those of the kernel as it is written.
        once_end, self._blocks, self.checks = self._blocks, begin, checks
        loops = self._run(FunctionText(self, self.kernel), "run_loops")
        self._blocks = max(self._blocks, once_end)
        tests = []
        for bound in self.bounds:
            place = arguments.index(bound.end)
            end = _parameter(self.kernel.function, bound.end)[2].format(f"program.numbers[{place}]")
            tests.append(f"{end} > {bound.begin} && {end} <= {bound.begin + bound.step}")
        return [
            *loops,
            "// The same without loops that run once.",
            *once,
            "void run_program(const Program& program) {",
            f"if ({' && '.join(tests)}) return run_once(program);",
            "run_loops(program);",
            "}",
        ], letters

    def _run(self, function: FunctionText, name: str) -> list[str]:
        head = []
        for number, value in enumerate(function.lowered.function.arguments):
            _, kind, read = _parameter(function.lowered.function, value)
            read = read.format(f"program.numbers[{number}]")
            head.append(f"const {kind} {function.number(value)} = {read};")
        return [f"void {name}(const Program& program) {{", *head, *function.lines(), "}"]


def _parameter(function: Function, value: Value) -> tuple[str, str, str]:
    """Return the letter of a parameter, its C++ type, and how it is read from 64 bits."""
    kind = cpp_type(value.type)
    if kind is None:
        raise elements.refused(Op("an argument", place=function.place), f"an argument of type {value.type}")
    if isinstance(value.type, Pointer):
        return "p", kind, "{0}"
    assert isinstance(value.type, Scalar)
    if value.type.is_integer:
        return "i", kind, f"{kind}({{0}})"
    letter = {"float": "f", "double": "d", "f16": "h", "bf16": "b"}.get(kind, "h")
    bits = {"f": "uint32_t", "d": "uint64_t", "h": "uint16_t", "b": "uint16_t"}[letter]
    return letter, kind, f"bits_as<{kind}>({bits}({{0}}))"


def _cpp(value: Value) -> str:
    from torch_loom.kernels.ttir.model import element_of

    return elements.type_name(Op("an argument"), element_of(value.type))


def _identifier(name: str) -> str:
    return "".join(each if each.isalnum() else f"_{ord(each):x}_" for each in name)


@functools.cache
def prelude(*, has_assembly: bool, has_libdevice: bool) -> str:
    """Return the text of the headers that a kernel begins with."""
    folder = Path(__file__).parent / "cpp"
    names = [*_HEADERS, *["assembly.h"] * has_assembly, *["libdevice.h"] * has_libdevice]
    texts = [(folder / name).read_text(encoding="utf-8") for name in names]
    lines = [
        line
        for text in texts
        for line in text.splitlines()
        if not line.startswith(("#pragma once", '#include "'))
    ]
    return "\n".join(lines)


# numbers: the grid, the first program and the one behind the last, `find`, `watcher`, `ask` and what it is
# given, `multiply` and its rules, then the arguments. addresses: the begin and end of the memory of each
# argument that is an address. scalars: memory for blocks.
_ENTRY = r"""
extern "C" const char* loom_entry_(void* const* addresses, const int64_t* numbers, const char* scalars) {
  static thread_local loom::Failure failure;
  loom::Program program;
  program.numbers = numbers + 11;
  program.memories = reinterpret_cast<const loom::Memory*>(addresses);
  program.num_memories = loom_num_memories_;
  for (int i = 0; i < 3; ++i) program.count[i] = static_cast<int32_t>(numbers[i]);
  program.blocks = const_cast<char*>(scalars);
  program.find = reinterpret_cast<loom::Found (*)(int64_t)>(numbers[5]);
  program.found = {0, 0, 0};
  program.watcher = reinterpret_cast<loom::Watcher*>(numbers[6]);
  program.ask = reinterpret_cast<const char* (*)(void*)>(numbers[7]);
  program.run = reinterpret_cast<void*>(numbers[8]);
  program.multiply = reinterpret_cast<decltype(program.multiply)>(numbers[9]);
  program.rules = reinterpret_cast<const void*>(numbers[10]);
  program.turns = 0;
  try {
    const int64_t begin = numbers[3];
    if (begin < numbers[4]) {
      program.id[0] = static_cast<int32_t>(begin % numbers[0]);
      program.id[1] = static_cast<int32_t>(begin / numbers[0] % numbers[1]);
      program.id[2] = static_cast<int32_t>(begin / numbers[0] / numbers[1]);
    }
    for (int64_t one = begin; one < numbers[4]; ++one) {
      program.number = one;
      if ((one & 255) == 255) loom::ask(program, "a launch of many programs");
      loom::run_program(program);
      // Counted on: four divisions take as long as a small program.
      if (++program.id[0] < numbers[0]) continue;
      program.id[0] = 0;
      if (++program.id[1] < numbers[1]) continue;
      program.id[1] = 0;
      ++program.id[2];
    }
  } catch (const loom::Failure& thrown) {
    failure = thrown;
    return failure.text;
  }
  return nullptr;
}
"""
