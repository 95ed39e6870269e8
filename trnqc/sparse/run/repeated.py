"""Calls that are repeated on small operands, for which checks and Python take as long as the loops.

operands, plan -> what the call is kept for: types, shapes, where elements are stored
               -> arguments of the nest with packed levels, values as variables, arrays of the result -> `KeptCall`

Levels depend only on what the call is kept for, so that a later call packs values, and nothing else.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import index
from typing import Any

import numpy as np

from trnqc.jit import NUMPY, in_sequence, lacks_compiler
from trnqc.sparse.lower.append import VALUES, Appended
from trnqc.sparse.lower.tensors import OUT
from trnqc.sparse.run.kept_call import (
    MOST_LEVELS,
    MOST_OPERANDS,
    Kept,
    KeptCall,
    KeptLevel,
    KeptOperand,
    type_number,
)
from trnqc.sparse.run.kernel import BoundNest
from trnqc.sparse.run.operands import packed
from trnqc.sparse.run.plan import Plan, result_type
from trnqc.sparse.tensors.levels import Compressed, Dense, Level
from trnqc.sparse.tensors.libraries import as_operands_are, is_scipy
from trnqc.sparse.tensors.storage import SparseTensor

# Elements of an operand up to which calls are kept. For more of them, loops take longer than checks and Python.
LARGEST = 2**16
# Estimated seconds of a plan up to which its calls are kept if the user asks for one thread, and for more. Kept calls
# run on one thread.
LONGEST, LONGEST_OF_THREADS = 1e-2, 1e-3
# The types of elements that are kept. Others may be refused, or stand for a 0/1 map, which conversions decide.
TYPES = frozenset(map(np.dtype, (np.float64, np.float32, np.int64, np.int32)))
PLACES = frozenset(map(np.dtype, (np.int64, np.int32)))
# Entries of a sparse result from which on the nest writes to its arrays, in place of memory that is copied.
DIRECT = 2**12
# Variables begin at multiples of this number of bytes, as vectors do.
ALIGNED = 64


def repeated(plan: Plan, operands: Sequence[Any], threads: int) -> tuple[KeptCall, Kept] | None:
    """Return a call of these operands for later ones, which are planned again if the plan is not kept (`_nest_of`).

    None is returned unless all operands are NumPy arrays and CSR and CSC arrays of SciPy of at most `LARGEST` elements.
    """
    if not 1 <= len(operands) <= MOST_OPERANDS or lacks_compiler() or not all(map(_is_small, operands)):
        return None
    kept, same = Kept(), [id(x) for x in operands]
    keys = (KeptOperand * len(operands))(*(_key(x, same.index(id(x)), kept) for x in operands))
    call = KeptCall(len(operands), kept.address(keys))
    nest = _nest_of(plan, LONGEST if threads == 1 else LONGEST_OF_THREADS)
    if nest is not None:
        _CallBuilder(call, keys, kept, nest).build(operands)
    return call, kept


def _is_small(x: Any) -> bool:
    if type(x) is np.ndarray:
        return x.size <= LARGEST and x.dtype in TYPES
    if not is_scipy(x) or x.ndim != 2 or x.format not in ("csr", "csc"):
        return False
    values, indices, positions = x.data, x.indices, x.indptr
    if not len(values) == len(indices) <= LARGEST or len(positions) > LARGEST:
        return False
    return values.dtype in TYPES and indices.dtype in PLACES and positions.dtype in PLACES


def _key(x: Any, same: int, kept: Kept) -> KeptOperand:
    key = KeptOperand(type=type(x), shape=x.shape, same=same, variable=-1)
    values = x if type(x) is np.ndarray else x.data
    key.count, key.value_type = values.size, type_number(values.dtype)
    if type(x) is np.ndarray:
        key.extents, key.ndim = kept.integers(x.shape), x.ndim
        nonzero = x != 0
        if not nonzero.all():
            key.nonzero = kept.address(np.ascontiguousarray(nonzero))
            values = values[nonzero]
    else:
        key.rows, key.positions, key.indices = 1, kept.elements(x.indptr), kept.elements(x.indices)
    key.ones = bool((values == 1).all())
    return key


@dataclass(frozen=True)
class _Values:
    """The values of operand `number`, packed: the argument `name` of `size` elements.

    They are taken from `places` in the values, counted from 1, with a zero where these are 0; or as they are if that is
    None.
    """

    name: str
    number: int
    size: int
    places: np.ndarray | None


@dataclass(frozen=True)
class _Nest:
    """The functions of a nest, the values that they take, and shape, modes of levels and element type of the result."""

    bound: BoundNest
    values: tuple[_Values, ...]
    shape: tuple[int, ...]
    modes: tuple[int, ...]
    dtype: np.dtype


def _nest_of(plan: Plan, longest: float) -> _Nest | None:
    """Return the nest of a plan that is kept: one short nest, if its functions can be bound (`NestKernel.bound`)."""
    if plan.estimate is None or plan.estimate.seconds > longest or len(plan.steps) != 1:
        return None
    if not all(view.is_plain for view in plan.views):
        return None
    network, step, kernel = plan.network, plan.steps[0], plan.kernels()[0]
    if plan.dense == step.nest.formats[-1].sparse or len(network.output) > MOST_LEVELS:
        # The result of the nest is converted, or too long for a kept call.
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
        _Values(operand.values.name, t, tensor.values.size, _places(tensor.values, before.size))
        for operand, t, tensor, before in zip(kernel.program.tensors.operands, step.operands, inputs, own)
        if tensor.values is not None
    )
    modes = tuple(network.output.index(index) for index in layouts[-1].order)
    return _Nest(bound, values, network.shape(network.output), modes, result_type(plan.arguments))


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


class _CallBuilder:
    """Fills in what a call runs. Variables are the arrays whose addresses each call has anew, by their numbers."""

    def __init__(self, call: KeptCall, keys: Any, kept: Kept, nest: _Nest) -> None:
        self.call, self.keys, self.kept, self.nest = call, keys, kept, nest
        self.numbers: dict[str, int] = {}
        self.places: list[int] = []
        self.cleared: list[int] = []
        self.memory = 0

    def build(self, operands: Sequence[Any]) -> None:
        """Fill in all fields, `nest` last. Operands tell the kind of a sparse result."""
        call, bound = self.call, self.nest.bound
        for name, size, dtype in bound.cleared:
            count = np.dtype(dtype).itemsize * size
            direct = name == OUT.name and self.nest.dtype == np.float64
            self._variable(name, 0 if direct else count, count)
        for x in self.nest.values:
            key = self.keys[x.number]
            direct = x.places is None and key.value_type == type_number(np.dtype(np.float64))
            key.variable, key.size = self._variable(x.name, 0 if direct else 8 * x.size), x.size
            if x.places is not None:
                key.places, key.holes = self.kept.address(x.places), not x.places.all()
        if bound.appended:
            self._sparse(bound.appended, operands)
        else:
            self._dense()
        self._arguments()
        call.n_variables, call.memory = len(self.places), self.memory
        call.places, call.cleared = self.kept.integers(self.places), self.kept.integers(self.cleared)
        function = in_sequence([function for function, _ in bound.functions])
        self.kept.keep(function)
        call.nest = function.address

    def _variable(self, name: str, count: int, cleared: int = 0) -> int:
        """Add a variable with memory of `count` bytes, or with none of its own if that is 0."""
        number = self.numbers[name] = len(self.places)
        self.places.append(self.memory if count else -1)
        self.cleared.append(cleared)
        self.memory += -(-count // ALIGNED) * ALIGNED
        return number

    def _arguments(self) -> None:
        arguments: list[int] = []
        links: list[int] = []
        for function, values in self.nest.bound.functions:
            arguments.append(function.address)
            for parameter in function.signature.parameters:
                if parameter.name in values:
                    value = values[parameter.name]
                    self.kept.keep(value)
                    arguments.append(index(parameter.convert(value).value or 0))
                else:
                    links += (len(arguments), self.numbers[parameter.name])
                    arguments.append(0)
        call = self.call
        call.n_arguments, call.arguments = len(arguments), self.kept.integers(arguments)
        call.n_links, call.links = len(links) // 2, self.kept.integers(links)

    def _dense(self) -> None:
        call, nest = self.call, self.nest
        call.out = self.numbers[OUT.name]
        call.make = partial(np.empty, tuple(nest.shape[mode] for mode in nest.modes), nest.dtype)
        axes = tuple(np.argsort(nest.modes).tolist())
        if axes != tuple(range(len(axes))):
            call.finish = lambda result, operands: result.transpose(axes)

    def _sparse(self, appended: Appended, operands: Sequence[Any]) -> None:
        call, nest, capacity = self.call, self.nest, self.nest.bound.capacity
        call.make, call.finish, call.columns, direct = _sparse_result(nest, appended, operands)
        call.direct = capacity if direct and capacity >= DIRECT else 0
        levels = []
        for level in range(appended.first, appended.last + 1):
            counts, coordinates = appended.counts(level), appended.coordinates(level)
            size = np.dtype(NUMPY[coordinates.dtype]).itemsize
            if level > appended.first:
                self._variable(counts.name, 8 * capacity)
            number = self._variable(coordinates.name, 0 if call.direct else size * capacity)
            levels.append(KeptLevel(self.numbers[counts.name] if level else -1, number, size))
        call.values = self._variable(VALUES.name, 0 if call.direct else 8 * capacity)
        used = 8 * (appended.last + 1)
        call.used = self._variable(appended.used.name, used, used)
        call.n_levels, call.levels = len(levels), self.kept.address((KeptLevel * len(levels))(*levels))
        call.first, call.parents = appended.first, math.prod(nest.shape[mode] for mode in nest.modes[: appended.first])


Made = Sequence[np.ndarray]


def _sparse_result(nest: _Nest, appended: Appended, operands: Sequence[Any]) -> tuple[Any, Any, int, bool]:
    """Return functions that make the arrays of a result and the result of them, and the columns if it has columns.

    The last value says whether the nest may write to the arrays itself. They may be longer than the result then.
    """
    rows = appended.first == 1 and len(nest.modes) == 2
    if not rows or not any(map(is_scipy, operands)):
        parents = math.prod(nest.shape[mode] for mode in nest.modes[: appended.first])
        types = [np.dtype(NUMPY[appended.coordinates(n).dtype]) for n in range(appended.first, appended.last + 1)]
        return partial(_arrays, parents, types), partial(_converted, nest, appended), 0, False
    # A copy of an empty result has its shape and kind. Its arrays are replaced without the checks of its constructor.
    extents = nest.shape
    zeros: Made = [np.zeros(extents[nest.modes[0]] + 1, np.int64), np.zeros(0, np.int32), np.zeros(0)]
    empty = as_operands_are(_tensor_of(nest, appended, zeros), operands)
    as_columns = (empty.format == "csc") != (nest.modes == (1, 0))
    outer = extents[empty.format == "csc"]
    places, values = empty.indices.dtype, empty.data.dtype

    def make(entries: int, *_: int) -> Made:
        return np.empty(outer + 1, places), np.empty(entries, places), np.empty(entries, values)

    def finish(made: Made, operands: Sequence[Any]) -> Any:
        result = copy.copy(empty)
        result.indptr, result.indices, result.data = made[0], *(_first(x, made[0][-1]) for x in made[1:])
        return result

    coordinates = NUMPY[appended.coordinates(appended.last).dtype]
    direct = not as_columns and places == coordinates and values == np.float64
    return make, finish, outer if as_columns else 0, direct


def _first(array: np.ndarray, count: int) -> np.ndarray:
    """Return the first elements of an array: as a view if they are most of it, else as a copy."""
    if count == len(array):
        return array
    return array[:count] if 2 * count > len(array) else array[:count].copy()


def _arrays(parents: int, types: Sequence[np.dtype], *entries: int) -> Made:
    made: list[np.ndarray] = []
    for above, count, dtype in zip((parents, *entries), entries, types):
        made += [np.empty(above + 1, np.int64), np.empty(count, dtype)]
    return (*made, np.empty(entries[len(types) - 1]))


def _converted(nest: _Nest, appended: Appended, made: Made, operands: Sequence[Any]) -> Any:
    return as_operands_are(_tensor_of(nest, appended, made), operands)


def _tensor_of(nest: _Nest, appended: Appended, made: Made) -> SparseTensor:
    """Return the result of the arrays of its compressed levels and values."""
    dense: list[Level] = [Dense(nest.shape[mode]) for mode in nest.modes[: appended.first]]
    levels = [Compressed(*made[2 * n : 2 * n + 2]) for n in range(len(nest.modes) - appended.first)]
    return SparseTensor(nest.shape, nest.modes, (*dense, *levels), made[-1], nest.dtype)
