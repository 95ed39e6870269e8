"""What computes sums of derivatives of two-electron integrals: our kernels, or PySCF until they are compiled.

SCF object, fitting set -> missing programs: seconds to compile them, seconds of PySCF -> Derivatives -> terms.py
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri import core_gradient
from trnqc.eri.compiled import background, programs
from trnqc.eri.gradient import three_centre
from trnqc.eri.gradient.fitted.half_transform import rows_of
from trnqc.eri.gradient.jk_gradient import exact_jk_gradient, fitted_jk_gradient
from trnqc.eri.gradient.three_centre import Density
from trnqc.eri.integrals import PySCFThreeCentre
from trnqc.eri.prepare import needs
from trnqc.host.threads import cpus
from trnqc.mp2.execution import Execution
from trnqc.mp2.gradient import by_pyscf
from trnqc.pyscf.jk_time import seconds_of_jk

# Shells of the fitting set whose derivatives are timed.
SAMPLE = 8
# What all terms take with PySCF, in passes over the derivatives of (ij|P), and the derivatives of (ij|kl) in J and K.
THREE_CENTRE, FOUR_CENTRE = 5, 10


@dataclass(frozen=True, eq=False)
class Derivatives:
    """Computes gradients [natm, 3], Hartree/Bohr, of sums of two-electron integrals with densities.

    Attributes
    ----------
    execution
        The threads, the memory and the ranks.
    by_pyscf
        Why PySCF computes the derivatives of integrals, or "" if our kernels do.
    """

    execution: Execution
    by_pyscf: str = ""

    @classmethod
    def of(cls, mf: Any, auxmol: gto.Mole, execution: Execution, omegas: Iterable[float] = (0.0,)) -> Derivatives:
        """Choose for an SCF object, the operators of its J and K, and the fitting functions of the correlation.

        Missing kernels are compiled now if PySCF can be expected to take longer, and by jobs of several ranks.
        """
        kernels = background.chosen(getattr(mf, "kernels", None))
        if execution.ranks.size > 1 or kernels == "wait":
            return cls(execution)
        if background.lacks_compiler(kernels):
            return cls(execution, background.NO_COMPILER)
        fitting = _fitting_of(mf)
        wanted = needs.for_mp2_gradients(mf.mol, auxmol, fitting and fitting.auxmol, omegas)
        if fitting and mf.only_dfj:
            wanted |= needs.for_mp2_gradients(mf.mol, auxmol, None, omegas)
        missing = {program: what for program, what in wanted.items() if not programs.is_compiled(program)}
        if missing and kernels == "background":
            by_pyscf = THREE_CENTRE * _seconds_of_pass(mf.mol, auxmol)
            if fitting is None or mf.only_dfj:
                by_pyscf += FOUR_CENTRE * seconds_of_jk(mf.mol)
            if needs.seconds_to_compile(missing) / cpus() < by_pyscf:
                return cls(execution)
        needed = background.Needed(lambda: needs.longest_first(wanted), kernels)
        return cls(execution, "" if needed.ready() else needed.reason)

    @property
    def ran_on(self) -> str:
        """Description of what computes the derivatives."""
        return f"PySCF ({self.by_pyscf})" if self.by_pyscf else programs.words()

    def jk(self, mf: Any, d1: np.ndarray, d2: np.ndarray, **options: Any) -> np.ndarray:
        """Contract derivatives of the integrals of an SCF object, exact or fitted, with two densities.

        Densities are [nao, nao] of a closed shell or [2, nao, nao]; `options` are omega, coulomb and exchange of
        `trnqc.eri.gradient.jk_gradient.exact_jk_gradient`, which has the equation.
        """
        if self.by_pyscf:
            return by_pyscf.jk_gradient(mf, d1, d2, **options)
        fitting, threads, ranks = _fitting_of(mf), self.execution.threads, self.execution.ranks
        if fitting is None:
            return exact_jk_gradient(mf.mol, d1, d2, threads=threads, **options)
        total = np.zeros((mf.mol.natm, 3))
        if mf.only_dfj:
            total += exact_jk_gradient(mf.mol, d1, d2, threads=threads, **options | {"coulomb": 0.0})
            options["exchange"] = 0.0
        rows = None if options.get("omega") else rows_of(fitting)
        options |= {"threads": threads, "rows": rows, "ranks": ranks}
        return total + fitted_jk_gradient(mf.mol, fitting.auxmol, d1, d2, **options)

    def core(self, gradients: Any, density: np.ndarray) -> np.ndarray:
        """Contract derivatives of the core Hamiltonian of a gradients object of PySCF with a density [nao, nao]."""
        if self.by_pyscf:
            return core_gradient.by_matrices(gradients, density)
        options: dict[str, Any] = {"threads": self.execution.threads, "ranks": self.execution.ranks}
        attraction = partial(core_gradient.attraction_gradient, **options)
        return core_gradient.core_gradient(gradients, density, attraction)

    def three_centre(self, mol: gto.Mole, auxmol: gto.Mole, density: Density, block_bytes: float) -> np.ndarray:
        """Contract derivatives of (ij|P) with densities [nao, nao, n] of blocks of functions P, which take as many
        bytes at most; see `trnqc.eri.gradient.three_centre.three_centre_gradient`.
        """
        if self.by_pyscf:
            return by_pyscf.three_centre_gradient(mol, auxmol, density, block_bytes=block_bytes)
        options: dict[str, Any] = {"threads": self.execution.threads, "ranks": self.execution.ranks}
        return three_centre.three_centre_gradient(mol, auxmol, density, block_bytes=block_bytes, **options)

    def two_centre(self, auxmol: gto.Mole, density: np.ndarray) -> np.ndarray:
        """Contract derivatives of (P|Q) with a density [naux, naux]."""
        if self.by_pyscf:
            return by_pyscf.two_centre_gradient(auxmol, density)
        options: dict[str, Any] = {"threads": self.execution.threads, "ranks": self.execution.ranks}
        return three_centre.two_centre_gradient(auxmol, density, **options)


def _fitting_of(mf: Any) -> Any:
    """The density fitting of an SCF object with its fitting functions, or None."""
    fitting = getattr(mf, "with_df", None)
    if fitting and fitting.auxmol is None:
        fitting.build()
    return fitting or None


def _seconds_of_pass(mol: gto.Mole, auxmol: gto.Mole) -> float:
    """Estimate PySCF's wall-clock seconds for the derivatives of (ij|P) from those of a sample of the shells P."""
    derivatives, loc = PySCFThreeCentre(mol, auxmol, "int3c2e_ip1"), auxmol.ao_loc_nr()
    sample = np.unique(np.linspace(0, auxmol.nbas - 1, SAMPLE).astype(int)).tolist()
    functions = sum(int(loc[shell + 1] - loc[shell]) for shell in sample)
    with lib.with_omp_threads(1):
        begin = time.thread_time()
        for shell in sample:
            derivatives.as_pyscf((shell, shell + 1), comp=3)
        seconds = time.thread_time() - begin
    return seconds * int(loc[-1]) / functions / lib.num_threads()
