"""Turns preprocessed CUDA C++ into C++: launches, addresses of kernels, shared memory, inline PTX.

Works on what the preprocessor has made of a source, so that macros and headers of the program count, and
`>>` that closes templates does not. All else that CUDA adds to C++ is in the headers.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator

from torch_loom.kernels.cuda_cpp import ptx
from torch_loom.kernels.cuda_cpp.source_text import (
    CLOSES,
    Lines,
    applied,
    back,
    back_over_group,
    back_over_templates,
    is_in_function,
    is_in_string,
    joined,
    matches,
    skip,
    skip_templates,
)

# How the headers mark kernels, what lives on the device, and shared memory.
_KERNEL = re.compile(r"\b__loom_global__\b")
_SHARED_WORD = "__loom_shared__"
_ON_DEVICE = re.compile(r"\b__loom_device__\b(?:\s*\b__loom_device__\b)*")
_SHARED = re.compile(
    r"\b(?:(extern)\s+((?:[\w:<>,*]+\s+)*?)|static\s+)?__loom_shared__\b(?:\s*\b(?:(extern)|static)\b)?"
)
_LAUNCH = re.compile(r"<<\s*<")
_MEMBER_WITH_ARGUMENTS = re.compile(
    r"(?<=[\w>)\]}])\s*(?:::|\.|->)\s*(?!template\b|operator\b)(?=(?P<name>\w+)\s*<(?![<=]))"
)
_NULL = re.compile(r"(?<![\w.])(?:NULL|__null)(?!\w)")
_NOINLINE = re.compile(r"\b__noinline__\b(?!\s*[,)])")
_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b")
_ASM_WORDS = ("asm", "__asm")
_LAUNCH_CALLS = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel")
_LAUNCH_BY_POINTER = re.compile(
    r"\b(cudaLaunchKernel|cudaLaunchCooperativeKernel|cudaLaunchKernelExC)\s*\(\s*"
    r"\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)"
)
_CAST_TO_POINTER = re.compile(
    r"(?:\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)\s*"
    r"|\breinterpret_cast\s*<\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*>\s*\(\s*)&?\s*(?=[A-Za-z_:])"
)
_NAME = re.compile(r"(?:::\s*)?(?:\w+\s*::\s*)*(?P<last>\w+)\s*")
_ATTRIBUTE = re.compile(
    r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)|\balignas\s*\([^()]*\)"
)
_ARRAY = re.compile(r"^(.+?[\s*&>])\s*(\w+)\s*\[[^\]]*\]((?:\s*\[[^\]]*\])*)\s*$", re.DOTALL)
_STANDS_FIRST = re.compile(r"(?:\s*(?:alignas\s*\((?:[^()]|\([^()]*\))*\)|\[\[[^\]]*\]\])\s*)+")

_MOST_SHARED = 1 << 20
_LONGEST_TYPE = 400  # characters in front of the name of a variable
# What is said already, no variable, or a member that is defined outside of its class.
_NO_OWN_VARIABLE = re.compile(r"\b(?:static|extern|inline|friend|using|\w+\s*::\s*\w+\s*$)")


class RefusedError(Exception):
    """What cannot be compiled, with the place in the program's source."""

    def __init__(self, file: str, line: int, what: str) -> None:
        super().__init__(f"{file}:{line}: error: {what}")
        self.file = file
        self.line = line
        self.what = what


def rewrite(text: str, *, is_relocatable: bool = False, refused: list[RefusedError] | None = None) -> str:
    """Return C++ of the same meaning, with the same lines.

    Args:
        text: what the preprocessor returns, with its line markers.
        is_relocatable: whether other sources know the device's variables, as under nvcc's ``-rdc=true``.
        refused: collects inline PTX that has no translation, if given. In its place stands a call of
            ``loom_refused_`` and its number in this list, which the compiler refuses in code that it emits.

    Raises:
        RefusedError: the source needs what there is not here.
    """
    text = joined(text)
    lines = Lines(text)
    by_pointer = [(m.start(), m.end(), f"{m[1]}(") for m in matches(_LAUNCH_BY_POINTER, _LAUNCH_CALLS, text)]
    edits = [*_launches(text, lines), *_shared(text, lines), *_assembly(text, lines, refused), *by_pointer]
    edits += [
        (m.start(), m.end(), "__attribute__((noinline))") for m in matches(_NOINLINE, ("__noinline__",), text)
    ]
    edits += _addresses(text, lines, [(begin, end) for begin, end, _ in edits])
    edits += [(m.start(), m.end(), "") for m in _kernels(text)]
    edits += _variables(text, lines, is_relocatable)
    return applied(text, edits)


