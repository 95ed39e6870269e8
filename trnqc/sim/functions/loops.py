"""Device loops: the compiled program contains the body once, whatever the trip count.

A dry run visits the body for the first pass, whose instructions count for all passes, and for the last pass, whose
instructions do not count, so that offsets are checked at both ends. The body of a loop without passes is visited once
with ``run.absent`` set: its instructions are part of the program, but nothing is computed, and offsets and registers
have no values.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from trnqc.sim.machine import machine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Run
from trnqc.sim.machine.rules import broken, kernel_place
from trnqc.sim.machine.version import version_from_environment
from trnqc.sim.memory.registers import VirtualRegister, read
from trnqc.sim.memory.scalars import NkiScalar, usable


def fori_loop(
    lower: int | VirtualRegister | NkiScalar,
    upper: int | VirtualRegister | NkiScalar,
    body_fun: Callable[[Any], object],
    step: int = 1,
) -> None:
    """Run ``body_fun(i)`` on the device for i = lower, lower + step, ... below upper.

    Parameters
    ----------
    lower, upper : int, VirtualRegister or NkiScalar
        Bounds of the index. Only NKI 0.7 has scalars.
    body_fun : callable
        Loop body. It must return None. It receives the index as a register in NKI 0.6 and where a bound is a register,
        otherwise as a scalar.
    step : int
        Positive increment of the index, known at compile time.

    Raises
    ------
    NkiValidationError
        If an argument has the wrong type, the body returns a value, or its passes issue different instructions.
    """
    run = machine.current()
    of_registers = any(isinstance(bound, VirtualRegister) for bound in (lower, upper))
    as_scalar = version_from_environment() == "0.7" and not of_registers
    for index in _passes(run, "fori_loop", lower, upper, step, NkiScalar if as_scalar else VirtualRegister):
        if body_fun(index) is not None:
            raise NkiValidationError("fori_loop body must return None; carry state through SBUF or HBM")


def while_loop(init: VirtualRegister, body_fun: Callable[[VirtualRegister], VirtualRegister]) -> None:
    """Run ``r = init; while r != 0: r = body_fun(r)`` on the device.

    Parameters
    ----------
    init : VirtualRegister
        Condition before the first pass.
    body_fun : callable
        Loop body. It receives the condition and returns the register with the next condition.

    Raises
    ------
    NkiValidationError
        If an argument or a returned value is no register, or the passes issue different instructions.
    """
    run = machine.current()
    if not isinstance(init, VirtualRegister):
        raise NkiValidationError(f"while_loop init must be a VirtualRegister, got {type(init).__name__}")
    _check_place(run, "while_loop")
    condition, loop = 0 if run.absent else read(init), _Loop(run, (init,))
    while condition != 0:
        loop.start_pass(loop.passes, first=loop.passes == 0)
        returned = body_fun(VirtualRegister(condition))
        if not isinstance(returned, VirtualRegister):
            raise NkiValidationError("while_loop body must return the register that holds the next condition")
        condition = read(returned)
        loop.end_pass()
    loop.trips = loop.passes
    loop.close()


def dynamic_range(
    start: int | VirtualRegister, stop: int | VirtualRegister | None = None, step: int = 1
) -> Iterator[VirtualRegister]:
    """Iterate over the index of a device loop; the older form of `fori_loop`, which NKI 0.7 removes.

    Raises
    ------
    NkiValidationError
        If the simulator stands for NKI 0.7 (TRNQC_NKI) and the run is strict.
    """
    if version_from_environment() != "0.6":
        broken("nl.dynamic_range does not exist in NKI 0.7; use nl.fori_loop", "rejected", ("0.7",))
    warnings.warn("nl.dynamic_range is removed in NKI 0.7; use nl.fori_loop", DeprecationWarning, stacklevel=2)
    lower, upper = (0, start) if stop is None else (start, stop)
    return _passes(machine.current(), "dynamic_range", lower, upper, step, VirtualRegister)


def affine_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Return a Python ``range``, which unrolls the loop; ``sequential_range`` and ``static_range`` are the same."""
    return range(start) if stop is None else range(start, stop, step)


