"""Kept calls as structures for kept_call.c, which finds the one that given operands have and runs its nest.

It is one call of C for each call of a user. It reads arrays by Python's buffer protocol, and holds the interpreter's
lock except while the nest runs.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Hashable, Sequence
from ctypes import POINTER, c_int64, c_void_p, py_object
from functools import cache, partial
from importlib import resources
from threading import Lock
from typing import Any

import numpy as np

from trnqc.jit import Parameter, Signature, compile_c

# Most operands and compressed levels of a result of a kept call, as in kept_call.c.
MOST_OPERANDS, MOST_LEVELS = 8, 8
# What stands for the result of a call that is not known, and of one that is known to be planned each time.
UNKNOWN, PLANNED = None, False
# Functions of Python's stable interface, in the order of kept_call.c.
FUNCTIONS = (
    "PyObject_Type",
    "PyObject_GetAttr",
    "PyObject_RichCompareBool",
    "PyObject_GetBuffer",
    "PyBuffer_Release",
    "PyBuffer_ToContiguous",
    "PyErr_Clear",
    "PyErr_NoMemory",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyTuple_Size",
    "PyTuple_GetItem",
    "Py_BuildValue",
    "PyObject_CallObject",
    "PyObject_CallFunctionObjArgs",
    "Py_IncRef",
    "Py_DecRef",
)


class KeptElements(ctypes.Structure):
    """Elements of an array."""

    _fields_ = (("elements", c_void_p), ("count", c_int64), ("type", c_int64))


class KeptOperand(ctypes.Structure):
    """What a call is kept for, of one operand, and where its values go."""

    _fields_ = (
        ("type", py_object),
        ("shape", py_object),
        ("extents", c_void_p),
        ("ndim", c_int64),
        ("rows", c_int64),
        ("positions", KeptElements),
        ("indices", KeptElements),
        ("nonzero", c_void_p),
        ("count", c_int64),
        ("value_type", c_int64),
        ("ones", c_int64),
        ("same", c_int64),
        ("variable", c_int64),
        ("size", c_int64),
        ("places", c_void_p),
        ("holes", c_int64),
    )


class KeptLevel(ctypes.Structure):
    """A level of a sparse result."""

    _fields_ = (("counts", c_int64), ("coordinates", c_int64), ("coordinate_bytes", c_int64))


class KeptCall(ctypes.Structure):
    """A call: its operands, its nest, its memory and its result. Without a nest, it is planned each time."""

    _fields_ = (
        ("n_operands", c_int64),
        ("operands", c_void_p),
        ("nest", c_void_p),
        ("n_arguments", c_int64),
        ("arguments", c_void_p),
        ("n_links", c_int64),
        ("links", c_void_p),
        ("n_variables", c_int64),
        ("places", c_void_p),
        ("cleared", c_void_p),
        ("memory", c_int64),
        ("out", c_int64),
        ("n_levels", c_int64),
        ("first", c_int64),
        ("parents", c_int64),
        ("used", c_int64),
        ("values", c_int64),
        ("columns", c_int64),
        ("direct", c_int64),
        ("levels", c_void_p),
        ("make", py_object),
        ("finish", py_object),
    )


class _Table(ctypes.Structure):
    _fields_ = (
        ("unknown", py_object),
        ("planned", py_object),
        ("shape", py_object),
        ("indptr", py_object),
        ("indices", py_object),
        ("data", py_object),
        ("n_calls", c_int64),
        ("calls", POINTER(POINTER(KeptCall))),
    )


class Kept:
    """Structures and what they point to, which is alive as long as this object."""

    def __init__(self) -> None:
        self._alive: list[Any] = []

    @property
    def bytes(self) -> int:
        """The memory of all arrays."""
        return sum(x.nbytes for x in self._alive if isinstance(x, np.ndarray))

    def keep(self, x: Any) -> None:
        """Keep an object alive."""
        self._alive.append(x)

    def address(self, of: np.ndarray | ctypes.Structure | ctypes.Array[Any]) -> int:
        """Return the address of an array or structure, and keep it alive."""
        self.keep(of)
        return of.ctypes.data if isinstance(of, np.ndarray) else ctypes.addressof(of)

    def integers(self, numbers: Sequence[int]) -> int:
        """Return the address of int64 numbers."""
        return self.address(np.array(numbers, np.int64))

    def elements(self, array: np.ndarray) -> KeptElements:
        """Return a copy of the elements of an array."""
        copy = np.array(array, order="C")
        return KeptElements(self.address(copy), copy.size, type_number(copy.dtype))


def type_number(dtype: np.dtype) -> int:
    """Return the size of an element, negative for floating-point numbers."""
    return dtype.itemsize * (-1 if dtype.kind == "f" else 1)


class KeptCalls:
    """The last calls, by what users asked for besides the operands. Several threads may use it at once.

    Parameters
    ----------
    most : int
        The number of calls that are kept.
    most_bytes : int
        The memory of what they are kept for. The newest call is kept in any case.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self.most, self.most_bytes, self._bytes = most, most_bytes, 0
        # A table is never changed, but replaced, so that no lock is needed to read it.
        self._tables: dict[Hashable, Any] = {}
        self._order: deque[tuple[Hashable, KeptCall, Kept]] = deque()
        self._lock = Lock()

    def __call__(self, asked: Hashable, operands: tuple[Any, ...]) -> Any:
        """Return the result of operands, `UNKNOWN` or `PLANNED`."""
        table = self._tables.get(asked)
        return UNKNOWN if table is None else table(operands)

    def add(self, asked: Hashable, call: KeptCall, kept: Kept) -> None:
        """Keep a call, in place of the oldest ones if there are enough."""
        with self._lock:
            self._order.append((asked, call, kept))
            self._bytes += kept.bytes
            changed = {asked}
            while len(self._order) > 1 and (len(self._order) > self.most or self._bytes > self.most_bytes):
                other, _, oldest = self._order.popleft()
                self._bytes -= oldest.bytes
                changed.add(other)
            for each in changed:
                calls = [(call, kept) for other, call, kept in self._order if other == each]
                if calls:
                    self._tables[each] = _function_of(calls)
                else:
                    del self._tables[each]


def _function_of(calls: Sequence[tuple[KeptCall, Kept]]) -> Any:
    """Return the function of operands that runs the newest call that is kept for them."""
    pointers = (POINTER(KeptCall) * len(calls))(*(ctypes.pointer(call) for call, _ in reversed(calls)))
    table = _Table(UNKNOWN, PLANNED, "shape", "indptr", "indices", "data", len(calls), pointers)
    # What the calls point to has to live as long as the table, which a thread may still use when it is replaced.
    table.alive = tuple(calls), pointers
    return partial(_kept_call(), ctypes.byref(table))


@cache
def _kept_call() -> Any:
    """Return the function of kept_call.c."""
    text = resources.files("trnqc.sparse.run").joinpath("kept_call.c").read_text(encoding="utf-8")
    signature = Signature("use_python", (Parameter("functions", "i64", array=True, ndim=1),))
    library = compile_c(text, [signature], name="kept_call")
    addresses = [ctypes.cast(getattr(ctypes.pythonapi, name), c_void_p).value for name in FUNCTIONS]
    library.use_python(functions=np.array(addresses, np.int64))
    # PyDLL keeps the interpreter's lock, and raises what the function has raised.
    function = ctypes.PyDLL(str(library.path)).kept_call
    function.argtypes, function.restype = (POINTER(_Table), py_object), py_object
    return function
