"""How good are the plans of contractions, and how fast do they run?

    python -m scripts.bench_contract [--sections orders random ccsd ccsdt rccsd df_rccsd triples limit a3a tiles order
                                      slicing einsum transformation small bound ranks]
                                     [--networks DIR] [--vectors avx2] [--out FILE]

    orders   multiply-adds of known workloads: ours, opt_einsum's dynamic programming, cotengra
    random   the same on seeded random networks of 4 to 30 operands: how often each is as good as ours, ratios to ours
    ccsd     one iteration of coupled cluster from its text (examples/ccsd.txt), over blocks of spins and whole spaces,
             against the same terms through numpy.einsum(optimize=True)
    ccsdt    the same with triple excitations (examples/ccsdt.txt) against PySCF's over spatial orbitals, also with
             four fifths of the memory of its temporaries
    rccsd    one iteration of closed-shell coupled cluster from its text (examples/rccsd.txt) against PySCF's, also with
             half of the memory by which PySCF's iteration grows
    df_rccsd the same with fitted integrals (examples/df_rccsd.txt), and with two fifths of that memory
    triples  the energy (T) of closed-shell coupled cluster against PySCF's, within two memory limits; peak memory of
             both; with two threads too where the process has two CPUs
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
    slicing  lattices, random networks and circuits of many small tensors within a tenth of the memory: work, elements
             and times of our loops, and of cotengra's slices after the same seconds of planning; with --networks
             those of a folder of JSON files in place of these, as in examples/benchmarks of cotengra's repository
    einsum   single calls on large and small operands beside numpy.einsum and pyscf.lib.einsum
    transformation  two-electron integrals to molecular orbitals, without and with their symmetry, beside numpy.einsum
             and PySCF's ao2mo.general
    small    programs of many small steps beside a loop over them in Python
    bound    products with vectors in the equations of coupled cluster, with the other inputs bound and not
    ranks    the iteration of rccsd on one and on two ranks of one thread, with and without a memory limit: times,
             efficiency, and bytes between ranks as planned

Times are CPU seconds of one thread, medians of rounds in which the contestants take turns. A section takes the place of
what the file holds of it, and leaves the others.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

from scripts.registry import Benchmark, Rows, main

SECTIONS = {
    "orders": "planning:orders",
    "random": "planning:random_networks",
    "ccsd": "spin_orbitals:coupled_cluster",
    "ccsdt": "spin_orbitals:triples",
    "rccsd": "coupled_cluster:closed_shells",
    "df_rccsd": "coupled_cluster:closed_shells_fitted",
    "triples": "triples:triples",
    "disk": "disk:disk",
    "limit": "limit:limited",
    "a3a": "memory:a3a",
    "tiles": "memory:tiles",
    "order": "order:order",
    "slicing": "slicing:slicing",
    "einsum": "einsum:single_calls",
    "transformation": "transformation:transformations",
    "small": "small:small_steps",
    "bound": "bound:bound_inputs",
    "ranks": "ranks:shared_iterations",
}


def section(work: str, asked: argparse.Namespace) -> Rows:
    """The figures that a function of scripts/contract returns; it prints them itself."""
    yield resolve_name(f"scripts.contract.{work}")(*([asked.networks] if work == SECTIONS["slicing"] else []))


BENCHMARK = Benchmark(
    "contract",
    __doc__,
    {name: partial(section, work) for name, work in SECTIONS.items()},
    options={"--networks": {"type": Path, "metavar": "DIR", "help": "slicing: networks of JSON files in this folder"}},
    place=("sections", ""),
    line=lambda row: "is done",
    single_thread=True,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
