"""The paths of a convolution in the layout [node, component, channel], and the couplings of an edge.

A path (l1, l2, l3) adds w x_i A_ik to component k of its result, with the coupling A_ik = sum_j C_ijk Y_j. Its path
weight is part of the weights w.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.coupling import by_pair
from trnqc.errors import UnsupportedError
from trnqc.mace.model import Layer, RadialNetwork

# j and C_ijk of the terms of a coupling, the first of them positive.
Terms = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Path:
    """A path of degrees (l1, l2, l3), with the first components of features (x), harmonics (y) and result (z).

    `couplings` are (i, k, number of the coupling of an edge, sign).
    """

    degrees: tuple[int, int, int]
    x: int
    y: int
    z: int
    couplings: tuple[tuple[int, int, int, float], ...]

    @property
    def dims(self) -> tuple[int, int, int]:
        """Numbers of components."""
        l1, l2, l3 = self.degrees
        return 2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1


@dataclass(frozen=True)
class PathLayout:
    """The paths of a convolution in the order of the weights; rows of channels are padded to whole vectors of `lanes`.

    `couplings` are the different couplings of an edge, where j counts the harmonics of all degrees; `dims` are the
    components of features, harmonics and result.
    """

    channels: int
    lanes: int
    paths: tuple[Path, ...]
    couplings: tuple[Terms, ...]
    dims: tuple[int, int, int]

    @cached_property
    def vectors(self) -> int:
        """Number of vectors of a row of channels."""
        return -(-self.channels // self.lanes)

    @property
    def padded(self) -> int:
        """Number of channels in memory."""
        return self.vectors * self.lanes

    @property
    def columns(self) -> int:
        """Number of weights of an edge in memory, paths times padded channels."""
        return len(self.paths) * self.padded

    @property
    def degree(self) -> int:
        """Highest degree of the harmonics."""
        return round(self.dims[1] ** 0.5) - 1


def layout_of(problem: TPProblem, lanes: int) -> PathLayout:
    """Return the layout of a tensor product of channels with harmonics.

    Raises UnsupportedError if a path is not an uvu product with one harmonic, or if slots have different numbers of
    channels.
    """
    _require(problem)
    x, y, z = (_starts(irreps) for irreps in (problem.irreps_in1, problem.irreps_in2, problem.irreps_out))
    numbers: dict[Terms, int] = {}
    paths = []
    for p in problem.instructions:
        degrees, entries = problem.degrees(p), []
        for (i, k), pairs in sorted(by_pair(degrees).items()):
            sign = 1.0 if pairs[0][1] > 0 else -1.0
            terms = tuple((y[p.i_in2] + j, sign * c) for j, c in pairs)
            entries.append((i, k, numbers.setdefault(terms, len(numbers)), sign))
        paths.append(Path(degrees, x[p.i_in1], y[p.i_in2], z[p.i_out], tuple(entries)))
    return PathLayout(problem.irreps_in1[0].mul, lanes, tuple(paths), tuple(numbers), (x[-1], y[-1], z[-1]))


def last_layer(problem: TPProblem, network: RadialNetwork, layout: PathLayout) -> tuple[np.ndarray, np.ndarray | None]:
    """Return weight and bias of the last layer, times the path weights, with columns as in `PathLayout.columns`.

    Raises UnsupportedError if the last layer has normalisation, which would see the padding.
    """
    last: Layer = network.layers[-1]
    if last.norm is not None:
        raise UnsupportedError("the last layer of a radial network has layer normalisation, which is not supported")
    rows = [last.weight] if last.bias is None else [last.weight, last.bias[None]]
    table = np.concatenate(rows)
    padded = np.zeros((len(table), len(layout.paths), layout.padded))
    for n, p in enumerate(problem.instructions):
        padded[:, n, : layout.channels] = p.path_weight * table[:, p.weight_slice]
    columns = padded.reshape(len(table), -1)
    return columns[: len(last.weight)], None if last.bias is None else columns[-1]


def _starts(irreps: object) -> list[int]:
    """First components of the slots, and the number of components."""
    starts = [0]
    for slot in irreps:  # type: ignore[attr-defined]
        starts.append(starts[-1] + slot.ir.dim)
    return starts


def _require(problem: TPProblem) -> None:
    uvu = all(p.connection_mode == "uvu" and p.has_weight for p in problem.instructions)
    harmonics = [(slot.mul, slot.ir.l) for slot in problem.irreps_in2]
    if not uvu or harmonics != [(1, l) for l in range(len(harmonics))]:
        raise UnsupportedError(
            f"a convolution has weighted uvu paths with one harmonic of each degree from 0 on; found {problem}"
        )
    channels = {slot.mul for slot in (*problem.irreps_in1, *problem.irreps_out)}
    if len(channels) != 1:
        raise UnsupportedError(f"the slots of a convolution have equal numbers of channels; found {problem}")
