"""The quick form of programs of J and K: the drivers of several classes in one program, which is compiled soon.

classes -> programs (batch.py) -> groups of about SIZE -> a program of each group, the quick form of its programs

A text with several drivers has the definitions that all of them need only once, and starts the compiler once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from math import prod

from trnqc.eri.classes import QuartetClass
from trnqc.eri.jk.batch import Batch
from trnqc.eri.kernels.variants import QUICK, QUICK_FLAGS, QUICK_FLAGS_OF_GCC
from trnqc.gen.statements import Function
from trnqc.jit import Recipe, find_compiler

# The integrals that take a compiler as long as what a class has besides: half of the time of (21|10).
BESIDES = 60
# Integrals of all classes of a group, with BESIDES for each of them, from which on it is closed: half a second of a
# Sapphire Rapids core. Fewer groups would leave cores idle at the end.
SIZE = 600


def programs(classes: Iterable[QuartetClass], with_j: bool = True, with_k: bool = True) -> dict[QuartetClass, Recipe]:
    """Return the programs of classes with their quick forms, those that take longest to compile first."""
    return {
        batch.cls: replace(batch.program, quick=quick)
        for group in _groups([Batch(cls, with_j, with_k) for cls in sorted(classes, key=lambda c: (-c.order, c))])
        for quick in [_program(tuple(group))]
        for batch in group
    }


def _groups(batches: list[Batch]) -> Iterator[list[Batch]]:
    group: list[Batch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += BESIDES + prod(batch.cls.extents)
        if size >= SIZE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _program(group: tuple[Batch, ...]) -> Recipe:
    names = [batch.name for batch in group]
    signatures = tuple(s for batch in group for s in batch.program.signatures)
    make = partial(_functions, group)
    flags = QUICK_FLAGS + QUICK_FLAGS_OF_GCC * find_compiler().label.startswith("gcc")
    return Recipe(f"{names[0]}_quick", signatures, make, __name__, variant=" ".join(names), flags=flags)


def _functions(group: tuple[Batch, ...]) -> tuple[Function, ...]:
    return tuple(function for batch in group for function in batch.functions(QUICK))
