"""Hartree-Fock SCF objects whose matrices stay in the memory of a GPU, cycle by cycle as PySCF's `scf.hf.kernel`.

object -> first density, h, S, X -> cycles on the GPU (trnqc.eri.cuda.scf) -> energies and orbitals in the object

What a user has replaced or asked for, and is not here, leaves the SCF to PySCF's own loop, with J and K on GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from pyscf import lib, scf
from pyscf.lib import logger

from trnqc.eri.jk.densities import is_symmetric
from trnqc.errors import BackendUnavailable, MemoryLimit, UnsupportedError

if TYPE_CHECKING:
    from trnqc.eri.cuda.scf.matrices import Matrices, Problem, ScfDevice
    from trnqc.eri.cuda.scf.sums import Sums

# The methods of a cycle that run on the GPU, and those whose arguments are matrices of the cycle.
STEPS = (
    *("scf", "kernel", "get_fock", "get_veff", "get_jk", "get_j", "get_k", "eig", "_eigh", "get_occ", "get_grad"),
    *("make_rdm1", "energy_tot", "energy_elec", "check_linear_dependency", "dump_chk", "pre_kernel", "post_kernel"),
)
# The classes whose methods are those that run on the GPU, and the modules in which these were written.
HARTREE_FOCK = (scf.hf.SCF, scf.hf.RHF, scf.uhf.UHF, lib.StreamObject)
WRITTEN_IN = ("pyscf.scf.hf", "pyscf.scf.uhf", "pyscf.lib.misc")


def why_not(mf: Any) -> str:
    """Return why the matrices of an SCF object stay on the host, or ""."""
    if other := _other_method(mf):
        return other
    if mf._eri is not None:
        return "its integrals were given"
    if mf.max_cycle <= 0:
        return "there are no cycles"
    for name in ("callback", "check_convergence"):
        if callable(getattr(mf, name)):
            return f"{name} reads the matrices of each cycle"
    for name in ("level_shift", "damp", "diis_damp", "diis_space_rollback", "diis_file"):
        if np.any(getattr(mf, name)):
            return f"{name} is set"
    if isinstance(mf.diis, lib.diis.DIIS):
        return "the DIIS object was given"
    if mf.diis and mf.diis_space < 2:
        return f"DIIS has a space of {mf.diis_space}"
    return "a dispersion energy is added" if mf.do_disp() else ""


def _other_method(mf: Any) -> str:
    """Return a description of the first method that is not Hartree-Fock's in PySCF, beneath the layers of this package,
    or "".
    """
    for name in STEPS:
        if name in mf.__dict__:
            return f"{name} of this object was replaced"
        cls = _definer(mf, name)
        written = getattr(vars(cls)[name], "__globals__", {}).get("__name__", cls.__module__)
        if cls not in HARTREE_FOCK or written not in WRITTEN_IN:
            return f"{name} is that of {cls.__module__}.{cls.__qualname__}"
    if "DIIS" in mf.__dict__ or vars(_definer(mf, "DIIS"))["DIIS"] is not scf.diis.CDIIS:
        return "DIIS is not CDIIS"
    return ""


def _definer(mf: Any, name: str) -> type:
    """Return the class that defines an attribute first, beneath the layers of this package."""
    classes = type(mf).__mro__
    return next(cls for cls in classes if name in vars(cls) and not cls.__module__.startswith("trnqc."))


def on_gpu(mf: Any, place_of: Callable[[], ScfDevice], dm0: Any, **options: Any) -> tuple[bool, str]:
    """Run an SCF with its matrices on a GPU, if possible; return whether the SCF has run, and a description of the
    device or of the reason.

    `place_of` returns where the matrices go, or raises BackendUnavailable or UnsupportedError. `dm0` is the user's
    first density or None; other options are those of PySCF's `kernel` for the initial guess.
    """
    if reason := why_not(mf):
        return False, reason
    try:
        place = place_of()
        words = place.words
        problem = _problem(mf, dm0, options)
        run = _Run(mf, place, problem)
    except (BackendUnavailable, MemoryLimit, UnsupportedError) as error:
        return False, str(error).splitlines()[0]
    start = logger.process_clock(), logger.perf_counter()
    with run.matrices:
        mf.dump_flags()
        mf.build(mf.mol)
        mf.converged, mf.e_tot, mf.mo_energy, mf.mo_coeff, mf.mo_occ = run.kernel()
    logger.timer(mf, "SCF", *start)
    mf._finalize()
    return True, words


def _problem(mf: Any, dm0: Any, options: dict[str, Any]) -> Problem:
    """Return what an SCF starts from. Raises UnsupportedError if it is not what the GPU computes with."""
    from trnqc.eri.cuda.scf.matrices import Problem

    n, spins = mf.mol.nao_nr(), 2 if isinstance(mf, scf.uhf.UHF) else 1
    overlap, hcore = mf.get_ovlp(mf.mol), mf.get_hcore(mf.mol)
    if dm0 is None and mf.mo_coeff is not None and mf.mo_occ is not None:
        dm0 = mf.make_rdm1()
    if dm0 is None:
        dm0 = mf.get_init_guess(mf.mol, mf.init_guess, s1e=overlap, **options)
    density = np.asarray(dm0)
    if density.shape != ((n, n) if spins == 1 else (2, n, n)):
        raise UnsupportedError(f"the first density has the shape {density.shape}")
    density = density.reshape(spins, n, n)
    for name, matrix in (("h", hcore), ("S", overlap), *(("the first density", d) for d in density)):
        if np.shape(matrix) != (n, n) or np.iscomplexobj(matrix) or not is_symmetric(np.asarray(matrix)):
            raise UnsupportedError(f"{name} is not a real symmetric matrix")
    x = mf.check_linear_dependency(overlap, logger.new_logger(mf))
    if np.shape(x) != (n, n):
        raise UnsupportedError("functions depend linearly on each other")
    occupied = tuple(mf.nelec) if spins == 2 else (mf.mol.nelectron // 2,)
    if max(occupied) > n:
        raise UnsupportedError(f"{max(occupied)} orbitals are occupied, and there are {n} functions")
    return Problem(np.asarray(hcore), np.asarray(overlap), np.asarray(x), density, occupied, bool(mf.direct_scf))


class _Run:
    """The cycles of one SCF; see `pyscf.scf.hf.kernel`, whose steps and log these are."""

    def __init__(self, mf: Any, place: ScfDevice, problem: Problem) -> None:
        from trnqc.eri.cuda.scf.extrapolation import DiisCoefficients
        from trnqc.eri.cuda.scf.matrices import Matrices

        self.mf, self.log = mf, logger.new_logger(mf)
        self.matrices: Matrices = Matrices(place, problem, DiisCoefficients(mf, mf.diis_space) if mf.diis else None)
        self._unrestricted = len(problem.occupied) == 2
        self._gradient_size = sum(k * (len(problem.hcore) - k) for k in problem.occupied)
        tolerance = mf.conv_tol_grad
        if tolerance is None:
            tolerance = np.sqrt(mf.conv_tol)
            self.log.info("Set gradient conv threshold to %g", tolerance)
        self._tolerance = float(tolerance)
        # A file that PySCF made for itself is written once: it holds what the object holds in the end.
        own = getattr(mf, "_chkfile", None)
        self._dumps = bool(mf.chkfile) and (own is None or mf.chkfile != own.name)

    def kernel(self) -> tuple[Any, ...]:
        """Return whether the SCF has converged, the energy, and energies, coefficients and occupations of orbitals."""
        mf = self.mf
        with mf.timings.measure("J and K"):
            sums = self.matrices.start(self._extrapolated(0))
        energy = self._energy(sums)
        self.log.info("init E= %.15g", energy)
        if mf.chkfile:
            scf.chkfile.save_mol(mf.mol, mf.chkfile)
        converged, mf.cycles = False, 0
        while mf.cycles < mf.max_cycle and not converged:
            start, last = (logger.process_clock(), logger.perf_counter()), energy
            energy, sums, orbitals = self._cycle(self._extrapolated(mf.cycles), self._extrapolated(mf.cycles + 1))
            mf.cycles += 1
            self._report(f"cycle= {mf.cycles}", energy, last, sums)
            converged = bool(abs(energy - last) < mf.conv_tol and self._norm(sums) < self._tolerance)
            if self._dumps:
                self._dump(energy, *orbitals)
            self.log.timer(f"cycle= {mf.cycles}", *start)
        if converged and mf.conv_check:
            last = energy
            energy, sums, orbitals = self._cycle(False, False)
            converged = bool(abs(energy - last) < 10 * mf.conv_tol or self._norm(sums) < 3 * self._tolerance)
            self._report("Extra cycle ", energy, last, sums)
        energies, occupations = orbitals
        coefficients = self._dump(energy, *orbitals) if mf.chkfile else self._coefficients()
        return converged, energy, energies, coefficients, occupations

    def _cycle(self, extrapolated: bool, following: bool) -> tuple[float, Sums, tuple[np.ndarray, np.ndarray]]:
        """Return the energy and sums of the next density, and energies and occupations of its orbitals.

        extrapolated, following: whether F of this cycle and of the next one is what DIIS makes of it.
        """
        mf = self.mf
        with mf.timings.measure("diagonalisation"):
            energies = self.matrices.orbitals(extrapolated)
        energies = energies if self._unrestricted else energies[0]
        occupations = mf.get_occ(energies)
        with mf.timings.measure("J and K"):
            sums = self.matrices.step(following)
        return self._energy(sums), sums, (energies, occupations)

    def _extrapolated(self, cycle: int) -> bool:
        return bool(self.mf.diis) and cycle >= self.mf.diis_start_cycle

    def _energy(self, sums: Sums) -> float:
        """Return the energy, and keep its parts where PySCF does."""
        nuclear = self.mf.energy_nuc()
        exchange = sums.two_electron - sums.coulomb
        parts = {"e1": sums.one_electron, "e2": sums.two_electron, "coul": sums.coulomb, "exc": exchange}
        self.mf.scf_summary |= {"nuc": nuclear.real} | parts
        words = "E1 = %s  E2 = %s  Ecoul = %s  Exc = %s"
        self.log.debug(words, *parts.values())
        return sums.one_electron + sums.two_electron + nuclear

    def _norm(self, sums: Sums) -> float:
        tight = scf.hf.TIGHT_GRAD_CONV_TOL
        return sums.gradient if tight else sums.gradient / np.sqrt(max(1, self._gradient_size))

    def _report(self, title: str, energy: float, last: float, sums: Sums) -> None:
        words = "%s E= %.15g  delta_E= %4.3g  |g|= %4.3g  |ddm|= %4.3g"
        self.log.info(words, title, energy, energy - last, self._norm(sums), sums.change)

    def _dump(self, energy: float, energies: np.ndarray, occupations: np.ndarray) -> np.ndarray:
        """Write the checkpoint file, and return the orbitals, which are copied to the host for it."""
        coefficients = self._coefficients()
        state = {"e_tot": energy, "mo_energy": energies, "mo_coeff": coefficients, "mo_occ": occupations}
        self.mf.dump_chk(state)
        return coefficients

    def _coefficients(self) -> np.ndarray:
        """Return the orbitals with PySCF's phases: the largest coefficient of each is positive."""
        coefficients = self.matrices.coefficients()
        for orbitals in coefficients:
            largest = orbitals[np.abs(orbitals).argmax(axis=0), np.arange(orbitals.shape[1])]
            orbitals[:, largest < 0] *= -1
        return coefficients if self._unrestricted else coefficients[0]
