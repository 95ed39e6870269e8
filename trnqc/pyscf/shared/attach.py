"""The SCF object of rank 0, whose J, K, quadratures and gradients are computed by all ranks."""

from __future__ import annotations

from typing import Any

from trnqc.pyscf.density_fitting import DF
from trnqc.pyscf.shared.fitting import SpreadDF
from trnqc.pyscf.shared.work import SharedWork


def attach(mf: Any, shared: SharedWork) -> None:
    """On rank 0, have all ranks compute for an accelerated SCF object what they can share.

    Whatever else the object does is done by rank 0 alone: integrals in memory, responses, Hessians, solvents, nonlocal
    correlation, seminumerical exchange, and everything that PySCF computes.
    """
    mf._shared = shared
    if type(getattr(mf, "with_df", None)) is DF:
        mf.with_df = SpreadDF.of_ranks(mf.with_df, shared)
    if "_numint" in mf.__dict__:
        # These load libxc, which Hartree-Fock does not need.
        from trnqc.pyscf.shared.quadrature import SharedQuadrature
        from trnqc.xc.numint import NumInt

        if isinstance(mf._numint, NumInt):
            mf._numint.team = SharedQuadrature(shared)
