"""Throughput of a class's kernel on one thread, with one part of the generator changed at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from scripts.eri.classes_bench import LANES, arguments, driver, in_turns, molecules, ordered
from scripts.workloads.quartets import quartet
from trnqc.eri.classes import QuartetClass
from trnqc.eri.kernels.variants import STANDARD, Variant
from trnqc.eri.shells.pairs import ShellPairs, pairs_between
from trnqc.jit import build_all

AS_IT_IS = "as it is"


@dataclass(frozen=True)
class Case:
    """A kernel with its options. Primitive quartets below `cutoff` are left out."""

    variant: Variant = STANDARD
    form: str = ""
    lanes: int = LANES
    cutoff: float = 0.0


CASES = {
    AS_IT_IS: Case(),
    "order: as nodes get ready (fifo)": Case(Variant(method="fifo")),
    "order: targets completed": Case(Variant(method="target")),
    "rule: interleaved": Case(Variant(rule="interleaved")),
    "rule: ket first": Case(Variant(rule="ket first")),
    "harmonics at the end": Case(Variant(fused=False)),
    "code: straight": Case(form="straight"),
    "code: columns": Case(form="columns"),
    "targets cleared, not stored first": Case(Variant(peeled=False)),
    "4 lanes": Case(lanes=4),
    "1 lane": Case(lanes=1),
    "primitives below 1e-10 left out": Case(cutoff=1e-10),
}


def class_row(digits: str, primitives: Sequence[int]) -> dict[str, Any]:
    """Return `rates[primitives][case]` in 10^6 quartets per CPU second, the best of several runs in turns."""
    cls = quartet(digits)
    jobs = {name: partial(driver, cls, case.form, case.variant, case.lanes) for name, case in CASES.items()}

    def show(done: int, total: int, name: str) -> None:
        print(f"\rcompiled ({digits}): {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)

    build_all(jobs, workers=1, progress=show)
    rates = {}
    for k in primitives:
        moles = molecules(cls, k)
        bra, ket = (pairs_between(*side)[0] for side in (moles[:2], moles[2:]))
        seconds = in_turns(*(contestant(cls, case, bra, ket) for case in CASES.values()))
        rates[str(k)] = {name: len(bra) * len(ket) / s / 1e6 for name, s in zip(CASES, seconds)}
    return {"class": digits, "rates": rates}


def contestant(cls: QuartetClass, case: Case, bra: ShellPairs, ket: ShellPairs) -> Callable[[int], Any]:
    kernel, function = driver(cls, case.form, case.variant, case.lanes)
    inputs = arguments(cls, bra, ket, case.lanes, case.variant) | {"cutoff": case.cutoff, "keep": 0}
    return lambda repeats: kernel(*ordered(function, inputs | {"repeats": repeats}))
