"""Registers and spills of a class's kernel: the chosen form and others, with one thing changed at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from scripts.workloads.quartets import quartet
from trnqc.eri.classes import QuartetClass
from trnqc.eri.cuda.tiers import Tier, candidates
from trnqc.eri.kernels.quartet import quartet_function
from trnqc.eri.kernels.recurrence import recurrence
from trnqc.eri.kernels.variants import Variant
from trnqc.errors import CompilerError
from trnqc.gen import emit_cuda
from trnqc.gen.liveness import peak_live
from trnqc.gen.schedule import best_of
from trnqc.jit import Build, build_all, compile_cuda
from trnqc.jit.occupancy import resident_warps

# For large classes, nvcc takes minutes for orders that ignore live values, so these are left out.
NAIVE_MOST = 1000


@dataclass(frozen=True)
class Case:
    """A form of a kernel. `tier`: how it is generated; `chosen`: whether a GPU would run it."""

    title: str
    tier: Tier
    chosen: bool


def cases(cls: QuartetClass) -> Iterator[Case]:
    """Yield every tier, then the tier in memory with another rule, order or form of additions."""
    tiers = list(candidates(cls))
    for tier in tiers:
        yield Case(f"targets in {tier.name}", tier, tier is tiers[0])
    memory = next((t for t in tiers if t.name == "memory"), None)
    if memory is None:
        return
    straight = memory.variant
    yield Case("memory, plain +=", replace(memory, accumulate="plain"), False)
    yield Case("memory, ket first", replace(memory, variant=replace(straight, rule="ket first")), False)
    if len(recurrence(*cls.shells, rule="bra first").graph) <= NAIVE_MOST:
        naive = replace(straight, rule="bra first", method="fifo", draws=1)
        yield Case("memory, bra first, fifo", replace(memory, variant=naive), False)
        if "registers" not in {t.name for t in tiers}:
            yield Case("targets in registers", Tier("registers", replace(straight, space="local")), False)


def class_rows(digits: str, arches: Sequence[str]) -> list[dict[str, Any]]:
    cls = quartet(digits)
    wanted = [(case, arch) for case in cases(cls) for arch in arches]
    jobs = {str(n): partial(build, cls, case.tier, arch) for n, (case, arch) in enumerate(wanted)}

    def show(done: int, total: int, name: str) -> None:
        print(f"\rnvcc ({digits}): {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)

    built = build_all(jobs, workers=1, progress=show)
    return [row(cls, case, arch, result) for (case, arch), result in zip(wanted, built.values())]


def build(cls: QuartetClass, tier: Tier, arch: str) -> Build:
    function = quartet_function(cls, tier.form, tier.variant)
    text = emit_cuda(function, lanes=tier.lanes, accumulate=tier.accumulate, min_blocks=tier.min_blocks)
    return compile_cuda(text, name="ablation", arch=arch)


def row(cls: QuartetClass, case: Case, arch: str, result: Build | CompilerError) -> dict[str, Any]:
    tier = case.tier
    record = {
        "class": cls.digits,
        "variant": case.title,
        "arch": arch,
        "accumulate": tier.accumulate,
        "lanes": tier.lanes,
        "peak": peak(cls, tier.variant) if tier.form == "straight" else None,
        "chosen": case.chosen,
    }
    if isinstance(result, CompilerError):
        return record | {"error": str(result)}
    k = result.kernel(cls.name)
    return record | {
        "registers": k.registers,
        "spill_stores": k.spill_stores,
        "spill_loads": k.spill_loads,
        "shared": k.shared,
        "given_up": k.spills_excessively,
        "warps": resident_warps(k, tier.lanes, arch),
        "seconds": result.seconds,
        "compiler": result.compiler,
    }


_PEAKS: dict[Any, int] = {}


def peak(cls: QuartetClass, variant: Variant) -> int:
    key = cls.shells, variant.rule, variant.method, variant.draws
    if key not in _PEAKS:
        graph = recurrence(*cls.shells, rule=variant.rule).graph
        _PEAKS[key] = peak_live(graph, best_of(graph, variant.method, variant.draws))
    return _PEAKS[key]
