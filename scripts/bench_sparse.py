"""Measure sparse tensor networks beside other forms of themselves, other compilers and libraries, and dense matrices.

    python -m scripts.bench_sparse [--parts integrals25 integrals100 density factors published solver threads blocks
                                     irreps small] [--quick] [--vectors avx2] [--out FILE]

    integrals25   DLPNO integrals (examples/dlpno_integrals.py), equations (1) and (2), 25 helium atoms
    integrals100  the same, 100 atoms
    density       equation (1) of 25 atoms over the density of the integrals, with a figure
    factors       MTTKRP and TTMc in every mode, on synthetic tensors with short and with long fibres
    published     the same on tensors after four of FROSTT, with the skew of recorded data and fewer elements
    solver        CPU seconds to find the smallest workspaces of known networks, and to rank their nests
    threads       wall time of one thread relative to two, 100 atoms
    blocks        tensors of dense blocks: matrix product states and a DMRG effective Hamiltonian beside loops of
                  np.tensordot over blocks, integrals in local domains beside the elementwise nest
    irreps        transformations of integrals of D2h, stored by elements: products of the blocks that are found, the
                  nest, and np.einsum on arrays
    small         repeated calls on small arrays beside the products of SciPy, where Python takes most of the time

Set A keeps integrals above 1e-6 and P dense, set B all elements above 1e-4. Contestants that are forms of our own nests
run as other compilers would run them, with all operands compressed: nary, one nest over all indices, those of the
result outermost; unfused, a nest for each product with summed indices innermost; unfused-rows, with a workspace for
each row and the map contracted first. Contestants run in turns in one process, with the measured rates of the machine.
TACO runs where TACO_HOME names its source tree with a built library, MKL's sparse BLAS where the packages mkl and
sparse_dot_mkl are installed (MKL_RT may have to name libmkl_rt), PyData sparse where its package is; rows state what
was not installed. Times are CPU times of one thread unless stated otherwise; contestants of more than a second run
once. A target is the least ratio that we aim at. A part replaces the same part in the file and leaves the others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from examples.data.helium_lattice import SETS, lattice
from scripts import vectors
from scripts.measuring import clocked, in_turns, ratio
from scripts.registry import SWITCH, Benchmark, Rows, main, named, number, speedup_table, speedups
from scripts.sparse import blocks as block_cases
from scripts.sparse import factors as factor_cases
from scripts.sparse import known, plot, rivals, taco
from scripts.sparse import small as small_cases
from scripts.sparse.contestants import ONE, TWO, Work, as_array, integrals
from scripts.workloads.irreps import irreps as symmetric
from trnqc import sparse
from trnqc.bench import Figure
from trnqc.sparse.run.machine_rates import measure_and_keep

# Contestants that are other programs, with their names for a reader; the others are plans of trnqc.
PROGRAMS = {
    "dense matrices": "NumPy, dense matrices",
    "np.einsum": "NumPy, einsum",
    "scipy": "SciPy",
    "TACO, paper's loops": "TACO, the paper's loops",
    "TACO, K outermost": "TACO, K outermost",
    "MKL": "MKL's sparse BLAS",
    "PyData sparse": "PyData sparse",
}
EQUATIONS = {"(1)": ONE, "(2)": TWO}
# Targets relative to TACO's code of the CoNST paper's nest.
OVER_TACO = dict.fromkeys(
    (f"{ours} over TACO, paper's loops" for ours in ("fused", "fused, all sparse", "fused, paper's loops")), 1.0
)
# Targets for 25 atoms, where dense matrices are fastest for (1), so that a plan has to choose them.
AT_25 = {
    "trnqc over unfused-rows": 4.0,
    "fused, all sparse over unfused-rows": 3.0,
    "trnqc over nary": 100.0,
    "trnqc over dense matrices": 1 / 1.5,
    **OVER_TACO,
}
# Targets for 100 atoms, and those relative to dense matrices for each equation.
AT_100 = {"trnqc over unfused-rows": 4.0, "fused, all sparse over unfused-rows": 3.0, **OVER_TACO}
OVER_DENSE = {"(1)": 2.0, "(2)": 20.0}
# Magnitudes above which integrals are kept, for times over density.
DENSITY_CUTS = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
# CPU seconds from which a contestant runs once.
LONG = 1.0
# CPU seconds that a turn of block tensors takes at least.
SHORT = 0.02


def timed(works: Mapping[str, Work], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return (wall, CPU) seconds of every turn. Contestants of more than LONG seconds run once."""
    first = {name: clocked(work)() for name, work in works.items()}
    slow = [name for name, work in works.items() if min(first[name][1], clocked(work)()[1]) > LONG]
    quick = {name: clocked(work) for name, work in works.items() if name not in slow}
    times = in_turns(rounds, quick)
    for name in slow:
        times[name] = [clocked(works[name])()] * rounds
    return times


