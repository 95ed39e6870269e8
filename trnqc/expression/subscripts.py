"""Subscripts of NumPy's einsum: "acik,befl,dfjk,cdel->abij", with ellipses, implicit results and axes of extent one."""

from __future__ import annotations

import string
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trnqc.errors import ArgumentError, ExpressionError
from trnqc.expression.operand import Leaf
from trnqc.expression.program import Exchange, Index
from trnqc.expression.text import pointed

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Subscripts:
    """One contraction: the labels of every operand and of the result, and the extent of every label.

    squeezed: for each operand the axes that are dropped first: of extent 1 where the label has more elsewhere.
    """

    text: str
    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    extents: dict[str, int]
    squeezed: tuple[tuple[int, ...], ...]

    def indices(self) -> dict[str, Index]:
        """Symbols: N where all extents are equal, else the first label of that extent."""
        symbols: dict[int, str] = {}
        for label, extent in self.extents.items():
            symbols.setdefault(extent, label)
        if len(symbols) == 1:
            symbols = dict.fromkeys(symbols, "N")
        return {label: Index(label, extent, symbols[extent]) for label, extent in self.extents.items()}

    def leaves(self, same: Sequence[int] = ()) -> tuple[Leaf, ...]:
        """Operands named A, B, C ... by position. same: for each the first that is the same array."""
        names = same or range(len(self.inputs))
        return tuple(Leaf(operand_name(names[k]), labels, k) for k, labels in enumerate(self.inputs))


def operand_name(position: int) -> str:
    return chr(ord("A") + position) if position < 26 else f"A{position}"


def parse_subscripts(text: str, shapes: Sequence[Shape]) -> Subscripts:
    """Labels and extents of `text` over operands of these shapes; errors point at the index or the operand."""
    sides = text.split("->")
    if len(sides) > 2:
        raise pointed("one arrow '->' leads to the result; found another", text, text.index("->", text.index("->") + 2))
    parts = sides[0].split(",")
    if len(parts) != len(shapes):
        raise ExpressionError(f"subscripts for {len(parts)} operands; found {len(shapes)} operands\n  {text}")
    columns = [sum(len(p) + 1 for p in parts[:k]) for k in range(len(parts))]
    places = [_scan(text, part, column) for part, column in zip(parts, columns)]
    inputs = [_axes(text, place, len(shape), column) for place, shape, column in zip(places, shapes, columns)]
    if len(sides) == 2:
        output = _result(text, len(sides[0]) + 2, inputs)
    else:
        output = _implicit([label for labels, _ in inputs for label in labels])
    extents = _extents(text, inputs, shapes)
    squeezed = [
        tuple(axis for axis, label in enumerate(labels) if shape[axis] != extents[label])
        for (labels, _), shape in zip(inputs, shapes)
    ]
    kept = [
        tuple(x for axis, x in enumerate(labels) if axis not in drop) for (labels, _), drop in zip(inputs, squeezed)
    ]
    return Subscripts(text, tuple(kept), output, extents, tuple(squeezed))


def interleaved(operands: Sequence[object]) -> tuple[str, list[object]]:
    """The other form of NumPy: operand, its labels, operand, its labels ..., labels of the result; hashable labels."""
    arrays = list(operands[0 : len(operands) - 1 : 2])
    lists = [_labels(operands[k + 1]) for k in range(0, 2 * len(arrays), 2)]
    labels = dict.fromkeys(label for group in lists for label in group if label is not Ellipsis)
    ordered: list[Hashable] = sorted(labels) if len({type(x) for x in labels}) == 1 else list(labels)
    names = dict(zip(ordered, _symbols()))
    text = ",".join("".join("..." if x is Ellipsis else names[x] for x in group) for group in lists)
    if len(operands) % 2:
        last = _labels(operands[-1])
        if unknown := [x for x in last if x is not Ellipsis and x not in names]:
            raise ExpressionError(f"index {unknown[0]!r} of the result stands in no operand")
        text += "->" + "".join("..." if x is Ellipsis else names[x] for x in last)
    return text, arrays


def _labels(group: object) -> list[Any]:
    if not isinstance(group, Iterable):
        raise ArgumentError(
            "einsum takes subscripts as text, or each operand followed by the list of its indices; "
            f"found {type(group).__name__} in the place of such a list"
        )
    labels = list(group)
    if bad := [label for label in labels if not isinstance(label, Hashable)]:
        raise ArgumentError(f"an index is a number, a text or another value that can be hashed; found {bad[0]!r}")
    return labels


