"""The elements that loops over slices hold, without building their nest, which takes many times as long.

The steps are placed as `loop_nest` places them: what shares fewer loops with its consumer comes before the first loop
that it does not share, and is freed when that loop ends.
"""

from __future__ import annotations

from collections.abc import Sequence

# Items of a body: the number of an array that begins, the inverted number of a step that runs, or the body of a loop.
_Items = list["int | _Items"]
# By number of loops around, the items that a subtree puts there, and the elements of the arrays that begin among them.
_Written = dict[int, tuple[_Items, float]]


def fullest(inputs: Sequence[Sequence[int]], depths: Sequence[int], sizes: Sequence[float]) -> tuple[float, list[int]]:
    """Return the most elements that are held at one moment, and the results that live then.

    Parameters
    ----------
    inputs : sequence of sequences of int
        For each step, producers first and the root last, the steps whose results it reads.
    depths : sequence of int
        For each step the number of loops that it shares with its consumer.
    sizes : sequence of float
        Elements that are held of each result; the root's are not counted.
    """
    root = len(inputs) - 1
    held = [*sizes[:root], 0.0]
    written: dict[int, _Written] = {}
    for step, below in enumerate(inputs):
        written[step] = _step(step, [(depths[k], written.pop(k), held[k]) for k in below], depths[step], held[step])
    lives = _Lives(inputs, held)
    lives.walk(written[root][0][0])
    return lives.most, [k for k, born in lives.born.items() if born <= lives.moment < lives.gone[k] and k < root]


def _step(step: int, below: Sequence[tuple[int, _Written, float]], depth: int, size: float) -> _Written:
    """Return what a step and the steps below it put into each body; `below` is used up."""
    out: _Written = {}
    beside = []
    for level, parts, result in below:
        if level <= depth:
            items, elements = parts.pop(level)
            out = _joined(out, parts)
            beside.append((result - elements, level, items, elements))
    # The one comes first that holds most beyond its result.
    for _, level, items, elements in sorted(beside, key=lambda entry: entry[0]):
        out = _joined(out, {level: (items, elements)})
    out = _joined(out, {depth: ([step], size)})
    deepest = depth
    for level, parts, _ in sorted((entry for entry in below if entry[0] > depth), key=lambda entry: entry[0]):
        out, deepest = _joined(out, parts), level
    out = _joined(out, {deepest: ([~step], 0.0)})
    for level in range(deepest, depth, -1):
        items, elements = out.pop(level, ([], 0.0))
        out = _joined(out, {level - 1: ([items], elements)})
    return out


def _joined(first: _Written, second: _Written) -> _Written:
    """Return what is written first and then second; both are used up."""
    if len(first) < len(second):
        for level, (items, elements) in first.items():
            more = second.get(level)
            second[level] = (items + more[0], elements + more[1]) if more else (items, elements)
        return second
    for level, (items, elements) in second.items():
        if have := first.get(level):
            have[0].extend(items)
            items, elements = have[0], elements + have[1]
        first[level] = items, elements
    return first


class _Lives:
    """The moments between which each result lives; `most` elements are held at `moment`."""

    def __init__(self, inputs: Sequence[Sequence[int]], sizes: Sequence[float]) -> None:
        self.inputs, self.sizes = inputs, sizes
        self.born: dict[int, int] = {}
        self.gone = dict.fromkeys(range(len(sizes)), len(sizes))
        self.held = self.most = 0.0
        self.moment = -1

    def walk(self, items: _Items) -> list[int]:
        """Go through a body; return the results from outside that it reads."""
        begun: set[int] = set()
        outside: list[int] = []
        for item in items:
            if isinstance(item, list):
                read: Sequence[int] = self.walk(item)
            elif item >= 0:
                begun.add(item)
                self.begin(item)
                continue
            else:
                read = self.inputs[~item]
            for k in read:
                if k in begun:
                    self.held -= self.sizes[k]
                    self.gone[k] = len(self.born)
                else:
                    outside.append(k)
        return outside

    def begin(self, step: int) -> None:
        """A result begins to live; moments are numbered by these."""
        self.born[step] = len(self.born)
        self.held += self.sizes[step]
        if self.held > self.most:
            self.most, self.moment = self.held, self.born[step]