def compared(case: str, works: Mapping[str, Work], ours: dict[str, float], rounds: int) -> dict[str, Any]:
    """Return a row of the record: medians and speed-ups.

    Parameters
    ----------
    case
        The name of the row.
    works
        The contestants.
    ours
        Targets by "a over b", which means how many times faster a is than b.
    rounds
        Number of turns.
    """
    times = timed(works, rounds)
    pairs = {("trnqc", name) for name in works if name != "trnqc"} | {tuple(pair.split(" over ")) for pair in ours}
    speedup = {f"{a} over {b}": ratio(times[b], times[a])["cpu"] for a, b in sorted(pairs) if b in times}
    milliseconds = {name: 1e3 * median(cpu for _, cpu in values) for name, values in times.items()}
    targets = {pair: least for pair, least in ours.items() if pair in speedup}
    return {"case": case, "rounds": rounds, "milliseconds": milliseconds, "speedup": speedup, "target": targets}


def errors(works: Mapping[str, Work], shape: tuple[int, ...]) -> dict[str, float]:
    """Return the largest difference of each contestant from the dense product, relative to its largest element."""
    expected = as_array(works["dense matrices"](), shape)
    scale = np.abs(expected).max()
    return {name: float(np.abs(as_array(work(), shape) - expected).max() / scale) for name, work in works.items()}


def of_lattice(side: int, asked: argparse.Namespace, drop: tuple[str, ...], targets: dict[str, float]) -> Rows:
    for name, cuts in SETS.items():
        operands = lattice(side).operands(cuts)
        for equation, subscripts in EQUATIONS.items():
            works, plans = integrals(subscripts, operands)
            works = {who: work for who, work in works.items() if who not in drop}
            goals = dict(targets)
            if side == 10:
                goals["trnqc over dense matrices"] = OVER_DENSE[equation]
            network = plans["trnqc"].network
            differences = errors(works, network.shape(network.output))
            row = compared(f"{equation} {side * side} atoms, set {name}", works, goals, asked.rounds)
            yield row | {
                "error": differences,
                "ran as": plans["trnqc"].form,
                "plan": str(plans["trnqc"]),
                "fused plan": str(plans["fused"]),
                "packing seconds": plans["trnqc"].operands.seconds,
                "TACO ran": {who: work.name for who, work in works.items() if isinstance(work, taco.Nest)},
                "not installed": rivals.missing(),
            }


def integrals25(asked: argparse.Namespace) -> Rows:
    yield from of_lattice(5, asked, (), AT_25)


def integrals100(asked: argparse.Namespace) -> Rows:
    # nary takes minutes, and unfused half a minute.
    drop = ("nary",) if asked.all else ("nary", "unfused")
    yield from of_lattice(10, asked, drop, AT_100)


def density(asked: argparse.Namespace) -> Rows:
    """Equation (1) with more and more of the integrals left out, and a figure beside the record."""
    rows = []
    for cut in DENSITY_CUTS:
        operands = lattice(5).operands(replace(SETS["B"], integrals=cut))
        works, plans = integrals(ONE, operands)
        works = {who: work for who, work in works.items() if who in plot.COLOURS}
        network = plans["trnqc"].network
        differences = errors(works, network.shape(network.output))
        row = compared(f"(1) 25 atoms, integrals above {cut:g}", works, {}, asked.rounds)
        rows.append(row | {"density": operands["I"].fill, "ran as": plans["trnqc"].form, "error": differences})
        yield rows[-1]
    figure = vectors.beside(asked.out).with_name("sparse_density.svg")
    figure.parent.mkdir(parents=True, exist_ok=True)
    figure.write_text(plot.plot(rows) + "\n", encoding="utf-8")


def factors(asked: argparse.Namespace) -> Rows:
    yield from of_factors(factor_cases.cases(asked.quick), asked.rounds)


def published(asked: argparse.Namespace) -> Rows:
    yield from of_factors(factor_cases.published(asked.quick), asked.rounds)


def of_factors(cases: Iterable[factor_cases.Case], rounds: int) -> Rows:
    for case in cases:
        works, plans = factor_cases.contestants(case)
        error = factor_cases.errors(works)
        best = [name for name in works if name not in ("trnqc", "fused")]
        row = compared(case.label, works, dict(case.targets), rounds)
        alternative = min(best, key=lambda name: row["milliseconds"][name])
        row["speedup"]["trnqc over the best other"] = row["speedup"][f"trnqc over {alternative}"]
        yield row | {
            "best other": alternative,
            "elements": case.tensor.nnz,
            "error": error,
            "plan": str(plans["trnqc"]),
        }


def solver(asked: argparse.Namespace) -> Rows:
    for label, work in known.networks().items():
        runs = [work() for _ in range(3)]
        seconds = {what: median(run["seconds"][what] for run in runs) for what in runs[0]["seconds"]}
        speedup = {f"a second over {what}": 1.0 / value for what, value in seconds.items()}
        yield runs[0] | {"case": label, "seconds": seconds, "speedup": speedup, "target": dict.fromkeys(speedup, 1.0)}