def _symbols() -> Iterator[str]:
    """Indices in the order of their code points, without capital letters and surrogates."""
    yield from string.ascii_lowercase
    yield from (chr(code) for code in range(0xC0, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)


Declared = tuple[tuple[Exchange, ...], ...]


def declared(symmetries: Mapping[int, str | Sequence[str]], shapes: Sequence[Shape]) -> Declared:
    """For each operand its exchanges: {2: "efij = feji", 0: ["abij = -baij", "abij = -abji"]}, in any letters."""
    if unknown := [k for k in symmetries if not (isinstance(k, int) and 0 <= k < len(shapes))]:
        raise ExpressionError(f"symmetries name operands by number, 0 to {len(shapes) - 1}; found {unknown[0]!r}")
    found: list[tuple[Exchange, ...]] = []
    for k, shape in enumerate(shapes):
        stated = symmetries.get(k, ())
        texts = [stated] if isinstance(stated, str) else list(stated)
        found.append(tuple(exchange for text in texts for exchange in _exchanges(text, k, shape)))
    return tuple(found)


def _exchanges(text: str, operand: int, shape: Shape) -> Iterator[Exchange]:
    first, *others = (part.strip() for part in text.split("="))
    what = f"the symmetry {text!r} of operand {operand}"
    if len(set(first)) != len(first) or len(first) != len(shape) or not others:
        raise ExpressionError(f"{what} has one letter for each of {len(shape)} axes, as in 'abij = baji'")
    for other in others:
        sign, order = (-1, other[1:].strip()) if other.startswith("-") else (1, other)
        if sorted(order) != sorted(first):
            raise ExpressionError(f"{what} has the same letters on both sides; found {first!r} and {order!r}")
        axes = [first.index(letter) for letter in order]
        pairs = tuple((axis, axes[axis]) for axis in range(len(axes)) if axis < axes[axis])
        if any(axes[axes[axis]] != axis for axis in axes) or not pairs:
            raise ExpressionError(f"{what} exchanges pairs of axes; {first!r} to {order!r} does not")
        if unequal := [pair for pair in pairs if shape[pair[0]] != shape[pair[1]]]:
            raise ExpressionError(f"{what} exchanges axes of unequal extents: {unequal[0]} of shape {shape}")
        yield Exchange(pairs, sign)


def is_index(character: str) -> bool:
    """Whether it is a letter of ASCII or any character from U+00C0 on, which is what opt_einsum.get_symbol yields."""
    return character >= "\u00c0" or character in string.ascii_letters


Place = tuple[str, int]  # a label or an ellipsis, and its column


def _scan(text: str, part: str, column: int) -> list[Place]:
    places: list[Place] = []
    k = 0
    while k < len(part):
        if part.startswith("...", k):
            if any(label == "..." for label, _ in places):
                raise pointed("an operand has one ellipsis; found another", text, column + k)
            places.append(("...", column + k))
            k += 3
            continue
        if is_index(part[k]):
            places.append((part[k], column + k))
        elif part[k] not in string.whitespace:
            raise pointed(f"an index is a letter; found {part[k]!r}", text, column + k)
        k += 1
    return places


def _axes(text: str, places: list[Place], rank: int, column: int) -> tuple[list[str], list[int]]:
    """One label per axis, ellipses spelt out from the right as ...2, ...1, ...0, and the column of each."""
    labels, columns = [], []
    named = sum(label != "..." for label, _ in places)
    dots = rank - named
    if dots < 0 or (dots and named == len(places)):
        raise pointed(f"subscripts of {named} axes; the operand has {rank}", text, column)
    for label, place in places:
        more = [f"...{k}" for k in reversed(range(dots))] if label == "..." else [label]
        labels += more
        columns += [place] * len(more)
    return labels, columns


def _result(text: str, column: int, inputs: list[tuple[list[str], list[int]]]) -> tuple[str, ...]:
    known = dict.fromkeys(label for labels, _ in inputs for label in labels)
    dots = sorted((label for label in known if label.startswith("...")), key=lambda label: -int(label[3:]))
    output: list[str] = []
    for label, place in _scan(text, text[column:], column):
        if label == "...":
            output += dots
            continue
        if label not in known:
            raise pointed(f"index {label} of the result stands in no operand", text, place)
        if label in output:
            raise pointed(f"index {label} stands twice in the result", text, place)
        output.append(label)
    if dots and not any(label in output for label in dots):
        raise pointed("the operands have an ellipsis; the result needs one too", text, column)
    return tuple(output)


def _implicit(labels: list[str]) -> tuple[str, ...]:
    dots = sorted({x for x in labels if x.startswith("...")}, key=lambda label: -int(label[3:]))
    return (*dots, *sorted(x for x in set(labels) if labels.count(x) == 1 and not x.startswith("...")))


def _extents(text: str, inputs: list[tuple[list[str], list[int]]], shapes: Sequence[Shape]) -> dict[str, int]:
    """The extent of every label: what all axes have, but for those of extent 1."""
    extents: dict[str, int] = {}
    first: dict[str, int] = {}
    for operand, ((labels, columns), shape) in enumerate(zip(inputs, shapes)):
        for label, column, extent in zip(labels, columns, shape):
            have = extents.get(label, 1)
            inside = [shape[axis] for axis, other in enumerate(labels) if other == label and shape[axis] != extent]
            if inside or (have != extent and have != 1 and extent != 1):
                before = f"{inside[0]} on another axis" if inside else f"{have} in operand {first[label]}"
                message = f"index {label} has extent {extent} in operand {operand}, and {before}"
                raise pointed(message, text, column)
            if label not in extents or have == 1:
                extents[label], first[label] = extent, operand
    return extents
