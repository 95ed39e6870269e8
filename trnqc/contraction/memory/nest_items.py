"""The items of a loop nest: arrays that begin and end, computations and loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Allocate:
    """The array begins to exist. With `zero` its elements are set to zero, because parts are added to them."""

    name: str
    zero: bool


@dataclass(frozen=True)
class Compute:
    """Compute the part of the array that belongs to the current tiles, or with `accumulate` add to it."""

    name: str
    accumulate: bool


@dataclass(frozen=True)
class Free:
    """The array is no longer needed."""

    name: str


@dataclass(frozen=True)
class TiledLoop:
    """``for label in range(0, extent, tile)``."""

    label: str
    tile: int
    extent: int
    body: tuple[Item, ...]


Item = Allocate | Compute | Free | TiledLoop


def flat(items: Iterable[Item]) -> Iterator[Item]:
    """Yield all items of a nest in order."""
    bodies = [iter(items)]
    while bodies:
        for item in bodies[-1]:
            yield item
            if isinstance(item, TiledLoop):
                bodies.append(iter(item.body))
                break
        else:
            bodies.pop()