def threads(asked: argparse.Namespace) -> Rows:
    side = 5 if asked.quick else 10
    for name, cuts in SETS.items():
        operands = lattice(side).operands(cuts)
        for equation, subscripts in EQUATIONS.items():
            names = "ICP" if equation == "(1)" else "ICPL"
            plan = sparse.plan(subscripts, *(operands[x] for x in names), form="fused")
            times = in_turns(asked.rounds, {str(n): clocked(partial(plan.run, threads=n)) for n in (1, 2)})
            one, two = plan.run(threads=1), plan.run(threads=2)
            shape = plan.network.shape(plan.network.output)
            same = np.array_equal(as_array(one, shape), as_array(two, shape))
            yield {
                "case": f"{equation} {side * side} atoms, set {name}",
                "rounds": asked.rounds,
                "same bits": same,
                "milliseconds": {f"{n} threads, wall": 1e3 * median(w for w, _ in times[str(n)]) for n in (1, 2)},
                "speedup": {"two threads over one": ratio(times["1"], times["2"])["wall"]},
                "target": {"two threads over one": 1.7},
            }


def blocks(asked: argparse.Namespace) -> Rows:
    for case in block_cases.cases(asked.quick):
        works = block_cases.contestants(case)
        error = block_cases.largest_difference(case, works)
        row = repeated(case.label, works, {f"trnqc over {case.rival}": case.target}, asked.rounds)
        yield row | {"error": {"trnqc": error}, "plan": str(sparse.plan(case.subscripts, *case.operands))}


def repeated(label: str, works: Mapping[str, Work], targets: dict[str, float], rounds: int) -> dict[str, Any]:
    """Return the row of works that are repeated in each round, because the clock of CPU times is coarse."""
    calls = max(1, int(SHORT / min(clocked(work)()[1] + 1e-6 for work in works.values())))
    again = {name: partial(block_cases.repeated, work, calls) for name, work in works.items()}
    row = compared(label, again, targets, rounds)
    row["milliseconds"] = {name: value / calls for name, value in row["milliseconds"].items()}
    return row


def small(asked: argparse.Namespace) -> Rows:
    for label, works, error in small_cases.cases(asked.quick):
        yield repeated(label, works, {"trnqc over scipy": 1.0}, asked.rounds) | {"error": {"trnqc": error}}


def irreps(asked: argparse.Namespace) -> Rows:
    """Transformations of one, two and four indices, with sparse and dense results."""
    for each in (3, 5) if asked.quick else (5, 8):
        integrals, coefficients = symmetric(each)
        a, b = sparse.from_dense(integrals), sparse.from_dense(coefficients)
        for subscripts, count in (("pqrs,pi->iqrs", 1), ("pqrs,pi,qj->ijrs", 2), ("pqrs,pi,qj,rk,sl->ijkl", 4)):
            for out in ("sparse", "dense"):
                blocks, nest = (
                    sparse.plan(subscripts, a, *[b] * count, out=out, form=form) for form in ("blocks", "fused")
                )
                arrays = partial(np.einsum, subscripts, integrals, *[coefficients] * count, optimize=True)
                works: dict[str, Work] = {"trnqc": blocks.run, "nest": nest.run, "np.einsum": arrays}
                for work in works.values():
                    work()  # Compiles the nest, and packs operands.
                yield compared(f"{subscripts}, {8 * each} orbitals, {out}", works, {}, asked.rounds)


def rates(asked: argparse.Namespace) -> None:
    """Measure the rates of the machine, which plans use."""
    if measure_and_keep() is None:
        print("other programs disturb the measurement of rates: plans use shipped ones")


def figures(row: dict[str, Any]) -> Iterator[Figure]:
    """Sparse networks beside the fastest other program, CPU seconds."""
    programs = {name: ms for name, ms in row["milliseconds"].items() if name in PROGRAMS}
    fastest = min(programs, key=lambda name: programs[name])
    ours = row["milliseconds"]["trnqc"]
    ratio = row["speedup"].get(f"trnqc over {fastest}", programs[fastest] / ours)
    yield Figure(row["case"], PROGRAMS[fastest], 1e-3 * programs[fastest], 1e-3 * ours, ratio)


BENCHMARK = Benchmark(
    "sparse",
    __doc__,
    named(integrals25, integrals100, density, factors, published, solver, threads, blocks, irreps, small),
    {
        "--rounds": number(9),
        "--quick": SWITCH | {"help": "small tensors, for which the targets do not hold"},
        "--all": SWITCH | {"help": "also contestants that take half a minute in each turn"},
    },
    line=speedups,
    table=speedup_table,
    prepare=rates,
    single_thread=True,
    shown={
        "integrals25": ("Sparse integrals, 25 atoms", figures),
        "integrals100": ("Sparse integrals, 100 atoms", figures),
    },
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
