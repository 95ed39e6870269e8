"""The parts of an MP2 result as immutable values, and their form in JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from trnqc.mp2.reference.molecule import Geometry

Triangle = tuple[tuple[float, ...], ...]
"""The rows of the lower triangle of a matrix."""


@dataclass(frozen=True)
class Pairs:
    """Pair energies in Hartree by rows of the lower triangle.

    ``os[i][j]`` with j <= i is the opposite-spin energy of the pairs ij and ji together, ``ss[i][j]`` their same-spin
    energy.
    """

    os: Triangle
    ss: Triangle


@dataclass(frozen=True)
class SpinPairs:
    """Pair energies of an open shell in Hartree, by rows; see `trnqc.types.SpinPairEnergies`.

    ``aa`` and ``bb`` contain the rows of the lower triangle, ``ab`` whole rows.
    """

    aa: Triangle
    ab: Triangle
    bb: Triangle


@dataclass(frozen=True)
class Sizes:
    """Numbers of orbitals and functions.

    Attributes
    ----------
    nocc, nvir
        Correlated occupied and virtual orbitals; those of alpha spin for an open shell.
    naux
        Auxiliary functions.
    nao, nmo
        Atomic orbitals, and all molecular orbitals; None for the caller's own factors.
    nocc_beta, nvir_beta
        Correlated orbitals of beta spin; None for a closed shell.
    """

    nocc: int
    nvir: int
    naux: int
    nao: int | None = None
    nmo: int | None = None
    nocc_beta: int | None = None
    nvir_beta: int | None = None


@dataclass(frozen=True)
class Frozen:
    """Indices of the frozen orbitals among all orbitals.

    Attributes
    ----------
    occ, vir
        Occupied and virtual orbitals; those of alpha spin for an open shell.
    occ_beta, vir_beta
        Those of beta spin; None for a closed shell.
    """

    occ: tuple[int, ...] = ()
    vir: tuple[int, ...] = ()
    occ_beta: tuple[int, ...] | None = None
    vir_beta: tuple[int, ...] | None = None


@dataclass(frozen=True)
class System:
    """The molecule and the approximations.

    Attributes
    ----------
    geometry
        Atoms, with positions in Angstrom.
    basis, auxbasis
        The orbital basis, and the auxiliary set of each element.
    generated
        Elements whose auxiliary set was generated because the library has none.
    metric
        Description of how (P|Q) was factorised.
    scf
        Description of the reference.
    integrals
        Description of what computed the three-centre integrals.
    scf_ran_on
        Description of what computed J and K of the reference.
    spin_square
        Expectation value of S^2 of an unrestricted reference; None for others.
    """

    geometry: Geometry
    basis: str
    auxbasis: Mapping[str, str]
    generated: tuple[str, ...]
    metric: str
    scf: str
    integrals: str = ""
    scf_ran_on: str = ""
    spin_square: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "auxbasis", MappingProxyType(dict(self.auxbasis)))


@dataclass(frozen=True)
class PairRun:
    """Where and how the pair step ran.

    Attributes
    ----------
    backend
        Name of the backend.
    ran_on
        Description of the device and the kernels that ran.
    note
        Why this backend was selected.
    precision
        Precision of the pair step.
    fused
        Whether the energy expression was evaluated together with the products.
    factors
        Description of where B was stored.
    """

    backend: str
    ran_on: str
    note: str
    precision: str
    fused: bool
    factors: str = "in memory"


@dataclass(frozen=True)
class BackendComparison:
    """The pair step over the same factors on another backend.

    Attributes
    ----------
    run
        Where and how it ran.
    e_corr_os, e_corr_ss
        Its energies, Hartree.
    difference_os, difference_ss
        Its energies minus those of the main pair step, Hartree.
    estimated_error
        Estimated error of its correlation energy, Hartree.
    seconds
        Wall time.
    """

    run: PairRun
    e_corr_os: float
    e_corr_ss: float
    difference_os: float
    difference_ss: float
    estimated_error: float
    seconds: float

    @property
    def difference(self) -> float:
        """Difference of the correlation energies, Hartree."""
        return self.difference_os + self.difference_ss


def triangle(matrix: np.ndarray) -> Triangle:
    """The rows of the lower triangle of a matrix."""
    return tuple(tuple(row[: i + 1]) for i, row in enumerate(matrix.tolist()))


def square(rows: Triangle) -> np.ndarray:
    """The inverse of `triangle`, zero above the diagonal."""
    matrix = np.zeros((len(rows), len(rows)))
    for i, row in enumerate(rows):
        matrix[i, : i + 1] = row
    return matrix


def to_plain(value: Any) -> Any:
    """Convert a value with nested dataclasses to dicts, lists, numbers and strings."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _tuples(value: Any) -> Any:
    """Convert nested lists to nested tuples."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def from_plain(cls: type, data: Mapping[str, Any], **nested: Any) -> Any:
    """Build an object of a dataclass from its form in JSON; unknown keys, those of later versions, are ignored.

    `nested` are the fields that are dataclasses themselves.
    """
    known = {f.name for f in dataclasses.fields(cls)}
    return cls(**({key: _tuples(item) for key, item in data.items() if key in known} | nested))
