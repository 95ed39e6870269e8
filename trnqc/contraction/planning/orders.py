"""Orders that callers hand over: paths, planners, and the trees of cotengra, which quimb passes on, with their slices.

A tree is known by what it has (`get_path`, `inputs`, `output`, `size_dict`, `sliced_inds`), so that cotengra need not
be installed. Its labels may be any hashable values: they are matched with ours axis by axis.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trnqc.errors import ArgumentError, InputError, UnsupportedError
from trnqc.expression.subscripts import Shape, Subscripts, parse_subscripts

# The steps of an opt_einsum path (see `order.paths`).
Path = tuple[tuple[int, ...], ...]
# What `optimize` of einsum may be.
Optimize = bool | str | Sequence[Any] | Callable[..., Any] | Any | None


@dataclass(frozen=True)
class SlicedPath:
    """An order of products to follow, and labels over whose elements loops run; an empty path stands for a search."""

    path: Path = ()
    slices: tuple[str, ...] = ()


def requested_order(optimize: Optimize, subscripts: str, shapes: tuple[Shape, ...]) -> SlicedPath:
    """Return the order of the caller or of the caller's planner; empty for a search by this room.

    Raises
    ------
    ArgumentError
        If `optimize` is nothing of this.
    InputError
        If it is the tree of another contraction.
    UnsupportedError
        If the tree computes a part of the result only.
    """
    if isinstance(optimize, bool | str | None):
        return SlicedPath()
    if _is_tree(optimize):
        return _order_of_tree(optimize, parse_subscripts(subscripts, shapes), shapes)
    if hasattr(optimize, "search"):
        parsed = parse_subscripts(subscripts, shapes)
        # Planners of cotengra hand over slices only with their trees.
        found = optimize.search(list(parsed.inputs), parsed.output, parsed.extents)
        if not _is_tree(found):
            raise ArgumentError(f"a planner's search returns a contraction tree; found {type(found).__name__}")
        return SlicedPath(_steps(found.get_path(), optimize), _slices(found, {x: x for x in parsed.extents}))
    if callable(optimize):
        # A planner may have a path too, which opt_einsum's random ones lack before their first search.
        parsed = parse_subscripts(subscripts, shapes)
        steps: Any = optimize([set(labels) for labels in parsed.inputs], set(parsed.output), parsed.extents)
    else:
        steps = getattr(optimize, "path", optimize)
    return SlicedPath(_steps(steps, optimize))


def _is_tree(optimize: Any) -> bool:
    return all(hasattr(optimize, name) for name in ("get_path", "inputs", "output", "size_dict", "sliced_inds"))


def _steps(steps: Any, optimize: Optimize) -> Path:
    """Return the steps of a path; raises ArgumentError for what is none."""
    steps = list(steps) if isinstance(steps, Iterable) else None
    if steps and isinstance(steps[0], str) and steps[0] == "einsum_path":
        del steps[0]
    if steps is None or not all(isinstance(step, Iterable) for step in steps):
        raise ArgumentError(
            f"optimize is a path, a contraction tree, a planner of these, a bool or a name; found {optimize!r}"
        )
    return tuple(tuple(int(position) for position in step) for step in steps)


def _order_of_tree(tree: Any, parsed: Subscripts, shapes: tuple[Shape, ...]) -> SlicedPath:
    names = _our_labels(tree, parsed, shapes)
    return SlicedPath(_steps(tree.get_path(), tree), _slices(tree, names))


def _slices(tree: Any, names: Mapping[Hashable, str]) -> tuple[str, ...]:
    """Return our labels over whose elements the tree loops."""
    for label, of_label in getattr(tree.sliced_inds, "items", dict)():
        if getattr(of_label, "project", None) is not None:
            raise UnsupportedError(
                f"the tree takes one element of the index {label!r} only (remove_ind with project); "
                "cut the operands at this element and plan the network without the index"
            )
    return tuple(names[label] for label in tree.sliced_inds if label in names)


def _our_labels(tree: Any, parsed: Subscripts, shapes: tuple[Shape, ...]) -> dict[Hashable, str]:
    """Return our label for each label of the tree; raises InputError if it is the tree of another contraction."""

    def other(expected: str, found: str) -> InputError:
        return InputError(
            f"optimize is the tree of another contraction: {parsed.text} has {expected}, and the tree has {found}; "
            "make a tree of these subscripts and shapes"
        )

    if len(tree.inputs) != len(shapes):
        raise other(f"{len(shapes)} operands", str(len(tree.inputs)))
    ours: dict[Hashable, str] = {}
    theirs: dict[str, Hashable] = {}
    for k, (labels, mine) in enumerate(zip(tree.inputs, parsed.inputs)):
        lengths = tuple(tree.size_dict[label] for label in labels)
        kept = [axis for axis in range(len(shapes[k])) if axis not in parsed.squeezed[k]]
        here = f"the indices {', '.join(mine) or 'of a number'} of extents {shapes[k]} on operand {k}"
        there = f"{', '.join(map(str, labels)) or 'none'} of extents {lengths}"
        if len(labels) != len(shapes[k]) or any(lengths[axis] != shapes[k][axis] for axis in kept):
            raise other(here, there)
        for label, name in zip([list(labels)[axis] for axis in kept], mine):
            if ours.setdefault(label, name) != name or theirs.setdefault(name, label) != label:
                raise other(f"{here}, which stand for others on earlier operands", there)
    result = {ours.get(label) for label in tree.output}
    if result != set(parsed.output):
        named = ", ".join(str(ours.get(label, label)) for label in tree.output)
        raise other(f"the result {', '.join(parsed.output) or 'a number'}", named or "a number")
    return ours