def with_template_words(text: str) -> str:
    """Return a rewritten text with the word ``template`` in front of member templates that are called.

    nvcc's front end does without it. A comparison may be taken for a call: this is for code that does not
    compile as it is.
    """
    lines = Lines(text)
    names = set(_function_templates(text, lines))
    edits = []
    for found in _MEMBER_WITH_ARGUMENTS.finditer(text):
        at = found.end()
        if found["name"] not in names or lines.at(at).is_system or is_in_string(text, at):
            continue
        opening = text.index("<", at)
        rest = text[opening + 1 : opening + _LONGEST_TYPE]
        is_call = re.compile(r">\s*\(").match(rest, skip_templates(rest, 0)) is not None
        statement = re.split(r"[;{}]", text[max(0, at - _LONGEST_TYPE) : at])[-1]
        is_declared = re.match(r"\s*(?:template|friend)\b", statement) is not None
        if is_call and not is_declared and is_in_function(text, at):
            edits.append((at, at, "template "))
    return applied(text, edits)


def _function_templates(text: str, lines: Lines) -> Iterator[str]:
    for found in re.finditer(r"\btemplate\s*<", text):
        if lines.at(found.start()).is_system:
            continue
        begin = skip_templates(text, found.end()) + 1
        declared = _ATTRIBUTE.sub(" ", text[begin : begin + _LONGEST_TYPE])
        name = re.match(r"[^(;{}=]*?\b(\w+)\s*\(", declared)
        if name is not None:
            yield name[1]


def _launches(text: str, lines: Lines) -> Iterator[tuple[int, int, str]]:
    for found in _LAUNCH.finditer(text):
        begin, end = found.span()
        if text[:begin].rstrip()[-8:] == "operator" or is_in_string(text, begin):
            continue
        place = lines.at(begin)
        first = _kernel_start(text, begin)
        configuration_end = skip(text, end, ">")
        opening = text.find("(", configuration_end)
        closing = skip(text, opening + 1, ")")
        kernel = text[first:begin].strip()
        if not kernel or configuration_end == len(text) or closing >= len(text):
            if place.is_system:
                continue
            raise RefusedError(
                place.file, place.line, "<<< begins no launch: kernel<<<grid, block>>>(arguments)"
            )
        arguments = text[opening + 1 : closing]
        name = " ".join(kernel.split()).replace("\\", "\\\\").replace('"', '\\"')
        file = place.file.replace("\\", "").replace('"', "")
        comma = "," if arguments.strip() else ""
        call = f"[=](auto... loom_given) {{ {kernel}(loom_given...); }}"
        described = f'"{name}", "{file}:{place.line}", {call}, ::loom_cuda::Configuration('
        # What stands in the configuration and in the arguments, a lambda of the device or another launch, is
        # left to edits of its own.
        yield first, end, f"::loom_cuda::launch({described}"
        yield configuration_end, opening + 1, f"){comma}"
        for null in _NULL.finditer(text, opening + 1, closing):
            if not is_in_string(text, null.start()):
                yield *null.span(), "nullptr"


