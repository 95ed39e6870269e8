"""A pytest plugin that puts accelerated objects in the place of PySCF's, for PySCF's own tests.

Every RHF, UHF, ROHF, RKS, UKS and ROKS that a test makes through `pyscf.scf`, `pyscf.dft` or a molecule's methods goes
through `trnqc.accelerate` if ``$PEERS_SWAP`` holds the word ``accelerate``. With the word ``direct`` PySCF's own
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

import trnqc
from trnqc.errors import UnsupportedError

# Makers of mean-field objects, by the module that tests look them up in.
MAKERS = {pyscf.scf: ("RHF", "UHF", "ROHF", "HF", "KS", "RKS", "UKS", "ROKS"), pyscf.dft: ("RKS", "UKS", "ROKS", "KS")}

_counts = {"accelerated": 0, "refused": 0}


def _accelerating(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        mf = make(*args, **options)
        try:
            mf = trnqc.accelerate(mf, kernels="wait")
        except UnsupportedError:
            _counts["refused"] += 1
        else:
            _counts["accelerated"] += 1
        # The recorder shows the counts beside the outcomes: a file in which nothing is swapped tests nothing.
        os.environ["PEERS_SWAPPED"] = json.dumps(_counts)
        return mf

    return made


def pytest_configure() -> None:
    words = os.environ["PEERS_SWAP"].split(",")
    for module, names in MAKERS.items() if "accelerate" in words else ():
        for name in names:
            setattr(module, name, _accelerating(getattr(module, name)))
    if "direct" in words:
        pyscf.scf.hf.SCF._is_mem_enough = lambda self: False
