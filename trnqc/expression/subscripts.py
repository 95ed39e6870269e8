"""Subscripts of NumPy's einsum: "acik,befl,dfjk,cdel->abij".

Dense contractions and sparse networks use the same parser. An index is an ASCII letter or any character from U+00C0 on,
which includes every symbol of ``opt_einsum.get_symbol``. Without an arrow, the result has the indices that occur once,
in the order of their code points, as in NumPy.
"""

from __future__ import annotations

import string
import sys
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from trnqc.errors import ArgumentError, ExpressionError
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index
from trnqc.expression.tokens import error_at

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Subscripts:
    """One contraction, with labels of operands and result, and extents in order of first appearance.

    `squeezed` are, by operand, the axes of extent 1 whose label has a larger extent elsewhere. They are removed first,
    and are not among `inputs`.
    """

    text: str
    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    extents: dict[str, int]
    squeezed: tuple[tuple[int, ...], ...]

    def indices(self) -> dict[str, Index]:
        """Return every label with its extent and symbol.

        The symbol is N if all extents are equal, else the first label of the same extent.
        """
        symbols: dict[int, str] = {}
        for label, extent in self.extents.items():
            symbols.setdefault(extent, label)
        if len(symbols) == 1:
            symbols = dict.fromkeys(symbols, "N")
        return {label: Index(label, extent, symbols[extent]) for label, extent in self.extents.items()}

    def leaves(self, same: Sequence[int] = ()) -> tuple[Leaf, ...]:
        """Return the operands, named A, B, C ...

        By operand, `same` is the number of the first operand that is the same array; by default all are different.
        """
        names = same or range(len(self.inputs))
        return tuple(Leaf(operand_name(names[k]), labels, k) for k, labels in enumerate(self.inputs))


def operand_name(position: int) -> str:
    """Return the name of an operand: A, B, ..., Z, A26, A27, ..."""
    return chr(ord("A") + position) if position < 26 else f"A{position}"


def parse_subscripts(text: str, shapes: Sequence[Shape], strict: bool = False) -> Subscripts:
    """Parse subscripts over operands of these shapes.

    Parameters
    ----------
    text : str
        Subscripts of ``numpy.einsum``, with or without the result.
    shapes : sequence of tuple of int
        Shapes of the operands.
    strict : bool
        Refuse subscripts that need views of operands: a label that repeats in one operand, an ellipsis, and axes of
        extent 1 that are broadcast.

    Raises
    ------
    ExpressionError
        If the subscripts do not fit the shapes. The message names the index and the operand, and shows the position.

    Examples
    --------
    >>> product = parse_subscripts("ij,jk", [(2, 3), (3, 4)])
    >>> product.inputs, product.output, product.extents
    ((('i', 'j'), ('j', 'k')), ('i', 'k'), {'i': 2, 'j': 3, 'k': 4})
    """
    sides = text.split("->")
    if len(sides) > 2:
        raise error_at("subscripts have one arrow '->'; found another", text, text.index("->", text.index("->") + 2))
    parts = sides[0].split(",")
    if len(parts) != len(shapes):
        raise ExpressionError(f"the subscripts are for {len(parts)} operands; found {len(shapes)} operands\n  {text}")
    columns = list(accumulate((len(part) + 1 for part in parts[:-1]), initial=0))
    scanned = [_scan(text, part, column) for part, column in zip(parts, columns)]
    if strict:
        for operand, labels in enumerate(scanned):
            _check_distinct(text, labels, operand)
    inputs = [_axes(text, scanned[k], k, len(shape), columns[k]) for k, shape in enumerate(shapes)]
    if len(sides) == 2:
        output = _result(text, len(sides[0]) + 2, inputs)
    else:
        output = _implicit([label for labels, _ in inputs for label in labels])
    extents = _extents(text, inputs, shapes, strict)
    squeezed = [
        tuple(axis for axis, label in enumerate(labels) if shape[axis] != extents[label])
        for (labels, _), shape in zip(inputs, shapes)
    ]
    kept = [
        tuple(x for axis, x in enumerate(labels) if axis not in drop) for (labels, _), drop in zip(inputs, squeezed)
    ]
    return Subscripts(text, tuple(kept), output, extents, tuple(squeezed))


def interleaved(operands: Sequence[object]) -> tuple[str, list[object]]:
    """Return subscripts and operands of NumPy's interleaved form.

    Parameters
    ----------
    operands : sequence
        Operand, its labels, operand, its labels, ..., and optionally the labels of the result. Labels are any hashable
        values, or an Ellipsis.

    Examples
    --------
    >>> interleaved(["x", [7, 3], "y", [3, 5], [5, 7]])
    ('ca,ab->bc', ['x', 'y'])
    """
    arrays = list(operands[0 : len(operands) - 1 : 2])
    lists = [_labels(operands[k + 1]) for k in range(0, 2 * len(arrays), 2)]
    labels = dict.fromkeys(label for group in lists for label in group if label is not Ellipsis)
    ordered: list[Hashable] = sorted(labels) if len({type(x) for x in labels}) == 1 else list(labels)
    names = dict(zip(ordered, _symbols()))
    text = ",".join("".join("..." if x is Ellipsis else names[x] for x in group) for group in lists)
    if len(operands) % 2:
        last = _labels(operands[-1])
        if unknown := [x for x in last if x is not Ellipsis and x not in names]:
            raise ExpressionError(f"index {unknown[0]!r} of the result occurs in no operand")
        text += "->" + "".join("..." if x is Ellipsis else names[x] for x in last)
    return text, arrays


