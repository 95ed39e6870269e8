"""A pytest plugin that puts `trnqc.DFMP2` in the place of PySCF's four DF-MP2 classes, for PySCF's own tests.

The classes here only translate what differs by intention: the order of arguments, the value that ``kernel`` of the
native classes returns, and the scaled energy that their SCS classes call e_corr.
"""

from __future__ import annotations

import json
import os
from typing import Any

from pyscf.mp import dfmp2, dfmp2_native, dfump2, dfump2_native

import trnqc

_counts = {"constructed": 0}


def _count() -> None:
    # The recorder shows the counts beside the outcomes: a file in which nothing is swapped tests nothing.
    _counts["constructed"] += 1
    os.environ["PEERS_SWAPPED"] = json.dumps(_counts)


class Plain(trnqc.DFMP2):
    """With the arguments of dfmp2.DFMP2 and dfump2.DFUMP2."""

    def __init__(self, mf: Any, frozen: Any = None, mo_coeff: Any = None, mo_occ: Any = None) -> None:
        super().__init__(mf, frozen=frozen)
        assert mo_coeff is None or mo_coeff is mf.mo_coeff
        assert mo_occ is None or mo_occ is mf.mo_occ
        _count()


class Native(trnqc.DFMP2):
    """With the arguments and the results of dfmp2_native.DFMP2 and dfump2_native.DFUMP2."""

    def __init__(self, mf: Any, frozen: Any = None, auxbasis: Any = None) -> None:
        super().__init__(mf, auxbasis, frozen)
        _count()

    def kernel(self) -> Any:  # type: ignore[override]
        super().kernel()
        return self.e_corr


class NativeScaled(Native):
    """With the arguments and the results of dfmp2_native.SCSMP2 and dfump2_native.SCSUMP2."""

    def __init__(self, mf: Any, ps: float = 6 / 5, pt: float = 1 / 3, *args: Any, **options: Any) -> None:
        super().__init__(mf, *args, **options)
        self.scs = self.gradient_scaling = ps, pt

    @property
    def e_corr(self) -> Any:
        return self.result and self.result.e_corr_scs

    @property
    def e_tot(self) -> Any:
        return self.e_tot_scs


def pytest_configure() -> None:
    dfmp2.DFMP2 = dfmp2.DFRMP2 = dfump2.DFUMP2 = Plain
    dfmp2_native.DFMP2 = dfump2_native.DFUMP2 = Native
    dfmp2_native.SCSMP2 = dfump2_native.SCSUMP2 = NativeScaled
