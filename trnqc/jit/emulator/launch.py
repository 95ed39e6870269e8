"""Run a kernel that was compiled for the host, and turn what it did wrong into an error."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from trnqc.errors import SimulationError
from trnqc.jit.emulator.build import Emulated, runtime
from trnqc.jit.signature import SCALARS

# The orders in which the blocks of a launch and the threads of a block run, with the number of each in runtime.cpp. The
# random order is the same in each run.
ORDERS = {"ascending": 0, "descending": 1, "random": 2}
# Blocks of a launch: gridDim.x (CUDA C++ Programming Guide, compute capabilities).
MOST_BLOCKS = 2**31 - 1
# REPORTS and the size of a text in launch.h.
_REPORTS, _TEXT = 16, 160


class _Array(ctypes.Structure):
    """EmulatorArray of launch.h."""

    _fields_ = (("begin", ctypes.c_void_p), ("bytes", ctypes.c_int64), ("records", ctypes.c_void_p))


class _Launch(ctypes.Structure):
    """EmulatorLaunch of launch.h."""

    _fields_ = (
        ("body", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("blocks", ctypes.c_int64),
        ("threads", ctypes.c_int32),
        ("order", ctypes.c_int32),
        ("shared", ctypes.c_void_p),
        ("shared_bytes", ctypes.c_int64),
        ("image", ctypes.c_void_p),
        ("image_bytes", ctypes.c_int64),
        ("arrays", ctypes.c_void_p),
        ("array_count", ctypes.c_int32),
        ("reports", ctypes.c_int32),
        ("places", ctypes.c_void_p * _REPORTS),
        ("texts", (ctypes.c_char * _TEXT) * _REPORTS),
    )


# Shared memory and the state of the emulator are those of the process.
_one_at_a_time = threading.Lock()


def run(
    kernel: Emulated,
    groups: int,
    operands: Sequence[Any],
    arrays: Iterable[tuple[int, int]],
    order: str = "ascending",
) -> None:
    """Run the blocks of a launch.

    Parameters
    ----------
    kernel : Emulated
        The kernel.
    groups : int
        The number of blocks.
    operands : sequence
        A ctypes value for each parameter; the address of an array as ``c_void_p``.
    arrays : iterable of (int, int)
        Address and bytes of all arrays in the memory of the device. Only a checked kernel looks at them.
    order : str
        The order of blocks and of threads between barriers, a key of ORDERS.

    Raises
    ------
    SimulationError
        If the kernel does what is undefined on a GPU. The message names each place in its text.
    """
    if groups > MOST_BLOCKS:
        raise SimulationError(f"{kernel.signature.name}: a launch has at most {MOST_BLOCKS} blocks, found {groups}")
    values = [ctypes.pointer(operand) for operand in operands]
    arguments = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.cast(v, ctypes.c_void_p) for v in values))
    begin, end, image, image_end = kernel.places
    known = [_Array(*array, None) for array in arrays if array[1]] if kernel.checked else []
    table = (_Array * max(1, len(known)))(*known)
    launch = _Launch(
        body=ctypes.cast(kernel.library.emulator_body, ctypes.c_void_p),
        arguments=ctypes.addressof(arguments),
        blocks=groups,
        threads=kernel.lanes,
        order=ORDERS[order],
        shared=begin,
        shared_bytes=end - begin,
        image=image,
        image_bytes=image_end - image,
        arrays=ctypes.addressof(table),
        array_count=len(known),
    )
    with _one_at_a_time:
        status = runtime().emulator_run(ctypes.byref(launch))
    if status < 0:
        raise SimulationError(f"{kernel.signature.name}: no memory for the stacks of {kernel.lanes} threads")
    if status:
        raise SimulationError(_words(kernel, launch))


def operand(value: Any, dtype: str, array: bool) -> Any:
    """Return an address or a number as the value that `run` takes."""
    return ctypes.c_void_p(int(value)) if array else SCALARS[dtype](value)


def _words(kernel: Emulated, launch: _Launch) -> str:
    found = [f"{launch.texts[n].value.decode()}, {kernel.line(launch.places[n] or 0)}" for n in range(launch.reports)]
    return f"the CUDA kernel {kernel.signature.name} is wrong: " + "; ".join(found)
