"""Calls that are repeated on small operands, for which Python takes longer than the loops.

operands -> key: types, shapes, where elements are stored -> kernel with the packed levels of these -> values -> result

Levels depend on the key only, so that a later call with an equal key packs values, and nothing else. The arrays that
the kernel takes are used again, so that their addresses are converted once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trnqc.jit import lacks_compiler
from trnqc.sparse.lower.tensors import OUT
from trnqc.sparse.run.kernel import BoundNest
from trnqc.sparse.run.operands import packed
from trnqc.sparse.run.plan import Plan, result_type
from trnqc.sparse.run.results import ResultPart, joined
from trnqc.sparse.tensors.levels import Compressed
from trnqc.sparse.tensors.libraries import as_operands_are, is_scipy
from trnqc.sparse.tensors.storage import FLOAT64, SparseTensor, rounded

# Elements of an operand up to which calls are kept. For more of them, the loops take longer than Python.
LARGEST = 2**12
# Estimated seconds of a plan up to which its calls are kept. They run on one thread.
LONGEST = 1e-3
# Bytes of the arrays of a call up to which they are used again, and those of an entry of a sparse result.
KEPT, ENTRY = 2**20, 16
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
        return x.shape, x.dtype, None, _ones(x)
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
    return not stored.size or (stored.item(0) == 1 and bool((stored == 1).all()))


@dataclass(frozen=True)
class PackedValues:
    """The values of operand `number`, packed: the argument `name` of `size` elements.

    They are taken from `places` in the values after a zero, or as they are if that is None.
    """

    name: str
    number: int
    size: int
    places: np.ndarray | None


@dataclass(frozen=True)
class RepeatedCall:
    """A nest for operands of one key.

    Parameters
    ----------
    nest
        The functions of the nest, with the levels of the operands bound.
    values
        The values of the operands that have some.
    shape, modes, dtype
        The shape of the result, the modes of its levels, and its element type.
    """

    nest: BoundNest
    values: tuple[PackedValues, ...]
    shape: tuple[int, ...]
    modes: tuple[int, ...]
    dtype: np.dtype
    # Memory that no call uses at present. A list takes and returns its last element in one step of the interpreter, so
    # that calls of several threads do not share memory.
    _free: list[_Memory] = field(default_factory=list, repr=False)

    def __call__(self, operands: Sequence[Any]) -> Any:
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _Memory(self)
        memory.run(operands)
        again = memory.bytes <= KEPT
        if self.nest.appended:
            result = as_operands_are(replace(memory.appended(self.shape, self.modes), dtype=self.dtype), operands)
        elif self.dtype == FLOAT64:
            result = memory.dense.copy(order="K") if again else memory.dense
        else:
            result = rounded(memory.dense, self.dtype)
        if again:
            self._free.append(memory)
        return result


class _Memory:
    """The arrays of one call at a time, and the functions with their addresses."""

    def __init__(self, call: RepeatedCall) -> None:
        nest = call.nest
        arguments: dict[str, Any] = {name: np.zeros(size, dtype) for name, size, dtype in nest.cleared}
        self._cleared = list(arguments.values())
        self._part: ResultPart | None = None
        if nest.appended:
            parents = arguments[nest.appended.counts(nest.appended.first).name]
            (self._part,) = ResultPart.empty(nest.appended, [nest.capacity], parents)
            arguments |= self._part.arguments
            self._cleared.append(arguments[nest.appended.used.name])
        else:
            stored = [call.shape[mode] for mode in call.modes]
            self.dense = arguments[OUT.name].reshape(stored).transpose(np.argsort(call.modes))
        for x in call.values:
            arguments[x.name] = np.zeros(x.size)
        self._values = [(x.number, arguments[x.name], x.places, _padded(x.places)) for x in call.values]
        self._functions = [
            function.bind(**{name: arguments[name] for name in names}) for function, names in nest.functions
        ]
        self._bytes = sum(array.nbytes for array in self._cleared) + sum(8 * x.size for x in call.values)

    @property
    def bytes(self) -> int:
        """The memory that is occupied: entries of a sparse result that were only reserved are not."""
        entries = self._part.used(self._part.appended.last) if self._part else 0
        return self._bytes + ENTRY * entries

    def run(self, operands: Sequence[Any]) -> None:
        """Compute the result of operands."""
        for array in self._cleared:
            array.fill(0)
        for number, target, places, padded in self._values:
            x = operands[number]
            values = (x if type(x) is np.ndarray else x.data).reshape(-1)
            # The arrays of SciPy may be longer than their rows.
            if places is None:
                target[:] = values[: len(target)]
            else:
                padded[1:] = values[: len(padded) - 1]
                np.take(padded, places, out=target, mode="clip")
        for function in self._functions:
            function()

    def appended(self, shape: tuple[int, ...], modes: tuple[int, ...]) -> SparseTensor:
        """Return a sparse result in memory of its own."""
        assert self._part is not None
        return joined(shape, modes, [self._part], copy=True)


def _padded(places: np.ndarray | None) -> np.ndarray:
    """Return memory for the values from which some places are taken, after a zero."""
    return np.zeros(1 if places is None else 1 + places.max(initial=0))


def repeated(plan: Plan) -> RepeatedCall | None:
    """Return a plan as a call for operands with the key of its own; None for plans that are not kept.

    Kept are plans of one short nest, if its functions can be bound (`NestKernel.bound`).
    """
    if plan.estimate is None or plan.estimate.seconds > LONGEST or len(plan.steps) != 1:
        return None
    if lacks_compiler() or not all(view.is_plain for view in plan.views):
        return None
    network, step, kernel = plan.network, plan.steps[0], plan.kernels()[0]
    if plan.dense == step.nest.formats[-1].sparse:
        # The result of the nest is converted.
        return None
    tensors = [plan.operands.tensors[network.same[t]] for t in step.operands]
    if not all(_as_given(plan.arguments[t], tensor) for t, tensor in zip(step.operands, tensors)):
        return None
    layouts = step.nest.formats
    own = [_own(tensor, layout.ones) for tensor, layout in zip(tensors, layouts)]
    inputs = [packed(tensor, network.inputs[t], f) for t, tensor, f in zip(step.operands, own, layouts)]
    bound = kernel.bound(inputs)
    if bound is None:
        return None
    values = tuple(
        PackedValues(operand.values.name, t, tensor.values.size, _places(tensor.values, before.size))
        for operand, t, tensor, before in zip(kernel.program.tensors.operands, step.operands, inputs, own)
        if tensor.values is not None
    )
    modes = tuple(network.output.index(index) for index in layouts[-1].order)
    return RepeatedCall(bound, values, network.shape(network.output), modes, result_type(plan.arguments))


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
