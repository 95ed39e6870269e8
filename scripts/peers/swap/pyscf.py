"""A pytest plugin that puts accelerated objects in the place of PySCF's, for PySCF's own tests.

Every RHF, UHF, ROHF, RKS, UKS and ROKS that a test makes through `pyscf.scf`, `pyscf.dft` or a molecule's methods goes
through `trnqc.accelerate` if ``$PEERS_SWAP`` holds the word ``accelerate``; so does every integration grid and every
numerical integration that is made alone. With the word ``direct`` PySCF's own
question whether integrals fit into memory is always answered with no; that word alone is the control that shows what
the direct way itself changes.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from typing import Any

import pyscf.dft
import pyscf.scf
from pyscf.dft import gen_grid, numint

import trnqc
from trnqc.errors import UnsupportedError
from trnqc.xc.grids import accelerate_grids
from trnqc.xc.numint import NumInt

# Makers of mean-field objects, by the module that tests look them up in.
MAKERS = {pyscf.scf: ("RHF", "UHF", "ROHF", "HF", "KS", "RKS", "UKS", "ROKS"), pyscf.dft: ("RKS", "UKS", "ROKS", "KS")}

_counts = {"accelerated": 0, "refused": 0, "grids": 0, "integrations": 0}


def _count(kind: str) -> None:
    _counts[kind] += 1
    # The recorder shows the counts beside the outcomes: a file in which nothing is swapped tests nothing.
    os.environ["PEERS_SWAPPED"] = json.dumps(_counts)


def _accelerating(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        mf = make(*args, **options)
        try:
            mf = trnqc.accelerate(mf, kernels="wait")
        except UnsupportedError:
            _count("refused")
        else:
            _count("accelerated")
        return mf

    return made


def _accelerating_grids(init: Callable[..., None]) -> Callable[..., None]:
    def made(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        if type(self) is gen_grid.Grids:
            layer = accelerate_grids(self, "wait")
            self.__dict__.update(layer.__dict__)
            self.__class__ = type(layer)
            _count("grids")

    return made


def _accelerated_numint(self: Any) -> None:
    if type(self) is numint.NumInt:
        self.__dict__.update(NumInt("wait").__dict__)
        self.__class__ = NumInt
        _count("integrations")


def pytest_configure() -> None:
    words = os.environ["PEERS_SWAP"].split(",")
    if "accelerate" in words:
        gen_grid.Grids.__init__ = _accelerating_grids(gen_grid.Grids.__init__)
        numint.NumInt.__init__ = _accelerated_numint
    for module, names in MAKERS.items() if "accelerate" in words else ():
        for name in names:
            setattr(module, name, _accelerating(getattr(module, name)))
    if "direct" in words:
        pyscf.scf.hf.SCF._is_mem_enough = lambda self: False