def _labels(group: object) -> list[Any]:
    """Return the labels of one operand of the interleaved form."""
    if not isinstance(group, Iterable):
        raise ArgumentError(
            "einsum takes subscripts as text, or each operand followed by the list of its indices; "
            f"found {type(group).__name__} instead of a list"
        )
    labels = list(group)
    if bad := [label for label in labels if not isinstance(label, Hashable)]:
        raise ArgumentError(f"an index must be hashable, such as a number or a text; found {bad[0]!r}")
    return labels


def _symbols() -> Iterator[str]:
    """Yield indices in the order of their code points, without capital letters and surrogates."""
    yield from string.ascii_lowercase
    yield from (chr(code) for code in range(0xC0, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)


def is_index(character: str) -> bool:
    """Return whether a character may stand for an index."""
    return character >= "\u00c0" or character in string.ascii_letters


# A label or an ellipsis, and its column.
Place = tuple[str, int]


def _scan(text: str, part: str, column: int) -> list[Place]:
    """Return the labels of one operand or of the result; `column` is the first column of this part of the text."""
    places: list[Place] = []
    k = 0
    while k < len(part):
        if part.startswith("...", k):
            if any(label == "..." for label, _ in places):
                raise error_at("an operand has one ellipsis; found another", text, column + k)
            places.append(("...", column + k))
            k += 3
            continue
        if is_index(part[k]):
            places.append((part[k], column + k))
        elif part[k] not in string.whitespace:
            raise error_at(f"an index is a letter; found {part[k]!r}", text, column + k)
        k += 1
    return places


def _check_distinct(text: str, places: list[Place], operand: int) -> None:
    """Refuse an ellipsis, and a label that occurs twice."""
    labels = [label for label, _ in places]
    for label, column in places:
        if label == "...":
            raise error_at(f"operand {operand} has an ellipsis; name each of its axes", text, column)
        if labels.count(label) > 1:
            raise error_at(f"index {label} occurs twice in operand {operand}; take the diagonal first", text, column)


def _axes(text: str, places: list[Place], operand: int, rank: int, column: int) -> tuple[list[str], list[int]]:
    """Return one label per axis and its column; an ellipsis becomes ...2, ...1, ...0, numbered from the right."""
    labels, columns = [], []
    named = sum(label != "..." for label, _ in places)
    dots = rank - named
    if dots < 0 or (dots and named == len(places)):
        raise error_at(f"the subscripts name {named} axes; operand {operand} has {rank}", text, column)
    for label, place in places:
        more = [f"...{k}" for k in reversed(range(dots))] if label == "..." else [label]
        labels += more
        columns += [place] * len(more)
    return labels, columns


def _result(text: str, column: int, inputs: list[tuple[list[str], list[int]]]) -> tuple[str, ...]:
    """Return the labels after the arrow, with the ellipsis replaced by its labels."""
    known = dict.fromkeys(label for labels, _ in inputs for label in labels)
    dots = sorted((label for label in known if label.startswith("...")), key=lambda label: -int(label[3:]))
    output: list[str] = []
    for label, place in _scan(text, text[column:], column):
        if label == "...":
            output += dots
            continue
        if label not in known:
            raise error_at(f"index {label} of the result occurs in no operand", text, place)
        if label in output:
            raise error_at(f"index {label} occurs twice in the result", text, place)
        output.append(label)
    if dots and not any(label in output for label in dots):
        raise error_at("the operands have an ellipsis; the result needs one too", text, column)
    return tuple(output)


def _implicit(labels: list[str]) -> tuple[str, ...]:
    """Return the labels of a result that is not stated: the labels of an ellipsis, then all labels that occur once."""
    dots = sorted({x for x in labels if x.startswith("...")}, key=lambda label: -int(label[3:]))
    return (*dots, *sorted(x for x in set(labels) if labels.count(x) == 1 and not x.startswith("...")))


def _extents(
    text: str, inputs: list[tuple[list[str], list[int]]], shapes: Sequence[Shape], strict: bool
) -> dict[str, int]:
    """Return the extent of every label. Axes of extent 1 are broadcast, unless strict."""
    extents: dict[str, int] = {}
    first: dict[str, int] = {}
    for operand, ((labels, columns), shape) in enumerate(zip(inputs, shapes)):
        for label, column, extent in zip(labels, columns, shape):
            have = extents.get(label, extent if strict else 1)
            inside = [shape[axis] for axis, other in enumerate(labels) if other == label and shape[axis] != extent]
            if inside or (have != extent and (strict or 1 not in (have, extent))):
                before = f"{inside[0]} on another axis" if inside else f"{have} in operand {first[label]}"
                message = f"index {label} has extent {extent} in operand {operand}, and {before}"
                raise error_at(message, text, column)
            if label not in extents or have == 1:
                extents[label], first[label] = extent, operand
    return extents
