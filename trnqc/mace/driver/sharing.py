"""Buffers of atoms that take the memory of others within a pass.

A pass is run for one range of atoms after another, so a buffer that it reads and one that it writes are needed at the
same time. A row is used for its range only, however: once the pass has read the last of the old row, it can write the
new one in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from trnqc.mace.driver.steps import AtomPass, Buffer, DriverStep, Operands, RowExchange

Steps = tuple[DriverStep | AtomPass | RowExchange, ...]


def share_rows(steps: Steps, buffers: dict[str, Buffer]) -> tuple[Steps, dict[str, Buffer]]:
    """Return steps and buffers in which buffers of equal rows share memory, where one ends and one begins in a pass."""
    spans = _spans(steps, buffers)
    renamed: dict[str, str] = {}
    begin = 0
    for step in steps:
        end = begin + len(_parts(step))
        if isinstance(step, AtomPass):
            old = [name for name in spans if spans[name][0] < begin <= spans[name][1] < end]
            new = [name for name in spans if begin <= spans[name][0] < end <= spans[name][1]]
            for name in new:
                fits = (n for n in old if buffers[n] == buffers[name] and spans[n][1] < spans[name][0])
                if place := next(fits, None):
                    old.remove(place)
                    renamed[name] = renamed.get(place, place)
        begin = end
    kept = {name: buffer for name, buffer in buffers.items() if name not in renamed}
    return tuple(_renamed(step, renamed) for step in steps), kept


def _spans(steps: Steps, buffers: dict[str, Buffer]) -> dict[str, tuple[int, int]]:
    """The first and the last step that uses each buffer of rows of atoms that receive."""
    spans: dict[str, tuple[int, int]] = {}
    for n, part in enumerate(part for step in steps for part in _parts(step)):
        for name in _names(part):
            if name in buffers and set(buffers[name].size) == {"receiving"} and not buffers[name].cleared:
                spans[name] = spans.get(name, (n, n))[0], n
    return spans


def _parts(step: DriverStep | AtomPass | RowExchange) -> tuple[DriverStep | RowExchange, ...]:
    return step.steps if isinstance(step, AtomPass) else (step,)


def _names(step: DriverStep | RowExchange) -> Iterator[str]:
    values: Iterable[str | int] = step.values if isinstance(step, DriverStep) else (step.buffer,)
    return (value for value in values if isinstance(value, str))


def _renamed(step: DriverStep | AtomPass | RowExchange, names: dict[str, str]) -> DriverStep | AtomPass | RowExchange:
    if isinstance(step, AtomPass):
        return AtomPass(tuple(_renamed_step(part, names) for part in step.steps))
    if isinstance(step, RowExchange):
        return replace(step, buffer=names.get(step.buffer, step.buffer))
    return _renamed_step(step, names)


def _renamed_step(step: DriverStep, names: dict[str, str]) -> DriverStep:
    """The step with operands of other names."""
    passed = dict(zip(step.function.signature.names, step.values))
    changed: Operands = {
        key: names[value] for key, value in passed.items() if isinstance(value, str) and value in names
    }
    return replace(step, operands=step.operands | changed)
