"""One cycle of a Hartree-Fock SCF after the other on a device, with PySCF's equations.

F = h + V -> DIIS -> X^T F X -> orbitals -> D -> J and K of D, or of its change -> V -> sums (sums.py)

Orbital energies, coefficients of DIIS and the sums are copied; matrices stay. All work is on the first stream of the
device, but for the launches of J and K.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from trnqc.backends.cuda.libraries import with_libraries
from trnqc.backends.cuda.products import DeviceMatrix, Gpu
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.eri.cuda.scf.arrays import Arrays
from trnqc.eri.cuda.scf.extrapolation import DiisCoefficients
from trnqc.eri.cuda.scf.potential import Potential
from trnqc.eri.cuda.scf.programs import ScfPrograms
from trnqc.eri.cuda.scf.sums import Summation, Sums
from trnqc.errors import NotConverged
from trnqc.jit.device import Argument


@dataclass(frozen=True, eq=False)
class ScfDevice:
    """Where the matrices of an SCF are: a builder's only device, with its libraries and programs."""

    builder: CudaJKBuilder
    gpu: Gpu
    programs: ScfPrograms

    @classmethod
    def of(cls, builder: CudaJKBuilder) -> ScfDevice:
        """Open the libraries of the device. Raises BackendUnavailable if one is missing."""
        gpu = with_libraries(builder.devices[0])
        return cls(builder, gpu, ScfPrograms(gpu.device))

    @property
    def words(self) -> str:
        """What computes, in words. Raises BackendUnavailable if a library does not start."""
        return (
            f"{self.builder.ran_on}; all matrices stay there, {self.gpu.products.label}, {self.gpu.solvers.eigen_label}"
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """What an SCF starts from.

    Parameters
    ----------
    hcore, overlap, x [n, n]
        h and S; X with X^T S X = 1.
    density [spins, n, n]
        The first density, of all electrons or of those of each spin.
    occupied
        Occupied orbitals of each spin, or of both.
    incremental
        Whether J and K are those of changes of the density.
    """

    hcore: np.ndarray
    overlap: np.ndarray
    x: np.ndarray
    density: np.ndarray
    occupied: tuple[int, ...]
    incremental: bool


class Matrices:
    """The matrices of one SCF on a device. A context, at whose end their memory is freed.

    Parameters
    ----------
    place
        The device.
    problem
        What the SCF starts from.
    diis
        The coefficients of DIIS, or None without it.

    Raises
    ------
    MemoryLimit
        If the device has too little memory.
    """

    def __init__(self, place: ScfDevice, problem: Problem, diis: DiisCoefficients | None) -> None:
        self._problem, self._diis, self._run = problem, diis, place.programs
        self._label = place.gpu.solvers.eigen_label
        n, spins = len(problem.hcore), len(problem.occupied)
        self._arrays, self._slot = Arrays(place.gpu, n, spins), 0
        self._summation = Summation(self._arrays, place.programs, problem.occupied)
        self._weights: np.ndarray | None = None
        with ExitStack() as held:
            held.callback(self._arrays.release)
            self._allocate(diis.space if diis else 1)
            # With one spin, V = J - K / 2 of the density of all electrons.
            self._potential = Potential(place.builder, place.programs, spins, spins / 2)
            held.callback(self._potential.release)
            self._held = held.pop_all()

    def __enter__(self) -> Matrices:
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def start(self, extrapolated: bool) -> Sums:
        """Compute the potential of the first density and its sums, without a gradient. See `step` for the argument."""
        self._potential.add(*(self._arrays[name] for name in ("dm", "j", "v")))
        return self._sums(False, extrapolated)

    def orbitals(self, extrapolated: bool) -> np.ndarray:
        """Diagonalise F of the last sums, extrapolated if they were computed for that too. Returns energies [spins, n].

        Raises
        ------
        NotConverged
            If a matrix is not diagonal in the end.
        """
        a = self._arrays
        weights = self._weights if extrapolated else None
        if weights is not None:
            self._extrapolate(weights)
        for spin in range(a.spins):
            self._diagonalise(a.square("focks", spin, self._slot) if weights is None else a.square("fock", spin), spin)
        return a.device.download(a["energies"])

    def step(self, extrapolated: bool) -> Sums:
        """Compute the density of the orbitals, its potential, and sums.

        extrapolated: whether the next orbitals are those of F that DIIS has extrapolated.
        """
        a, whole = self._arrays, self._arrays.whole
        a.swap("dm", "last")
        for spin, occupied in enumerate(self._problem.occupied):
            self._density(spin, occupied)
        self._combine(whole, 0, (1.0, "dm"), (-1.0, "last"), "change")
        if not self._problem.incremental:
            self._run("clear", a.n**2, out=a["j"])
            self._run("clear", whole, out=a["v"])
        self._potential.add(a["change" if self._problem.incremental else "dm"], a["j"], a["v"])
        return self._sums(True, extrapolated)

    def coefficients(self) -> np.ndarray:
        """Download the orbitals [spins, n, n], one in each column."""
        return self._arrays.device.download(self._arrays["orbitals"])

    def _allocate(self, slots: int) -> None:
        problem, a = self._problem, self._arrays
        xs = problem.x.T @ problem.overlap
        a.upload({"h": problem.hcore, "x": problem.x, "xs": xs, "dm": problem.density})
        matrices = (a.spins, a.n, a.n)
        a.zeros(dict.fromkeys(("last", "change", "v", "fock", "vectors", "orbitals"), matrices))
        a.zeros(dict.fromkeys(("j", "work", "more"), (a.n, a.n)))
        a.zeros(dict.fromkeys(("focks", "errors"), (slots, *matrices)))
        a.zeros({"energies": (a.spins, a.n), "weights": (slots,), "sums": (Summation.size(a.spins, slots),)})

    def _sums(self, gradient: bool, extrapolated: bool) -> Sums:
        """Compute F = h + V in the slot of the next vector of DIIS, and the sums."""
        a, diis = self._arrays, self._diis if extrapolated else None
        self._slot = self._diis.slot if self._diis else 0
        self._combine(a.whole, self._slot * a.whole, (1.0, "h"), (1.0, "v"), "focks", period=a.n**2)
        sums = self._summation.sums(self._slot, gradient, diis.vectors if diis else 0)
        self._weights = diis.add(sums.errors) if diis else None
        return sums

    def _extrapolate(self, weights: np.ndarray) -> None:
        """F is the sum of the matrices of all slots with the weights of DIIS."""
        a, count = self._arrays, len(weights)
        a.device.write(a["weights"], weights)
        a.multiply(a.rows("weights", 1, count), a.rows("focks", count, a.whole), a.rows("fock", 1, a.whole))

    def _diagonalise(self, fock: DeviceMatrix, spin: int) -> None:
        a, vectors = self._arrays, self._arrays.square("vectors", spin)
        a.multiply(fock, a.square("x"), a.square("work"))
        a.multiply(a.square("x"), a.square("work"), vectors, transpose=(True, False))
        unconverged = a.gpu.solvers.eigenvectors(vectors, a.rows("energies", 1, a.n, spin * a.n))
        if unconverged:
            raise NotConverged(
                f"{self._label}: {unconverged} off-diagonal elements of a Fock matrix of {a.n} functions did not "
                "become zero; look for numbers that are not finite, or use backend='cpu'"
            )
        a.multiply(a.square("x"), vectors, a.square("orbitals", spin), transpose=(False, True))

    def _density(self, spin: int, occupied: int) -> None:
        """D = C_occ C_occ^T, twice that for orbitals of two electrons."""
        a = self._arrays
        if not occupied:
            self._combine(a.n**2, spin * a.n**2, (0.0, "h"), (0.0, "h"), "dm")
            return
        c = a.columns("orbitals", spin, 0, occupied)
        a.multiply(c, c, a.square("dm", spin), transpose=(False, True), alpha=2.0 / a.spins)

    def _combine(
        self, elements: int, at: int, x: tuple[float, str], y: tuple[float, str], out: str, period: int = 0
    ) -> None:
        """out = alpha x + beta y; x is repeated after a period, if there is one."""
        a = self._arrays
        numbers: dict[str, Argument] = {"period": period or elements, "out_at": at, "alpha": x[0], "beta": y[0]}
        self._run("combine", elements, **numbers, x=a[x[1]], y=a[y[1]], out=a[out])
