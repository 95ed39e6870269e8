"""Stand-ins for cuda-core's graphs, which keep what is captured and replay it. They refuse what the driver refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

Actions = list[Callable[[], Any]]


class GraphBuilder:
    """A graph under construction, or a branch of one.

    Parameters
    ----------
    launch
        Called with the number of a stream and all actions, in the order in which they were captured.
    first
        The builder from which this one was split.

    Attributes
    ----------
    branch : int
        The number of the branch.
    """

    def __init__(self, launch: Callable[[int, Actions], Any], first: GraphBuilder | None = None) -> None:
        self._launch, self._first, self._state = launch, first, "new" if first is None else "building"
        self._actions: Actions = [] if first is None else first._actions
        self._open: set[GraphBuilder] = set()
        self.branch = 0

    def begin_building(self) -> GraphBuilder:
        self._require("new")
        self._state = "building"
        return self

    def split(self, count: int) -> tuple[GraphBuilder, ...]:
        self._require("building")
        if count < 2:
            raise ValueError(f"invalid split count: expecting >= 2, got {count}")
        branches = [GraphBuilder(self._launch, self) for _ in range(count - 1)]
        for n, branch in enumerate(branches, 1):
            branch.branch = n
        self._open |= set(branches)
        return (self, *branches)

    @staticmethod
    def join(*builders: GraphBuilder) -> GraphBuilder:
        first = next(b for b in builders if b._first is None)
        for builder in builders:
            builder._require("building")
            if builder is not first:
                builder._state = "closed"
        first._open -= set(builders)
        return first

    def end_building(self) -> GraphBuilder:
        self._require("building")
        if self._open:
            raise RuntimeError("CUDA_ERROR_STREAM_CAPTURE_UNJOINED")
        self._state = "built"
        return self

    def complete(self) -> Graph:
        self._require("built")
        return Graph(self._launch, list(self._actions))

    def close(self) -> None:
        self._state = "closed"

    def add(self, run: Callable[[Sequence[Any], int], Any], operands: Sequence[Any], groups: int) -> None:
        """Capture a launch."""
        self._require("building")
        self._actions.append(partial(run, operands, groups))

    def _require(self, state: str) -> None:
        if self._state != state:
            raise RuntimeError(f"expected a graph builder that is {state}, found one that is {self._state}")


class Graph:
    """A graph that can be launched."""

    def __init__(self, launch: Callable[[int, Actions], Any], actions: Actions) -> None:
        self._launch, self._actions = launch, actions

    def launch(self, stream: Any) -> None:
        self._launch(stream.number, self._actions)
