"""How good are the plans of contractions, and how fast do they run?

    python -m scripts.bench_contract [--sections orders random ccsd rccsd limit a3a tiles order einsum small]
                                     [--vectors avx2] [--out FILE]

    orders   multiply-adds of known workloads: ours, opt_einsum's dynamic programming, cotengra
    random   the same on seeded random networks of 4 to 30 operands: how often each is as good as ours, ratios to ours
    ccsd     one iteration of coupled cluster from its text (examples/ccsd.txt), over blocks of spins and whole spaces,
             against the same terms through numpy.einsum(optimize=True)
    rccsd    one iteration of closed-shell coupled cluster from its text (examples/rccsd.txt) against PySCF's, also with
             half of the memory by which PySCF's iteration grows
    disk     the four-index transformation from file to file in little memory: growth of the process measured
    limit    the fitted ladder, without and with its symmetry, and the four-index transformation under a tenth of their
             temporaries: peak memory measured, times beside the unlimited run; opt_einsum and cotengra at the same
             limit; wall and CPU times first with new pages for every array, as a program has them, then with pages
             that the process keeps
    a3a      the published example with integrals made on the fly: multiply-adds over the unlimited ones, from four
             elements of memory up, beside the published schedules with four equal tiles
    tiles    the fitted ladder with fused loops over all pairs of tile sizes: predicted and measured times, and how well
             the one orders the other (rank correlation); the time of the tiles that the planner would take
    order    fused loops of several contractions over many tiles: how many of the pairs of tiles that should differ
             clearly, by the rates of this machine, do so in that order
    einsum   single calls on large and small operands beside numpy.einsum and pyscf.lib.einsum
    small    programs of many small steps beside a loop over them in Python

Times are CPU seconds of one thread, medians of rounds in which the contestants take turns. A section takes the place of
what the file holds of it, and leaves the others.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import opt_einsum

from scripts import ROOT, vectors
from scripts.contract.coupled_cluster import closed_shells
from scripts.contract.disk import disk
from scripts.contract.einsum import single_calls
from scripts.contract.limit import limited
from scripts.contract.memory import a3a, tiles
from scripts.contract.order import order
from scripts.contract.small import small_steps
from scripts.measuring import clocked, heading, in_turns, machine, one_thread, record_file, write_json
from trnqc.contraction import einsum_plan, parse, path
from trnqc.contraction.order.network import Network
from trnqc.contraction.order.paths import splits_of
from trnqc.expression.program import Program

CHEMICAL = dict.fromkeys("ijkl", 30) | dict.fromkeys("abcdef", 300) | {"Q": 1000}
WORKLOADS = {
    "four factors": ("acik,befl,dfjk,cdel->abij", dict.fromkeys("abcdefijkl", 10)),
    "quadratic ring": ("klcd,acik,bdjl->abij", CHEMICAL),
    "quadratic ladder": ("klcd,cdij,abkl->abij", CHEMICAL),
    "fitted ladder": ("Qae,Qbf,efij->abij", CHEMICAL),
    "dressed integrals": ("klcd,ci,dj,ak,bl->abij", CHEMICAL),
    "transformation": ("pqrs,pa,qb,rc,sd->abcd", dict.fromkeys("pqrsabcd", 200)),
    "hypercontraction": ("ip,ap,pq,jq,bq,ir,ar,rs,js,bs->", CHEMICAL | dict.fromkeys("pqrs", 900)),
}
Planner = Callable[[list[set[str]], set[str], dict[str, int]], Any]


def planners() -> dict[str, Planner]:
    """Paths of ours and of the peers."""
    import cotengra

    def hyper(inputs: list[set[str]], output: set[str], extents: dict[str, int]) -> Any:
        planner = cotengra.HyperOptimizer(
            methods=["greedy"],
            max_repeats=64,
            reconf_opts={},
            minimize="flops",
            parallel=False,
            progbar=False,
            optlib="random",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return planner(inputs, output, extents)

    return {"trnqc": path, "opt_einsum": opt_einsum.paths.DynamicProgramming(), "cotengra": hyper}


def costs(inputs: list[str], output: str, extents: dict[str, int]) -> dict[str, int]:
    """Multiply-adds of everybody's path, by our rules."""
    network = Network.of(inputs, output, extents)
    costs_by_planner = {}
    for name, planner in planners().items():
        steps = planner([set(x) for x in inputs], set(output), extents)
        costs_by_planner[name] = network.cost(splits_of(list(steps), len(inputs)), network.everything)
    return costs_by_planner


def orders() -> dict[str, Any]:
    costs_by_name = {}
    for name, (text, extents) in WORKLOADS.items():
        left, output = text.split("->")
        costs_by_name[name] = costs(left.split(","), output, {x: extents[x] for x in sorted(set(left) - {","})})
        print(f"{name:20}", "  ".join(f"{who} {cost:.4g}" for who, cost in costs_by_name[name].items()))
    return costs_by_name


