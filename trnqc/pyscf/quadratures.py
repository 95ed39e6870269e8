"""PySCF's integration grids and numerical integration of density functionals with our programs.

The modules behind it load libxc, so they are imported only for Kohn-Sham objects.
"""

from __future__ import annotations

from typing import Any

GRIDS = ("grids", "nlcgrids")


def accelerate_quadratures(mf: Any, kernels: str) -> None:
    """Put our programs into the grids and the numerical integration of an SCF object, if it has any.

    Objects of other classes than PySCF's own stay as they are.
    """
    if "_numint" not in mf.__dict__:
        return
    from pyscf.dft import gen_grid, numint

    from trnqc.xc.grids import accelerate_grids
    from trnqc.xc.numint import NumInt

    if type(mf._numint) is numint.NumInt:
        mf._numint = NumInt.of(mf._numint, kernels)
    for name in GRIDS:
        if type(mf.__dict__.get(name)) is gen_grid.Grids:
            setattr(mf, name, accelerate_grids(getattr(mf, name), kernels))


def undo_quadratures(mf: Any) -> None:
    """Put PySCF's objects with the same state in the place of ours."""
    if "_numint" not in mf.__dict__:
        return
    from trnqc.xc.grids import undo_grids
    from trnqc.xc.numint import NumInt

    if isinstance(mf._numint, NumInt):
        mf._numint = mf._numint.undo()
    for name in GRIDS:
        if name in mf.__dict__:
            setattr(mf, name, undo_grids(getattr(mf, name)))


def accelerate_xc_gradients(gradients: Any) -> Any:
    """Return a gradients object with exchange and correlation by our programs; that of Hartree-Fock as it is."""
    if "_numint" not in gradients.base.__dict__:
        return gradients
    from trnqc.pyscf.xc_gradients import accelerate_xc_gradients

    return accelerate_xc_gradients(gradients)
