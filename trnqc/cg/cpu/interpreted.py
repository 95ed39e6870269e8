"""A tensor product on the CPU by NumPy's einsum, for machines without a C compiler.

Each path contributes L = pw * sum C[i, j, k] x[u, i] y[v, j] W[u, v, w] gz[w, k], which is linear in each operand. All
directions are sums of derivatives of L with respect to one operand; see programs/directions.py.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from trnqc.cg.engine import Engine, check_operand
from trnqc.cg.problem.coefficients import clebsch_gordan
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.cg.problem.instructions import PathInstruction
from trnqc.cg.problem.modes import MODES
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import DIRECTIONS

# Rows that are computed at a time, which bounds the memory of the products of all channels.
ROWS = 1024
# The result of each direction as a sum of derivatives of L, each with respect to the operand of the first letter, at
# the named operands.
SUMS: dict[str, dict[str, tuple[dict[str, str], ...]]] = {
    "forward": {"z": ({"x": "x", "y": "y", "w": "w"},)},
    "backward": {
        "gx": ({"y": "y", "w": "w", "z": "gz"},),
        "gy": ({"x": "x", "w": "w", "z": "gz"},),
        "gw": ({"x": "x", "y": "y", "z": "gz"},),
    },
    "double_backward": {
        "gx": ({"y": "ggy", "w": "w", "z": "gz"}, {"y": "y", "w": "ggw", "z": "gz"}),
        "gy": ({"x": "ggx", "w": "w", "z": "gz"}, {"x": "x", "w": "ggw", "z": "gz"}),
        "gw": ({"x": "ggx", "y": "y", "z": "gz"}, {"x": "x", "y": "ggy", "z": "gz"}),
        "ggz": (
            {"x": "ggx", "y": "y", "w": "w"},
            {"x": "x", "y": "ggy", "w": "w"},
            {"x": "x", "y": "y", "w": "ggw"},
        ),
    },
}


class InterpretedEngine(Engine):
    """An engine for NumPy arrays of one dtype that compiles nothing; see `CpuEngine` for its methods."""

    def __init__(self, problem: TPProblem, dtype: str, reason: str) -> None:
        self.problem, self.dtype = problem, dtype
        _say(reason)

    def __repr__(self) -> str:
        return f"Engine({self.problem}, {self.ran_on})"

    @property
    def ran_on(self) -> str:
        """Description of what runs the calls."""
        return f"CPU, NumPy's einsum, {self.dtype}, because there is no C compiler"

    @property
    def build_report(self) -> str:
        """Nothing is compiled."""
        return ""

    def _evaluate(
        self,
        name: str,
        operands: Sequence[np.ndarray],
        graph: EdgeGraph | None = None,
        out: Sequence[np.ndarray] | None = None,
        kahan: bool = False,
    ) -> tuple[np.ndarray, ...]:
        direction, rows = DIRECTIONS[name], self._rows(operands, graph)
        arrays = dict(zip(direction.reads, operands, strict=True))
        for key, a in arrays.items():
            check_operand(key, a, self.problem.shape_of(key, rows[key[-1]]), self.dtype, graph)
        results = [np.zeros(self.problem.shape_of(key, rows[key[-1]]), self.dtype) for key in direction.writes]
        for begin in range(0, rows["y"], ROWS):
            chosen = slice(begin, min(begin + ROWS, rows["y"]))
            part = {key: a if a.ndim == 1 else a[self._places(key, chosen, graph)] for key, a in arrays.items()}
            for key, result in zip(direction.writes, results):
                total = sum(self._derivative(key[-1], term, part, chosen) for term in SUMS[name][key])
                self._add(result, np.asarray(total, self.dtype), key, chosen, graph)
        if out is None:
            return tuple(results)
        for key, target, result in zip(direction.writes, out, results, strict=True):
            check_operand(key, target, result.shape, self.dtype, graph, written=True)
            target[...] = result
        return tuple(out)

    def _places(self, key: str, chosen: slice, graph: EdgeGraph | None) -> Any:
        """The rows of an operand that belong to some edges, or to some rows of a batch."""
        if graph is None or key[-1] in "yw":
            return chosen
        return (graph.cols if key[-1] == "x" else graph.rows)[chosen]

    def _add(self, result: np.ndarray, part: np.ndarray, key: str, chosen: slice, graph: EdgeGraph | None) -> None:
        places = self._places(key, chosen, graph)
        if result.ndim == 1:
            result += part
        elif isinstance(places, slice):
            result[places] += part
        else:
            sums = scipy.sparse.csr_array((np.ones(len(places), self.dtype), (places, np.arange(len(places)))))
            result[: sums.shape[0]] += sums @ part

    def _derivative(self, kind: str, term: Mapping[str, str], arrays: Mapping[str, np.ndarray], rows: slice) -> Any:
        """The derivative of L with respect to the operand of a kind, at the operands that `term` names."""
        problem = self.problem
        result = np.zeros(problem.shape_of(kind, rows.stop - rows.start), self.dtype)
        for path in problem.instructions:
            if not path.has_weight and "w" in (kind, term.get("w", "")[2:]):
                continue
            subscripts = _subscripts(path, problem.shared_weights)
            inputs = {key: _view(problem, key, arrays[name], path) for key, name in term.items()}
            coupling = path.path_weight * clebsch_gordan(*problem.degrees(path))
            value = np.einsum(
                f"ijk,{','.join(subscripts[key] for key in inputs)}->{subscripts[kind]}",
                coupling.astype(self.dtype),
                *inputs.values(),
                optimize=True,
            )
            _add_view(problem, kind, result, path, value)
        return result


def _subscripts(path: PathInstruction, shared: bool) -> dict[str, str]:
    """The subscripts of the operands of L: n rows, channels u, v and w or pairs u of channels, components i, j, k."""
    mode = MODES[path.connection_mode]
    pairs = "uv" if mode.pairs == "uv" else "u"
    rows = "" if shared or not path.has_weight else "n"
    channel = {"u": "u", "v": "v", "pair": pairs, "w": "w"}[mode.result]
    weights = rows + pairs + "w" * (mode.result == "w")
    return {"x": "nui", "y": f"n{pairs[-1]}j", "z": f"n{channel}k", "w": weights}


def _channels(problem: TPProblem, kind: str, path: PathInstruction) -> tuple[slice, int, int]:
    """The columns of a path's slot, the number of its channels, and the number of components of a channel."""
    irreps = problem.irreps_of(kind)
    number = {"x": path.i_in1, "y": path.i_in2, "z": path.i_out}[kind]
    return irreps.slices[number], irreps[number].mul, irreps[number].ir.dim


