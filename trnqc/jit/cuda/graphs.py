"""Prepared launches of a GPU: one by one at first, and as a CUDA graph from the second time on.

A graph holds all launches with their arguments, so that the host queues it by a single call of the driver. Making it
takes longer than the launches themselves, which launches that are queued only once need not pay.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class ConvertedLaunch:
    """What the driver is called with: a configuration, a kernel and operands, and the number of a stream."""

    stream: int
    config: Any
    kernel: Any
    operands: Sequence[Any]


@dataclass(eq=False)
class CudaGraphs:
    """What the prepared launches of a GPU share.

    Parameters
    ----------
    name
        The name of the GPU.
    core
        The module ``cuda.core``.
    device
        Its object for the GPU.
    streams
        The streams of the GPU.

    Attributes
    ----------
    available : bool or None
        Whether launches can be captured; None before the first graph.
    """

    name: str
    core: Any
    device: Any
    streams: Sequence[Any]
    available: bool | None = field(default=None, init=False)

    def capture(self, launches: Sequence[ConvertedLaunch]) -> Any:
        """Return a graph of launches, or None with one warning for all graphs of this GPU."""
        if self.available is False:
            return None
        try:
            graph, self.available = self._captured(launches), True
            return graph
        except Exception as error:  # The bindings raise a different class for each library.
            self.available = False
            warnings.warn(
                f"{self.name}: launches cannot be captured in a CUDA graph ({type(error).__name__}: {error}); the host "
                "queues each of them, which takes it longer: update the driver, or cuda-core to 1.2",
                RuntimeWarning,
                stacklevel=2,
            )
            return None

    def queue(self, launches: Sequence[ConvertedLaunch]) -> None:
        """Queue launches one by one, after what is on stream 0."""
        first = self.streams[0]
        others = [self.streams[number] for number in _numbers(launches) if number]
        for stream in others:
            stream.wait(first)
        self._launch(launches, lambda number: self.streams[number])
        for stream in others:
            first.wait(stream)

    def _captured(self, launches: Sequence[ConvertedLaunch]) -> Any:
        numbers = _numbers(launches)
        builder = self.device.create_graph_builder()
        try:
            builder.begin_building()
            branches = builder.split(len(numbers)) if len(numbers) > 1 else (builder,)
            self._launch(launches, dict(zip(numbers, branches)).__getitem__)
            if len(branches) > 1:
                builder.join(*branches)
            builder.end_building()
            return builder.complete()
        finally:
            # After an error, closing fails too, and tells less.
            with suppress(Exception):
                builder.close()

    def _launch(self, launches: Sequence[ConvertedLaunch], queue_of: Callable[[int], Any]) -> None:
        for each in launches:
            self.core.launch(queue_of(each.stream), each.config, each.kernel, *each.operands)


class CudaPrepared:
    """See `trnqc.jit.cuda.prepared.PreparedLaunches`."""

    def __init__(self, graphs: CudaGraphs, launches: Sequence[ConvertedLaunch]) -> None:
        self._graphs, self._launches = graphs, launches
        self._graph: Any = None
        self._once = False

    def launch(self) -> None:
        if not self._launches:
            return
        graphs = self._graphs
        graphs.device.set_current()
        if self._once and self._graph is None:
            self._graph = graphs.capture(self._launches)
        self._once = True
        if self._graph is None:
            graphs.queue(self._launches)
        else:
            self._graph.launch(graphs.streams[0])


def _numbers(launches: Sequence[ConvertedLaunch]) -> list[int]:
    """Return the numbers of the streams of launches."""
    return sorted({each.stream for each in launches})
