"""The core Hamiltonian's part of SCF gradients by our kernels, in PySCF's `grad_elec`.

PySCF's `grad_elec` multiplies a matrix of derivatives for each atom with the density. Here these matrices come as
zeros, and the sum of all products is added in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trnqc.eri.core_gradient import core_gradient, is_known
from trnqc.host.overrides import users_method


def with_core_apart(
    gradients: Any,
    elec: Callable[..., np.ndarray],
    mo_energy: Any,
    mo_coeff: Any,
    mo_occ: Any,
    atmlst: Sequence[int] | None,
) -> np.ndarray:
    """Return the result of `elec`, a method `grad_elec` of PySCF, with the core Hamiltonian's part by our kernels.

    Without kernels for it, and where PySCF's integrals are not known to be those of `core_gradient`, that is PySCF's.
    """
    if not is_known(gradients) or users_method(gradients, "grad_elec", "extra_force"):
        return elec(mo_energy, mo_coeff, mo_occ, atmlst)
    density, shared = gradients.base.make_rdm1(mo_coeff, mo_occ), getattr(gradients.base, "_shared", None)
    total = np.asarray(density) if np.ndim(density) == 2 else density[0] + density[1]
    core = core_gradient(gradients, total, shared and (lambda mol, dm: shared.ask_of(mol, "attraction", dm)))
    nothing = np.broadcast_to(0.0, (3, *np.shape(density)[-2:]))
    gradients.hcore_generator = lambda mol=None: lambda atom: nothing
    try:
        return elec(mo_energy, mo_coeff, mo_occ, atmlst) + (core if atmlst is None else core[list(atmlst)])
    finally:
        del gradients.hcore_generator
