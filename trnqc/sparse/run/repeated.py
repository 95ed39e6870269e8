"""Calls that are repeated on small operands, for which Python takes longer than the loops.

operands -> key: types, shapes, where elements are stored -> kernel with the packed levels of these -> values -> result

Levels depend on the key only, so that a later call with an equal key packs values, and nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trnqc.jit import lacks_compiler
from trnqc.jit.load import CompiledFunction
from trnqc.sparse.lower.tensors import OUT
from trnqc.sparse.run.operands import packed
from trnqc.sparse.run.plan import Plan, result_type
from trnqc.sparse.tensors.levels import Compressed
from trnqc.sparse.tensors.libraries import is_scipy
from trnqc.sparse.tensors.storage import FLOAT64, SparseTensor, rounded

# Elements of an operand up to which calls are kept. For more of them, the loops take longer than Python.
LARGEST = 2**12
# Estimated seconds of a plan up to which its calls are kept. They run on one thread.
LONGEST = 1e-3
# The types of elements that are kept. Others may be refused, or stand for a 0/1 map, which conversions decide.
TYPES = frozenset(map(np.dtype, (np.float64, np.float32, np.int64, np.int32)))


def key(operands: Sequence[Any]) -> Hashable | None:
    """Return what plans and packed levels depend on, or None for operands whose calls are not kept.

    Kept are calls on NumPy arrays and on CSR and CSC arrays of SciPy, all of at most `LARGEST` elements.
    """
    parts = []
    for x in operands:
        part = _key_of_array(x) if type(x) is np.ndarray else _key_of_rows(x) if is_scipy(x) else None
        if part is None:
            return None
        parts.append(part)
    ids = [id(x) for x in operands]
    return tuple(parts), tuple(map(ids.index, ids))


def _key_of_array(x: np.ndarray) -> Hashable | None:
    if x.size > LARGEST or x.dtype not in TYPES:
        return None
    if np.count_nonzero(x) == x.size:
        return x.shape, x.dtype, None, _ones(x.reshape(-1))
    nonzero = x != 0
    return x.shape, x.dtype, nonzero.tobytes(), _ones(x[nonzero])


def _key_of_rows(x: Any) -> Hashable | None:
    if x.ndim != 2 or x.format not in ("csr", "csc"):
        return None
    values, indices, positions = x.data, x.indices, x.indptr
    if not len(values) == len(indices) <= LARGEST or len(positions) > LARGEST or values.dtype not in TYPES:
        return None
    stored = positions.dtype, positions.tobytes(), indices.dtype, indices.tobytes()
    return x.format, x.shape, values.dtype, stored, _ones(values)


def _ones(stored: np.ndarray) -> bool:
    return not len(stored) or bool(stored[0] == 1 and (stored == 1).all())


@dataclass(frozen=True)
class RepeatedCall:
    """A nest for operands of one key.

    Parameters
    ----------
    functions
        The functions of the nest, with the levels of the operands bound.
    values
        For each operand with values their name in the functions, the number of the operand, and the positions from
        which its packed values are taken, in the values after a zero; None if they are packed as they are.
    arrays
        Names, lengths and types of the arrays that every call needs: the result and workspaces, all zero.
    shape, axes, dtype
        The stored shape of the result, its axes in the order of the output, and its element type.
    """

    functions: tuple[tuple[CompiledFunction, tuple[str, ...]], ...]
    values: tuple[tuple[str, int, np.ndarray | None], ...]
    arrays: tuple[tuple[str, int, str], ...]
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    dtype: np.dtype

    def __call__(self, operands: Sequence[Any]) -> np.ndarray:
        arguments: dict[str, Any] = {name: np.zeros(size, dtype) for name, size, dtype in self.arrays}
        for name, number, places in self.values:
            x = operands[number]
            values = (x if type(x) is np.ndarray else x.data).reshape(-1)
            arguments[name] = np.ascontiguousarray(values, FLOAT64) if places is None else _taken(values, places)
        for function, names in self.functions:
            function(**{name: arguments[name] for name in names})
        return rounded(arguments[OUT.name].reshape(self.shape).transpose(self.axes), self.dtype)


def _taken(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    padded = np.zeros(len(values) + 1)
    padded[1:] = values
    return padded[places]


def repeated(plan: Plan) -> RepeatedCall | None:
    """Return a plan as a call for operands with the key of its own; None for plans that are not kept.

    Kept are plans of one short nest with a dense result, if its functions can be bound (`NestKernel.bound`).
    """
    if plan.estimate is None or plan.estimate.seconds > LONGEST or len(plan.steps) != 1 or not plan.dense:
        return None
    if lacks_compiler() or not all(view.is_plain for view in plan.views):
        return None
    network, step, kernel = plan.network, plan.steps[0], plan.kernels()[0]
    tensors = [plan.operands.tensors[network.same[t]] for t in step.operands]
    if not all(_as_given(plan.arguments[t], tensor) for t, tensor in zip(step.operands, tensors)):
        return None
    layouts = step.nest.formats
    own = [_own(tensor, layout.ones) for tensor, layout in zip(tensors, layouts)]
    inputs = [packed(tensor, network.inputs[t], f) for t, tensor, f in zip(step.operands, own, layouts)]
    bound = kernel.bound(inputs)
    if bound is None:
        return None
    functions, arrays = bound
    values = tuple(
        (operand.values.name, t, _places(tensor.values, before.size))
        for operand, t, tensor, before in zip(kernel.program.tensors.operands, step.operands, inputs, own)
        if tensor.values is not None
    )
    axes = tuple(layouts[-1].order.index(index) for index in network.output)
    shape, dtype = network.shape(layouts[-1].order), result_type(plan.arguments)
    return RepeatedCall(functions, values, arrays, shape, axes, dtype)


def _as_given(operand: Any, tensor: SparseTensor) -> bool:
    """Whether the values of a tensor are those of the operand in the same order, which unsorted rows are not."""
    return tensor.values is not None and (type(operand) is np.ndarray or tensor.kinds == ("dense", "compressed"))


def _own(tensor: SparseTensor, ones: bool) -> SparseTensor:
    """Return a tensor in memory of its own, whose stored values are their positions, counted from 1, or all 1."""
    levels = tuple(
        Compressed(x.positions.copy(), x.coordinates.copy()) if isinstance(x, Compressed) else x for x in tensor.levels
    )
    assert tensor.values is not None
    numbers = np.ones(tensor.size) if ones else np.arange(1.0, tensor.size + 1)
    if "compressed" not in tensor.kinds[-1:]:
        numbers[tensor.values == 0] = 0
    return replace(tensor, levels=levels, values=numbers, _counts={})


def _places(numbers: np.ndarray, count: int) -> np.ndarray | None:
    places = numbers.astype(np.int64)
    as_they_are = len(places) == count and ((places == 0) | (places == np.arange(1, count + 1))).all()
    return None if as_they_are else places
