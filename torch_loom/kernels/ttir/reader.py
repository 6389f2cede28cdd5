"""Reads the text of Triton's IR (TTIR), as Triton prints it, into :mod:`torch_loom.kernels.ttir.model`.

MLIR's Python bindings in Triton give no access to the values of constants: the text is what there is. Most
ops have one form: operands, keywords, ``name = value``, a dictionary, and types behind a colon. Those with
regions or branches have forms of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch_loom.kernels.ttir.model import (
    Block,
    Function,
    Module,
    Op,
    Place,
    Pointer,
    Region,
    Scalar,
    Tensor,
    Type,
    Value,
)
from torch_loom.kernels.ttir.places import Places
from torch_loom.kernels.ttir.scanner import Scanner

_LABEL = re.compile(r"\^\w+")
_I1 = Scalar("i1")


def read(text: str) -> Module:
    """Return the module that a text says.

    Raises:
        KernelTextError: the text is no module of Triton's IR; the message names the line of the text.
    """
    return _Reader(text).module()


class _Reader:
    def __init__(self, text: str) -> None:
        self.scanner = Scanner(text)
        self.places = Places(text)
        # Names of the regions around this place, innermost last.
        self.scopes: list[dict[str, tuple[Value, ...]]] = []

    # ---------------------------------------------------------------- modules

    def module(self) -> Module:
        scanner = self.scanner
        scanner.lines()
        while scanner.sees("#"):
            scanner.at = self._line_end()
            scanner.lines()
        has_module = scanner.take("module")
        if has_module:
            scanner.take_symbol()
            if scanner.take("attributes"):
                scanner.dictionary()
            scanner.need("{")
        functions = []
        while True:
            scanner.lines()
            if scanner.at >= len(scanner.text) or scanner.sees("}") or scanner.sees("#"):
                break
            functions.append(self._function())
        if not functions:
            raise scanner.error("there is no function")
        return Module(tuple(functions))

    def _line_end(self) -> int:
        end = self.scanner.text.find("\n", self.scanner.at)
        return len(self.scanner.text) if end < 0 else end

    def _function(self) -> Function:
        scanner = self.scanner
        scanner.need("tt.func")
        is_public = scanner.take("public") or not scanner.take("private")
        name = scanner.take_symbol()
        if name is None:
            raise scanner.error("the function has no name")
        scanner.need("(")
        self.scopes.append({})
        arguments, attributes = [], []
        while not scanner.take(")"):
            arguments.append(self._typed_name())
            attributes.append(scanner.dictionary() if scanner.sees("{") else {})
            self._place()
            scanner.take(",")
        results = scanner.types() if scanner.take("->") else []
        if scanner.take("attributes"):
            scanner.dictionary()
        body = self._region()
        place = self._place()
        self.scopes.pop()
        return Function(name, tuple(arguments), tuple(attributes), tuple(results), body, is_public, place)

    def _typed_name(self) -> Value:
        found = self.scanner.take_value()
        if found is None:
            raise self.scanner.error("the name of an argument is missing")
        self.scanner.need(":")
        return self._define(found[0], self.scanner.need_type())

    def _define(self, name: str, kind: Type) -> Value:
        value = Value(name, kind)
        self.scopes[-1][name] = (value,)
        return value

    def _place(self) -> Place:
        if not self.scanner.sees_word("loc"):
            return Place("", 0)
        self.scanner.take_word()
        return self.places.find(self.scanner.skip_brackets("(", ")"))

    # ---------------------------------------------------------------- regions

    def _body(self, arguments: tuple[Value, ...] = ()) -> Region:
        """Read the region of a loop or a branch, whose end is not printed where it yields nothing."""
        region = self._region(arguments)
        block = region.blocks[-1]
        if block.ops and block.ops[-1].name in ("scf.yield", "scf.condition"):
            return region
        return Region((*region.blocks[:-1], replace(block, ops=(*block.ops, Op("scf.yield")))))

    def _region(self, arguments: tuple[Value, ...] = ()) -> Region:
        """Read ``{…}``. ``arguments``: those that stand in front of it, in the scope of the caller."""
        scanner = self.scanner
        scanner.deeper()
        scanner.need("{")
        self.scopes.append({})
        blocks = []
        label = ""
        ops: list[Op] = []
        while True:
            scanner.lines()
            if scanner.take("}"):
                break
            if scanner.sees("^"):
                if label or ops or arguments:
                    blocks.append(Block(label, arguments, tuple(ops)))
                label, ops = self._label(), []
                arguments = self._block_arguments()
                scanner.need(":")
                continue
            ops.append(self._op())
        blocks.append(Block(label, arguments, tuple(ops)))
        self.scopes.pop()
        scanner.less_deep()
        return Region(tuple(blocks))

    def _label(self) -> str:
        self.scanner.space()
        match = _LABEL.match(self.scanner.text, self.scanner.at)
        if match is None:
            raise self.scanner.error("the name of a block is missing")
        self.scanner.at = match.end()
        return match.group()

    def _block_arguments(self) -> tuple[Value, ...]:
        found = []
        if self.scanner.take("("):
            while not self.scanner.take(")"):
                found.append(self._typed_name())
                self._place()
                self.scanner.take(",")
        return tuple(found)

    # -------------------------------------------------------------------- ops

    def _value(self) -> Value:
        found = self.scanner.take_value()
        if found is None:
            raise self.scanner.error("a value is missing")
        name, number = found
        for scope in reversed(self.scopes):
            if name in scope:
                values = scope[name]
                if number >= len(values):
                    break
                return values[number]
        raise self.scanner.error(f"%{name} is not defined")

    def _values(self) -> list[Value]:
        found = []
        while self.scanner.sees("%"):
            found.append(self._value())
            if not self.scanner.take(","):
                break
        return found

    def _op(self) -> Op:
        scanner = self.scanner
        names: list[tuple[str, int]] = []
        begin = scanner.at
        while (found := scanner.take_value()) is not None:
            many = int(scanner.take_number() or 1) if scanner.take(":") else 1
            names.append((found[0], many))
            scanner.take(",")
        if names:
            scanner.need("=")
        if scanner.sees('"'):
            name = scanner.take_string()
            if name is None:
                raise scanner.error("the name of an op does not end")
            operands, attributes, regions, types = self._generic()
        else:
            name = scanner.take_word()
            if name is None:
                raise scanner.error("an op is missing")
            form = _FORMS.get(name, _Reader._plain)
            operands, attributes, regions, types = form(self, name)
        place = self._place()
        if sum(many for _, many in names) != len(types):
            scanner.at = begin
            raise scanner.error(f"{name} has {len(types)} results")
        results: list[Value] = []
        for first, many in names:
            mine = tuple(Value(first, kind) for kind in types[len(results) : len(results) + many])
            self.scopes[-1][first] = mine
            results.extend(mine)
        return Op(name, tuple(operands), tuple(results), attributes, tuple(regions), place)

    def _generic(self) -> _Parts:
        """``"tt.reduce"(%x) <{…}> ({…}) {…} : (T) -> T``."""
        scanner = self.scanner
        scanner.need("(")
        operands = self._values()
        scanner.need(")")
        attributes: dict[str, Any] = {}
        regions: list[Region] = []
        if scanner.take("<"):
            attributes |= scanner.dictionary()
            scanner.need(">")
        if scanner.take("("):
            regions.append(self._region())
            while scanner.take(","):
                regions.append(self._region())
            scanner.need(")")
        if scanner.sees("{"):
            attributes |= scanner.dictionary()
        scanner.need(":")
        scanner.types()
        scanner.need("->")
        return operands, attributes, regions, scanner.types()

    def _plain(self, name: str) -> _Parts:
        """Operands, keywords, ``name = value``, ``{…}``, ``[…]`` in any order, then types."""
        scanner = self.scanner
        operands: list[Value] = []
        attributes: dict[str, Any] = {"words": [], "strings": [], "groups": []}
        types: list[Type] | None = None
        outputs: list[Type] | None = None
        while not scanner.at_line_end() and not scanner.sees_word("loc"):
            if scanner.sees("%"):
                operands.append(self._value())
            elif scanner.sees('"'):
                attributes["strings"].append(scanner.take_string())
            elif scanner.sees("{"):
                attributes |= scanner.dictionary()
            elif scanner.take("->"):
                outputs = scanner.types()
                while scanner.take(","):
                    outputs.append(scanner.need_type())
            elif scanner.take(":"):
                if scanner.sees("%"):
                    continue
                types = scanner.types()
                while scanner.take(",") or scanner.take("*") or self._take_to():
                    types.extend(scanner.types())
            elif scanner.take("["):
                group = self._values()
                operands.extend(group)
                attributes["groups"].append(len(group))
                scanner.need("]")
            elif scanner.take(",") or scanner.take("(") or scanner.take(")"):
                continue
            elif (symbol := scanner.take_symbol()) is not None:
                attributes["callee"] = symbol
            elif (word := scanner.take_word()) is not None:
                if word == "scale":
                    attributes[f"scale{0 if len(operands) == 1 else 1}"] = self._value()
                elif scanner.take("="):
                    attributes[word] = scanner.attribute()
                elif scanner.sees("<"):
                    attributes[word] = scanner.skip_brackets("<", ">")
                else:
                    attributes["words"].append(word)
            elif (number := scanner.take_number()) is not None:
                attributes["words"].append(number)
            else:
                raise scanner.error(f"{name} has a form that is not read")
        return operands, attributes, [], self._results(name, operands, types, outputs)

    def _take_to(self) -> bool:
        if not self.scanner.sees_word("to"):
            return False
        self.scanner.take_word()
        return True

    def _results(
        self, name: str, operands: list[Value], types: list[Type] | None, outputs: list[Type] | None
    ) -> list[Type]:
        """Return the types of an op's results, which its text often leaves out."""
        if name in _WITHOUT_RESULTS:
            return []
        if name == "tt.split" and outputs is not None:
            return outputs * 2
        if outputs is not None:
            return outputs
        if types is None:
            return []
        if name in ("arith.cmpi", "arith.cmpf"):
            kind = types[0]
            return [Tensor(kind.shape, _I1) if isinstance(kind, Tensor) else _I1]
        if name == "arith.select":
            return [types[-1]]
        if name == "tt.load":
            return [self._pointee(types[0])]
        if name == "tt.unsplat" and isinstance(types[0], Tensor):
            return [types[0].element]
        if name in _CASTS or name == "tt.make_tensor_descriptor":
            return [types[-1]]
        if name in ("arith.mulsi_extended", "arith.mului_extended"):
            return [types[0], types[0]]
        if name == "arith.addui_extended":
            return [types[0], types[1]]
        return [types[0]]

    def _pointee(self, kind: Type) -> Type:
        if isinstance(kind, Pointer):
            return kind.pointee
        if isinstance(kind, Tensor) and isinstance(kind.element, Pointer):
            inner = kind.element.pointee
            if not isinstance(inner, Tensor):
                return Tensor(kind.shape, inner)
        raise self.scanner.error("tt.load takes an address")

    def _constant(self, name: str) -> _Parts:
        scanner = self.scanner
        if scanner.sees("{"):
            scanner.dictionary()
        begin = scanner.at
        value = scanner.attribute()
        if isinstance(value, bool):
            kind: Type = _I1
            if scanner.take(":"):
                kind = scanner.need_type()
        else:
            # The type is part of what was read.
            colon = scanner.text.rfind(":", begin, scanner.at)
            if colon < 0:
                raise scanner.error("a constant without a type")
            scanner.at = colon + 1
            kind = scanner.need_type()
            if isinstance(kind, Scalar) and kind.is_float and isinstance(value, int):
                value = float(value) if type(value) is int else value
        return [], {"value": value}, [], [kind]

    def _for(self, name: str) -> _Parts:
        scanner = self.scanner
        attributes: dict[str, Any] = {}
        if scanner.take("unsigned"):
            attributes["unsigned"] = True
        index = scanner.take_value()
        if index is None:
            raise scanner.error("the index of the loop is missing")
        scanner.need("=")
        bounds = [self._value()]
        scanner.need("to")
        bounds.append(self._value())
        scanner.need("step")
        bounds.append(self._value())
        names: list[str] = []
        initial: list[Value] = []
        if scanner.take("iter_args"):
            names, initial = self._bindings()
            scanner.need("->")
            scanner.types()
        kind = scanner.need_type() if scanner.take(":") else bounds[0].type
        self.scopes.append({})
        arguments = [self._define(index[0], kind)]
        arguments += [self._define(each, value.type) for each, value in zip(names, initial, strict=True)]
        region = self._body(tuple(arguments))
        self.scopes.pop()
        if scanner.sees("{"):
            attributes |= scanner.dictionary()
        return [*bounds, *initial], attributes, [region], [value.type for value in initial]

    def _bindings(self) -> tuple[list[str], list[Value]]:
        """``(%a = %b, …)``."""
        names, values = [], []
        self.scanner.need("(")
        while not self.scanner.take(")"):
            found = self.scanner.take_value()
            if found is None:
                raise self.scanner.error("the name of a loop's value is missing")
            self.scanner.need("=")
            names.append(found[0])
            values.append(self._value())
            self.scanner.take(",")
        return names, values

    def _if(self, name: str) -> _Parts:
        scanner = self.scanner
        condition = self._value()
        types = scanner.types() if scanner.take("->") else []
        regions = [self._body()]
        if scanner.take("else"):
            regions.append(self._body())
        attributes = scanner.dictionary() if scanner.sees("{") else {}
        return [condition], attributes, regions, types

    def _while(self, name: str) -> _Parts:
        scanner = self.scanner
        names, initial = self._bindings() if scanner.sees("(") else ([], [])
        types: list[Type] = []
        if scanner.take(":"):
            scanner.types()
            scanner.need("->")
            types = scanner.types()
        self.scopes.append({})
        arguments = tuple(self._define(each, value.type) for each, value in zip(names, initial, strict=True))
        before = self._body(arguments)
        self.scopes.pop()
        scanner.need("do")
        after = self._body()
        attributes = {}
        if scanner.take("attributes"):
            attributes = scanner.dictionary()
        return initial, attributes, [before, after], types

    def _branch(self, name: str) -> _Parts:
        """``cf.br ^bb1(%x : i32)`` and ``cf.cond_br %c, ^bb1(…), ^bb2``."""
        scanner = self.scanner
        operands = []
        if name == "cf.cond_br":
            operands.append(self._value())
            if scanner.sees("weights"):
                scanner.take_word()
                scanner.skip_brackets("(", ")")
            scanner.need(",")
        targets = []
        while scanner.sees("^"):
            label = self._label()
            values: list[Value] = []
            if scanner.take("("):
                values = self._values()
                scanner.skip_to_close()
            targets.append((label, tuple(values)))
            scanner.take(",")
        attributes = scanner.dictionary() if scanner.sees("{") else {}
        return operands, attributes | {"targets": tuple(targets)}, [], []


_Parts = tuple[list[Value], dict[str, Any], list[Region], list[Type]]
_FORMS: dict[str, Callable[[_Reader, str], _Parts]] = {
    "arith.constant": _Reader._constant,
    "scf.for": _Reader._for,
    "scf.if": _Reader._if,
    "scf.while": _Reader._while,
    "cf.br": _Reader._branch,
    "cf.cond_br": _Reader._branch,
}
_WITHOUT_RESULTS = {
    *("tt.store", "tt.return", "tt.print", "tt.assert", "tt.reduce.return", "tt.scan.return"),
    *("scf.yield", "scf.condition", "tt.descriptor_store", "tt.descriptor_reduce", "tt.descriptor_scatter"),
    *("tt.map_elementwise.return", "cf.assert", "gpu.barrier", "llvm.intr.assume", "ttg.barrier"),
}
_CASTS = {
    *("arith.extsi", "arith.extui", "arith.extf", "arith.trunci", "arith.truncf", "arith.bitcast"),
    *("arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui", "arith.index_cast"),
    *("arith.index_castui", "tt.reinterpret_tensor_descriptor"),
}
