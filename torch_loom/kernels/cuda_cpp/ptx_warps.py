"""Inline PTX of what the lanes of a warp do together, as calls of ``loom_cuda/warp.h``."""

from __future__ import annotations

from collections.abc import Callable

from torch_loom.kernels.ptx.instructions import UnknownInstructionError
from torch_loom.kernels.ptx.statements import Statements

_Write = Callable[[str, str], str]
_SHUFFLES = {"up", "down", "bfly", "idx"}
_VOTES = {"all", "any", "uni"}
# The types that each is there for.
_REDUCTIONS = {
    **dict.fromkeys(("add", "min", "max"), ("u32", "s32")),
    **dict.fromkeys(("and", "or", "xor"), ("b32",)),
}


class Warps(Statements):
    """Shuffles, votes, matches and reductions. The older forms without ``.sync`` are refused."""

    def own(self, name: str, words: list[str], operands: list[str]) -> list[str] | None:
        match [name, *words]:
            case ["shfl", "sync", mode, "b32"] if mode in _SHUFFLES:
                return self._shuffle(mode, *operands)
            case ["vote", "sync", kind, "pred"] if kind in _VOTES:
                return self._vote(self._write_predicate, f"__{kind}_sync", *operands)
            case ["vote", "sync", "ballot", "b32"]:
                return self._vote(self._write_number, "__ballot_sync", *operands)
            case ["match", "any", "sync", "b32" | "b64" as word]:
                return self._match_any(word, *operands)
            case ["match", "all", "sync", "b32" | "b64" as word]:
                return self._match_all(word, *operands)
            case ["redux", "sync", operation, word] if word in _REDUCTIONS.get(operation, ()):
                return self._reduce(f"__reduce_{operation}_sync", word, *operands)
            case ["activemask", "b32"]:
                (to,) = operands
                return [self._write_number(to, "__activemask()")]
            case ["bar", "warp", "sync"]:
                (mask,) = operands
                return [f"__syncwarp({self.read(mask, 'b32')});"]
            case ["shfl" | "vote" | "match" | "redux" | "activemask", *_]:
                raise UnknownInstructionError
        return super().own(name, words, operands)

    def _shuffle(self, mode: str, to: str, value: str, by: str, segments: str, mask: str) -> list[str]:
        given = ", ".join(self.read(each, "b32") for each in (mask, value, by, segments))
        begin = f"const auto ptx_own = ::loom_cuda::ptx::other_lane<'{mode[0]}'>({given});"
        return self._written_with_predicate(begin, to, "ptx_own.value", "ptx_own.is_in_segment")

    def _vote(self, write: _Write, function: str, to: str, predicate: str, mask: str) -> list[str]:
        if not self.is_predicate(predicate.removeprefix("!")):
            raise UnknownInstructionError
        return [write(to, f"{function}({self.read(mask, 'b32')}, {self.read(predicate, 'pred')})")]

    def _match_any(self, word: str, to: str, value: str, mask: str) -> list[str]:
        given = f"{self.read(mask, 'b32')}, {self.read(value, word)}"
        return [self._write_number(to, f"__match_any_sync({given})")]

    def _match_all(self, word: str, to: str, value: str, mask: str) -> list[str]:
        given = f"{self.read(mask, 'b32')}, {self.read(value, word)}"
        begin = f"int ptx_equal; const auto ptx_own = __match_all_sync({given}, &ptx_equal);"
        return self._written_with_predicate(begin, to, "ptx_own", "ptx_equal != 0")

    def _reduce(self, function: str, word: str, to: str, value: str, mask: str) -> list[str]:
        return [self._write_number(to, f"{function}({self.read(mask, 'b32')}, {self.read(value, word)})")]

    def _written_with_predicate(self, begin: str, to: str, value: str, predicate: str) -> list[str]:
        """Return lines that write a register, and a predicate if there is one behind a bar."""
        number, *more = (each.strip() for each in to.split("|"))
        writes = [self._write_number(number, value)]
        if more:
            (other,) = more
            writes.append(self._write_predicate(other, predicate))
        return [f"{{ {' '.join([begin, *filter(None, writes)])} }}"]

    def _write_number(self, register: str, text: str) -> str:
        if self.is_predicate(register):
            raise UnknownInstructionError
        return self.write(register, text)

    def _write_predicate(self, register: str, text: str) -> str:
        if register != "_" and not self.is_predicate(register):
            raise UnknownInstructionError
        return self.write(register, text)
