"""Multiply-adds of contraction orders: ours, opt_einsum's dynamic programming, and cotengra's."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import opt_einsum

from trnqc.contraction import path
from trnqc.contraction.order.network import LabelNetwork
from trnqc.contraction.order.paths import splits_of

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
    network = LabelNetwork.of(inputs, output, extents)
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
