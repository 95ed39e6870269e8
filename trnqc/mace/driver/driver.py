"""The driver of evaluations, as a Python object.

sources in C++ -> shared library in the cache -> model of a program, or of a folder -> evaluations
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.cg.cpp import SHARED
from trnqc.errors import InputError, MemoryLimit, StorageError, TrnqcError
from trnqc.jit.cpp import shared_library
from trnqc.mace.driver.steps import DriverProgram

SOURCES = Path(__file__).parent
HEADER = SOURCES / "trnqc_mace.h"
OWN = tuple(
    SOURCES / f"{name}.h"
    for name in ("failure", "memory", "team", "partition", "structure", "rows", "program", "folder")
)
# Names of the errors of trnqc_mace.h, from 1 on, as classes.
ERRORS: dict[int, type[TrnqcError]] = {1: InputError, 2: InputError, 3: InputError, 4: MemoryLimit, 5: StorageError}


# trnqc_mace_exchange.
_EXCHANGE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p
)
# Called with whether rows of copies are added to those of their atoms, all rows, and the row of each atom and copy.
Exchange = Callable[[bool, np.ndarray, np.ndarray], None]


class _Structure(ctypes.Structure):
    """trnqc_mace_structure."""

    _fields_ = (
        ("atoms", ctypes.c_int64),
        ("copies", ctypes.c_int64),
        ("numbers", ctypes.c_void_p),
        ("pairs", ctypes.c_int64),
        ("receivers", ctypes.c_void_p),
        ("senders", ctypes.c_void_p),
        ("vectors", ctypes.c_void_p),
        ("exchange", _EXCHANGE),
        ("context", ctypes.c_void_p),
    )


class _Result(ctypes.Structure):
    """trnqc_mace_result."""

    _fields_ = (
        ("energies", ctypes.c_void_p),
        ("forces", ctypes.c_void_p),
        ("pair_gradients", ctypes.c_void_p),
        ("energy", ctypes.c_double),
        ("virial", ctypes.c_double * 9),
        ("virials", ctypes.c_void_p),
    )


def driver_library() -> Path:
    """Return the path of the driver in the cache, compiled at the first call.

    Raises CompilerError if there is no C++ compiler, or if the compiler fails.
    """
    headers = (HEADER, *OWN, SHARED / "call.h", SHARED / "cpu.h")
    # Evaluations take their time in the kernels, and -O1 is compiled in two thirds of the time of -O2.
    return shared_library("mace-driver", SOURCES / "driver.cpp", headers, ("-pthread", "-O1"), ("-ldl",))


def start_driver() -> None:
    """Start compiling the driver on a thread of its own, if there is none yet, while a model is read.

    The driver does not depend on the model. Errors are left to the call of `driver_library` that needs it.
    """

    def compiled() -> None:
        with contextlib.suppress(TrnqcError):
            driver_library()

    threading.Thread(target=compiled).start()


@cache
def _loaded() -> ctypes.CDLL:
    library = ctypes.CDLL(str(driver_library()))
    library.trnqc_mace_error.restype = ctypes.c_char_p
    library.trnqc_mace_cutoff.restype = ctypes.c_double
    library.trnqc_mace_close.restype = None
    for name in ("cutoff", "close"):
        getattr(library, f"trnqc_mace_{name}").argtypes = [ctypes.c_void_p]
    return library


def _checked(status: int) -> None:
    """Raise the error that a function of the driver has returned."""
    if status:
        raise ERRORS[status](_loaded().trnqc_mace_error().decode())


class Driver:
    """A model in the driver, which keeps the memory of its evaluations.

    The source is a program or the folder of a prepared model. Raises InputError if a folder cannot be read or was
    prepared for another machine, CompilerError if the driver cannot be compiled.
    """

    def __init__(self, source: DriverProgram | str | Path, threads: int) -> None:
        self.library, self._model = _loaded(), ctypes.c_void_p()
        model = ctypes.byref(self._model)
        if isinstance(source, DriverProgram):
            words, constants = source.words(), list(source.constants.values())
            # The driver reads the constants, so they have to live as long as it does.
            self._kept = constants
            of_constants = np.array([array.ctypes.data for array in constants], np.uint64)
            of_functions = np.array([function.address for function in source.functions], np.uint64)
            tables = [(_address(table), ctypes.c_int64(len(table))) for table in (words, of_constants, of_functions)]
            arguments = [part for table in tables for part in table]
            _checked(self.library.trnqc_mace_borrow(*arguments, ctypes.c_int(threads), model))
        else:
            _checked(self.library.trnqc_mace_open(str(source).encode(), ctypes.c_int(threads), model))
        weakref.finalize(self, self.library.trnqc_mace_close, ctypes.c_void_p(self._model.value))

    @property
    def cutoff(self) -> float:
        """The cutoff distance of the model in Angstrom."""
        return float(self.library.trnqc_mace_cutoff(self._model))

    def __call__(
        self,
        numbers: np.ndarray,
        receivers: np.ndarray,
        senders: np.ndarray,
        vectors: np.ndarray,
        *,
        copies: int = 0,
        exchange: Exchange | None = None,
        virials: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return energies of the atoms, forces of atoms and copies [N, 3], and virial [3, 3].

        Parameters
        ----------
        numbers : numpy.ndarray
            Atomic numbers of atoms and copies [N].
        receivers, senders : numpy.ndarray
            All ordered pairs, int64 [pairs]. Those that are farther apart than the cutoff distance are left out.
        vectors : numpy.ndarray
            Position of the receiver minus that of the sender, float64 [pairs, 3] in Angstrom.
        copies : int
            How many of the last numbers are copies of atoms, which only send.
        exchange : callable, optional
            exchange(reverse, rows, row_of) writes the rows of copies, which are those of their atoms, or, if `reverse`
            is true, adds the rows of copies to those of their atoms. Number i has the row row_of[i]. Models with
            several layers need it if there are copies.
        virials : numpy.ndarray, optional
            Contributions of atoms and copies to the virial are written to this array, float64 [N, 3, 3].

        Raises
        ------
        InputError
            If the model does not have an element, a vector is not finite, or two atoms are at the same position.
        MemoryLimit
            If the memory cannot be allocated.
        """
        kept = [np.ascontiguousarray(numbers, np.int32)]
        kept += [np.ascontiguousarray(ends, np.int64) for ends in (receivers, senders)]
        kept.append(np.ascontiguousarray(vectors, np.float64))
        count, pairs = len(kept[0]), len(kept[1])
        energies, forces = np.empty(count - copies), np.empty((count, 3))
        called = _EXCHANGE() if exchange is None else _EXCHANGE(_exchanging(exchange, count))
        structure = _Structure(count - copies, copies, _address(kept[0]), pairs, *map(_address, kept[1:]), called)
        result = _Result(_address(energies), _address(forces))
        if virials is not None:
            if virials.shape != (count, 3, 3) or virials.dtype != np.float64 or not virials.flags.c_contiguous:
                raise InputError(
                    f"virials: expected a C-ordered array of float64 [{count}, 3, 3], "
                    f"found one of {virials.dtype} {list(virials.shape)}"
                )
            result.virials = _address(virials)
        _checked(self.library.trnqc_mace_evaluate(self._model, ctypes.byref(structure), ctypes.byref(result)))
        return energies, forces, np.array(result.virial).reshape(3, 3)


def _exchanging(exchange: Exchange, count: int) -> Callable[..., None]:
    """The function that the driver calls."""

    def called(_: Any, reverse: int, rows: int, row_bytes: int, element_bytes: int, row_of: int) -> None:
        dtype, width = np.dtype(f"f{element_bytes}"), row_bytes // element_bytes
        array = np.ctypeslib.as_array((ctypes.c_char * (count * row_bytes)).from_address(rows))
        places = np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(row_of))
        exchange(bool(reverse), array.view(dtype).reshape(count, width), places)

    return called


def _address(array: np.ndarray) -> Any:
    return ctypes.c_void_p(array.ctypes.data)
