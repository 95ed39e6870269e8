"""What a Kohn-Sham object of PySCF has besides an SCF object: its quadrature and its grids, with our programs."""

from __future__ import annotations

from typing import Any

from pyscf.dft.gen_grid import Grids

from trnqc.eri.pyscf.quadratures import accelerate_quadrature, plain_quadrature
from trnqc.xc.grids import accelerate_grids, undo_grids

GRIDS = ("grids", "nlcgrids")


def accelerate_kohn_sham(mf: Any, kernels: str) -> None:
    """Put layers on the grids and the quadrature of an SCF object, if it has any."""
    if "_numint" in mf.__dict__:
        mf.__dict__["_numint"] = accelerate_quadrature(mf.__dict__["_numint"], kernels)
    for name in GRIDS:
        grids = mf.__dict__.get(name)
        if isinstance(grids, Grids):
            mf.__dict__[name] = accelerate_grids(grids, kernels)


def undo_kohn_sham(mf: Any) -> None:
    """Take the layers off."""
    if "_numint" in mf.__dict__:
        mf.__dict__["_numint"] = plain_quadrature(mf.__dict__["_numint"])
    for name in GRIDS:
        if name in mf.__dict__:
            mf.__dict__[name] = undo_grids(mf.__dict__[name])