def _addresses(text: str, lines: Lines, taken: list[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
    """A kernel as an address without a type, by which it may be launched elsewhere.

    Args:
        taken: what other edits replace, from where to where.
    """
    kernels = set(_kernel_names(text))
    begins = sorted(taken)
    for found in _casts(text, lines) if kernels else ():
        begin, end = found.span()
        name = _NAME.match(text, end)
        if name is None or name["last"] not in kernels or text.startswith((".", "->", "[", "("), name.end()):
            continue
        before = bisect.bisect_right(begins, (begin, len(text))) - 1
        if before >= 0 and begins[before][1] > begin:
            continue
        is_template = text.startswith("<", name.end()) and not text.startswith("<<", name.end())
        after = skip_templates(text, name.end() + 1) + 1 if is_template else name.end()
        yield begin, end, "::loom_cuda::kernel_address("
        if not found[0].startswith("reinterpret_cast"):  # whose own bracket closes the call
            yield after, after, ")"


def _casts(text: str, lines: Lines) -> Iterator[re.Match[str]]:
    for begin, end in lines.own():
        yield from _CAST_TO_POINTER.finditer(text, begin, end)


def _kernels(text: str) -> Iterator[re.Match[str]]:
    return matches(_KERNEL, ("__loom_global__",), text)


def _kernel_names(text: str) -> Iterator[str]:
    for found in _kernels(text):
        opening = text.find("(", found.end())
        declared = _ATTRIBUTE.sub(" ", text[found.end() : opening + 200])
        name = re.match(r"[^(;{]*?\b(\w+)\s*(?:<[^(;{]*>\s*)?\(", declared)
        if name is not None:
            yield name[1]


def _kernel_start(text: str, at: int) -> int:
    """Where the expression begins that names the kernel and ends in front of ``at``."""
    first = at
    while True:
        at = back(text, at)
        if at > 0 and text[at - 1] == ">" and text[at - 2 : at] != "->":
            at = back(text, back_over_templates(text, at))
        if at > 0 and text[at - 1] in ")]":
            at = back(text, back_over_group(text, at))
        while at > 0 and (text[at - 1].isalnum() or text[at - 1] == "_"):
            at -= 1
        first = at
        before = back(text, at)
        if text[max(0, before - 8) : before] == "template":
            before = back(text, before - 8)
        if text[max(0, before - 2) : before] in ("::", "->"):
            at = before - 2
            if text[before - 2] == ":" and not re.search(r"[\w>]\s*$", text[max(0, at - 200) : at]):
                return at  # ::kernel
        elif before > 0 and text[before - 1] == ".":
            at = before - 1
        else:
            return first


def _shared(text: str, lines: Lines) -> Iterator[tuple[int, int, str]]:
    known: list[tuple[int, list[str]]] = []
    for found in _shared_words(text):
        begin, end = found.span()
        if found[1] is None and found[3] is None:
            yield from _specified(text, begin, end, "static thread_local")
            yield from _noted(text, end, known)
            continue
        closing = text.find(";", end)
        # The word may stand behind the type, too.
        declared = _ARRAY.match(_ATTRIBUTE.sub(" ", (found[2] or "") + text[end:closing]).strip())
        place = lines.at(begin)
        if declared is None:
            raise RefusedError(
                place.file,
                place.line,
                "extern __shared__ declares an array: extern __shared__ float name[];",
            )
        kind, name, rest = declared[1].strip(), declared[2], declared[3].strip()
        # An array, since programs look at it as something else: reinterpret_cast<Storage&>(name). Its size is
        # more than a block can have.
        array = f"{kind} (*)[{_MOST_SHARED}]{rest}"
        memory = f"*reinterpret_cast<{array}>(::loom_cuda::dynamic_shared())"
        if is_in_function(text, begin):
            yield begin, closing + 1, f"auto& {name} = {memory};"
            continue
        # Each function has the memory of its own launch.
        yield begin, closing + 1, ""
        for use in re.compile(rf"\b{name}\b").finditer(text, closing):
            if not lines.at(use.start()).is_system:
                yield use.start(), use.end(), f"({memory})"


def _shared_words(text: str) -> Iterator[re.Match[str]]:
    """The word with those in front of it that belong to it."""
    end = 0
    at = text.find(_SHARED_WORD)
    while at >= 0:
        statement = max(text.rfind(closing, end, at) + 1 for closing in ";{}")
        if found := _SHARED.search(text, max(end, statement)):
            yield found
            end = found.end()
        at = text.find(_SHARED_WORD, max(end, at + 1))


def _noted(text: str, at: int, known: list[tuple[int, list[str]]]) -> Iterator[tuple[int, int, str]]:
    """Behind a declaration in a function: where races are looked for, its variables are shared memory.

    Args:
        known: where declarations in front of it end, with their variables; those that it does not see go.
    """
    closing = skip(text, at, ";")
    if not is_in_function(text, at) or closing >= len(text):
        return
    declared = _ATTRIBUTE.sub(" ", text[at:closing])
    declared = declared[declared.rfind("}") + 1 :]
    names = [re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", declarator) for declarator in _declarators(declared)]
    own = [name[1] for name in names if name is not None]
    known[:] = [*((end, seen) for end, seen in known if _is_seen(text, end, at)), (closing, own)]
    notes = [f"::loom_cuda::note_shared({name});" for name in own]
    # A name that hides another counts once: what it hides cannot be named here.
    bytes_of = [f"sizeof({name})" for name in dict.fromkeys(name for _, seen in known for name in seen)]
    if bytes_of:
        # What ptxas says.
        fits = f"{' + '.join(bytes_of)} <= ::loom_cuda::kMostStaticShared"
        notes.append(f'static_assert({fits}, "uses too much shared data");')
    yield closing + 1, closing + 1, " " + " ".join(notes)


def _is_seen(text: str, begin: int, at: int) -> bool:
    """Return whether the block that holds ``begin`` goes on until ``at``."""
    depth = 0
    for brace in re.compile(r"[{}]").finditer(text, begin, at):
        depth += 1 if brace[0] == "{" else -1
        if depth < 0:
            return False
    return True


def _declarators(declared: str) -> Iterator[str]:
    begin = at = 0
    while at < len(declared):
        if declared[at] == "<":
            at = skip_templates(declared, at + 1)
        elif declared[at] in CLOSES:
            at = skip(declared, at + 1, CLOSES[declared[at]])
        elif declared[at] == ",":
            yield declared[begin:at]
            begin = at + 1
        at += 1
    yield declared[begin:]


def _variables(text: str, lines: Lines, is_relocatable: bool) -> Iterator[tuple[int, int, str]]:
    """Variables of the device belong to their source file: others may have some of the same name."""
    for found in matches(_ON_DEVICE, ("__loom_device__",), text):
        begin, end = found.span()
        is_own = _declares_variable(text, begin, end) and not lines.at(begin).is_system
        if is_own and not is_relocatable and not is_in_function(text, begin):
            yield from _specified(text, begin, end, "static")
        else:
            yield begin, end, ""


def _specified(text: str, begin: int, end: int, words: str) -> Iterator[tuple[int, int, str]]:
    """Words in place of a marker; behind what must stand first."""
    first = _STANDS_FIRST.match(text, end)
    yield begin, end if first is None else first.end(), words if first is None else f"{first[0]} {words} "


def _declares_variable(text: str, begin: int, end: int) -> bool:
    declared = _ATTRIBUTE.sub(" ", text[end : end + _LONGEST_TYPE])
    at = 0
    while at < len(declared) and declared[at] not in ";={}()[":
        if declared.startswith("operator", at):
            return False
        at = skip_templates(declared, at + 1) + 1 if declared[at] == "<" else at + 1
    if declared[at : at + 1] not in (";", "=", "[") or declared.startswith("[[", at):
        return False
    before = re.split(r"[;{}]", text[max(0, begin - 200) : begin])[-1]
    return _NO_OWN_VARIABLE.search(before[before.rfind(">") + 1 :] + declared[:at]) is None and not (
        re.search(r"\btemplate\s*<\s*>\s*$", before)
    )


def _assembly(text: str, lines: Lines, refused: list[RefusedError] | None) -> Iterator[tuple[int, int, str]]:
    for found in matches(_ASM, _ASM_WORDS, text):
        place = lines.at(found.start())
        opening = re.compile(r"\s*(?:(?:volatile|__volatile__)\s*)?\(").match(text, found.end())
        if place.is_system or opening is None or is_in_string(text, found.start()):
            continue
        closing = skip(text, opening.end(), ")")
        try:
            new = ptx.translated(text[opening.end() : closing])
        except ptx.UnknownInstructionError as error:
            what = f"inline PTX {error}: not supported by torch-loom's CUDA C++"
            refusal = RefusedError(place.file, place.line, what)
            if refused is None:
                raise refusal from None
            new = _refused_if_emitted(len(refused), what)
            refused.append(refusal)
        yield found.start(), closing + 1, new


def _refused_if_emitted(number: int, what: str) -> str:
    words = what.replace("\\", "\\\\").replace('"', '\\"')
    name = f"loom_refused_{number}"
    declared = f'extern void {name}() __attribute__((error("{words}")))'
    # Functions that are `constexpr` may call it where they are not evaluated by the compiler.
    called = f"__builtin_is_constant_evaluated() ? __builtin_unreachable() : {name}()"
    return f"do {{ {declared}; {called}; }} while (0)"
