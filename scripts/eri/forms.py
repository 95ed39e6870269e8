"""The kernels of J and K in their quick form and themselves: seconds until they are compiled, and of J and K."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

from scripts.eri.jk import CUTOFF
from scripts.measuring import clocked, in_turns
from trnqc.eri.compiled import programs
from trnqc.eri.jk.builder import JKBuilder
from trnqc.eri.prepare import needs
from trnqc.host.files import DIRECTORY_VARIABLE
from trnqc.jit import Recipe
from trnqc.mp2.reference.molecule import build_mole, load_geometry


def forms(title: str, rounds: int) -> dict[str, Any]:
    """The row of `title`, molecule/basis: kernels are compiled on all CPUs, J and K of one density use one thread.

    As in a first use, the quick forms are compiled first. J and K of both forms are computed in turns.
    """
    name, _, basis = title.partition("/")
    mol = build_mole(load_geometry(name), basis)
    dm = mol.intor_symmetric("int1e_ovlp")
    compiling, builders = {}, {}
    with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, {DIRECTORY_VARIABLE: cache}):
        recipes = needs.for_jk(mol, 0.0, True, True)
        quick = list(dict.fromkeys(recipe.quick for recipe in recipes if recipe.quick))
        for form, some in (("quick", quick), ("themselves", recipes)):
            compiling[form] = compiled(some)
            builders[form] = JKBuilder(mol, cutoff=CUTOFF, threads=1, quick=form == "quick")
            # A builder takes kernels as soon as they are there: this one is to keep those that it has.
            builders[form].build = mock.Mock(return_value=builders[form].build())  # type: ignore[method-assign]
        matrices = {form: np.asarray(builder.get_jk(dm)) for form, builder in builders.items()}
        runs = in_turns(rounds, {form: clocked(partial(builder.get_jk, dm)) for form, builder in builders.items()})
    times = {form: median(cpu for _, cpu in answers) for form, answers in runs.items()}
    return {
        "case": title,
        "kernels": len(recipes),
        "threads": 1,
        "seconds of compiling": compiling,
        "CPU seconds of J and K": times,
        "J and K, quick over themselves": times["quick"] / times["themselves"],
        "ratio": compiling["themselves"]["cpu"] / compiling["quick"]["cpu"],
        "max_error": float(abs(matrices["quick"] - matrices["themselves"]).max()),
    }


def compiled(recipes: Sequence[Recipe]) -> dict[str, float]:
    """Wall and CPU seconds of generating and compiling programs, with the compilers'."""
    begin, before = time.perf_counter(), cpu()
    programs.build(recipes)
    return {"wall": time.perf_counter() - begin, "cpu": cpu() - before}


def cpu() -> float:
    """CPU seconds of this process and of the processes that it has waited for."""
    usages = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return sum(one.ru_utime + one.ru_stime for one in usages)