def _chosen(kind: str, path: PathInstruction, count: int) -> np.ndarray | None:
    """The channels of x or y of all pairs u < v, or None in modes in which all channels come in order."""
    if kind == "z" or MODES[path.connection_mode].pairs != "u<v":
        return None
    return np.triu_indices(count, 1)["xy".index(kind)]


def _view(problem: TPProblem, kind: str, array: np.ndarray, path: PathInstruction) -> np.ndarray:
    """The part of an operand that belongs to a path, with axes in the order of `_subscripts`."""
    if kind == "w":
        if not path.has_weight:
            return np.ones(_weight_shape(problem, path), array.dtype)
        return array[..., path.weight_slice].reshape(*array.shape[:-1], *path.path_shape)
    columns, count, dim = _channels(problem, kind, path)
    part = array[:, columns]
    slot = part.reshape(-1, count, dim) if problem.layout == "mul_ir" else part.reshape(-1, dim, count).swapaxes(1, 2)
    chosen = _chosen(kind, path, count)
    if chosen is not None:
        return slot[:, chosen]
    mode = MODES[path.connection_mode]
    if kind == "z" and mode.pairs == "uv" and mode.result == "pair":
        return slot.reshape(len(slot), problem.irreps_in1[path.i_in1].mul, -1, dim)
    return slot


def _weight_shape(problem: TPProblem, path: PathInstruction) -> tuple[int, ...]:
    muls = problem.irreps_in1[path.i_in1].mul, problem.irreps_in2[path.i_in2].mul, problem.irreps_out[path.i_out].mul
    return MODES[path.connection_mode].shape(*muls)


def _add_view(problem: TPProblem, kind: str, result: np.ndarray, path: PathInstruction, value: np.ndarray) -> None:
    """Add the contribution of a path, with axes in the order of `_subscripts`, to an operand."""
    if kind == "w":
        result[..., path.weight_slice] += value.reshape(*result.shape[:-1], path.weight_numel)
        return
    columns, count, dim = _channels(problem, kind, path)
    chosen = _chosen(kind, path, count)
    if chosen is not None:
        pairs, value = value, np.zeros((len(result), count, dim), result.dtype)
        np.add.at(value.swapaxes(0, 1), chosen, pairs.swapaxes(0, 1))
    slot = value.reshape(-1, count, dim)
    result[:, columns] += (slot if problem.layout == "mul_ir" else slot.swapaxes(1, 2)).reshape(len(slot), -1)


@functools.cache
def _say(reason: str) -> None:
    words = f"tensor products are computed by NumPy's einsum instead of compiled kernels: {reason}"
    warnings.warn(words, RuntimeWarning, stacklevel=4)