sequential_range = static_range = affine_range


def _passes(run: Run, what: str, lower: Any, upper: Any, step: Any, kind: type) -> Iterator[Any]:
    """Yield the loop index for each pass that is visited, as a register or a scalar (``kind``)."""
    _check_place(run, what)
    first, end = (0, 0) if run.absent else (_bound(run, what, "lower", lower), _bound(run, what, "upper", upper))
    if not isinstance(step, (int, np.integer)) or isinstance(step, bool) or step < 1:
        raise NkiValidationError(f"{what} step must be a positive compile-time integer, got {step!r}")
    count = max(0, -((first - end) // int(step)))
    loop, weight, absent = _Loop(run, (lower, upper)), run.weight, run.absent
    loop.trips = count
    run.absent = absent or (run.dry and count == 0)
    for i in range(count) if not run.dry else sorted({0, max(0, count - 1)}):
        loop.start_pass(i, first=i == 0)
        if run.dry:
            run.weight = weight * count if i == 0 else 0
        value = first + i * int(step)
        yield NkiScalar(value) if kind is NkiScalar else VirtualRegister(value, frozen=True)
        loop.end_pass()
    run.weight, run.absent = weight, absent
    loop.close()


def _check_place(run: Run, what: str) -> None:
    if run.no_reorder:
        raise NkiValidationError(f"{what} is not allowed inside nl.no_reorder()")


def _bound(run: Run, what: str, role: str, bound: Any) -> int:
    """Return the value of a loop bound."""
    if isinstance(bound, VirtualRegister | NkiScalar):
        if run.dry and bound.visit and run.loop_path:
            raise NkiValidationError(
                f"{what} {role} was loaded inside an outer device loop, so the trip count may differ from pass "
                "to pass; a trace cannot count it, simulate with data instead"
            )
        return read(bound if isinstance(bound, VirtualRegister) else usable(bound, f"{what} {role}"))
    if isinstance(bound, (int, np.integer)) and not isinstance(bound, bool):
        return int(bound)
    raise NkiValidationError(f"{what} {role} must be an int, a register or a scalar, got {bound!r}")


class _Loop:
    """Bookkeeping of one device loop.

    All passes share instruction and tile numbers, and tiles from outside that the loop uses stay live to its end.
    """

    def __init__(self, run: Run, bounds: tuple[Any, ...] = ()):
        run.loop_count += 1
        self.run, self.place = run, kernel_place()
        self.id = run.loop_count
        self.passes = self.trips = self.issued = 0
        self.begin = run.tick
        self.outer_counts = (run.tile_count, run.loop_count)  # tiles and loops numbered before the first pass
        self.path, self.counting = run.loop_path, run.counting
        if run.observer is not None:
            run.observer.open_loop(run, self.id, bounds)

    def start_pass(self, index: int, first: bool) -> None:
        run = self.run
        run.tick = self.begin
        run.tile_count, run.loop_count = self.outer_counts
        run.counting = self.counting and first
        run.loop_path = (*self.path, (self.id, index))

    def end_pass(self) -> None:
        issued = self.run.tick - self.begin
        if self.passes and issued != self.issued:
            raise NkiValidationError(
                f"device loop body issued {self.issued} instructions in its first pass and {issued} in a later "
                "one; it is compiled once, so it cannot depend on Python state that changes from pass to pass"
            )
        self.issued = issued
        self.passes += 1

    def close(self) -> None:
        run = self.run
        run.loop_path, run.counting = self.path, self.counting
        run.trips.append((self.place, self.trips))
        if run.observer is not None:
            run.observer.close_loop(run, self.id, self.trips)
        if not self.counting:
            return
        for tile in run.tiles:
            if tile.id <= self.outer_counts[0] and tile.last >= self.begin:
                tile.first, tile.last = min(tile.first, self.begin), run.tick - 1


@contextmanager
def no_reorder() -> Iterator[None]:
    """Keep the order of the instructions inside this context, which must not contain device loops."""
    run = machine.current()
    run.no_reorder += 1
    try:
        yield
    finally:
        run.no_reorder -= 1