def random_networks() -> dict[str, Any]:
    """Spanning trees with further edges of two or three ends; extents 2 to 7; degree 2 to 4."""
    rng = random.Random(7)
    ratios: dict[str, list[float]] = {}
    for operands in [*range(4, 25), 26, 28, 30]:
        ends: list[tuple[int, ...]] = [(k, rng.randrange(k)) for k in range(1, operands)]
        while 2 * len(ends) < operands * rng.choice((2, 3) if operands > 16 else (2, 3, 4)):
            ends.append(tuple(rng.sample(range(operands), 3 if rng.random() < 0.2 else 2)))
        letters = [opt_einsum.get_symbol(k) for k in range(len(ends))]
        inputs = ["".join(x for x, group in zip(letters, ends) if k in group) for k in range(operands)]
        costs_of_network = costs(inputs, letters[0], {x: rng.randint(2, 7) for x in letters})
        for name, cost in costs_of_network.items():
            ratios.setdefault(name, []).append(cost / costs_of_network["trnqc"])
    best = {name: sum(r <= 1 for r in values) for name, values in ratios.items()}
    worst = {name: max(values) for name, values in ratios.items()}
    least = {name: min(values) for name, values in ratios.items()}
    print(f"random networks: as good as ours or better {best} of {len(ratios['trnqc'])}, worst ratio {worst}")
    return {"networks": len(ratios["trnqc"]), "as_good_as_ours": best, "worst": worst, "least": least}


def by_numpy(program: Program, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every term by itself through numpy.einsum(optimize=True)."""
    values = dict(arrays)
    for statement in program.statements:
        total: Any = values[statement.target.tensor] if statement.accumulate else None
        for term in statement.terms:
            letter = {label: chr(97 + k) for k, label in enumerate(term.labels)}
            text = ",".join("".join(letter[x] for x in factor.labels) for factor in term.factors)
            text += "->" + "".join(letter[x] for x in statement.target.labels)
            operands = [1 / values[f.tensor] if f.reciprocal else values[f.tensor] for f in term.factors]
            value = float(term.coefficient) * np.einsum(text, *operands, optimize=True)
            total = value if total is None else total + value
        values[statement.target.tensor] = total
    return values


def coupled_cluster() -> dict[str, Any]:
    from pyscf import cc, gto, scf

    from examples import ccsd

    geometry = str(ROOT / "examples" / "molecules" / "water.xyz")
    mf = scf.RHF(gto.M(atom=geometry, basis="cc-pvdz", verbose=0)).run(conv_tol=1e-12)
    energy, blocks = ccsd.iterate(mf, progress=lambda line: None)
    reference = cc.CCSD(mf).run(conv_tol=1e-10, conv_tol_normt=1e-8).e_corr
    arrays = ccsd.spin_orbital_integrals(mf)
    arrays |= {"t1": np.zeros_like(arrays["d1"]), "t2": arrays["oovv"] / arrays["d2"]}
    program = parse(ccsd.EQUATIONS).shaped({name: x.shape for name, x in arrays.items()})
    whole = einsum_plan(program, outputs=("n1", "n2", "energy"))
    times = in_turns(
        5,
        {
            "blocks": clocked(lambda: blocks.run(arrays)),
            "whole": clocked(lambda: whole.run(arrays)),
            "numpy": clocked(lambda: by_numpy(program, arrays)),
        },
    )
    cpu = {name: median(cpu for _, cpu in values) for name, values in times.items()}
    print(f"ccsd water/cc-pVDZ: {energy:.10f}, PySCF {reference:.10f}; CPU s an iteration {cpu}")
    work = {"blocks": blocks.multiply_adds, "whole": whole.multiply_adds}
    return {"energy": energy, "pyscf": reference, "cpu_s": cpu, "multiply_adds": work}


SECTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "orders": orders,
    "random": random_networks,
    "ccsd": coupled_cluster,
    "rccsd": closed_shells,
    "disk": disk,
    "limit": limited,
    "a3a": a3a,
    "tiles": tiles,
    "order": order,
    "einsum": single_calls,
    "small": small_steps,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sections", nargs="+", choices=tuple(SECTIONS), default=tuple(SECTIONS))
    parser.add_argument("--out", type=Path, default=record_file("contract"))
    vectors.add_argument(parser)
    options = parser.parse_args(arguments)
    vectors.keep_to(options.vectors)
    one_thread()
    out = vectors.beside(options.out)
    for name in options.sections:
        figures = SECTIONS[name]()
        record = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"sections": {}}
        record["sections"][name] = heading() | {"machine": machine()} | figures
        write_json(record, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
