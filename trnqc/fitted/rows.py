"""Rows that are read, from files or from arrays, while the rows before them are used."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np

Key = TypeVar("Key", bound=Hashable)


def read_ahead(
    steps: Iterable[Sequence[Key]], read: Callable[[Key], np.ndarray], most: int
) -> Iterator[list[np.ndarray]]:
    """Yield the arrays of each step; a thread reads those of the next step while these are used.

    A step names its arrays, and `read` returns an array of this name. An array that two neighbouring steps share is
    read once. At most `most` arrays are kept, if no step needs more.
    """
    held: dict[Key, Future[np.ndarray]] = {}
    with ThreadPoolExecutor(1, thread_name_prefix="trnqc-rows") as reader:
        for step, following in pairwise(chain(steps, [()])):
            held = {key: rows for key, rows in held.items() if key in step or key in following}
            for key in (*step, *following):
                if key not in held and (key in step or len(held) < most):
                    held[key] = reader.submit(read, key)
            yield [held[key].result() for key in step]
