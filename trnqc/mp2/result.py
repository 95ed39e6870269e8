"""The result of an MP2 job: an immutable value that can be written to JSON with every digit, and read back."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from trnqc.errors import InputError
from trnqc.host.files import write_aside
from trnqc.mp2.pairs.accuracy import ErrorEstimate
from trnqc.mp2.reference.molecule import Geometry
from trnqc.types import PairEnergies

# Name and version of the form in JSON.
SCHEMA = "trnqc.mp2/1"
# Units of all numbers, which stand in the JSON too.
UNITS = {"energy": "Hartree", "length": "Angstrom", "time": "second (wall)"}
# (c_os, c_ss) of SCS-MP2: S. Grimme, J. Chem. Phys. 118, 9095 (2003).
SCS = (6 / 5, 1 / 3)
# c_os of SOS-MP2: Y. Jung, R. C. Lochan, A. D. Dutoi, M. Head-Gordon, J. Chem. Phys. 121, 9793 (2004).
SOS = 1.3

Triangle = tuple[tuple[float, ...], ...]
"""The rows of the lower triangle of a matrix."""


@dataclass(frozen=True)
class Pairs:
    """Pair energies by rows of the lower triangle, Hartree: ``os[i][j]`` with j <= i is that of ij and ji together."""

    os: Triangle
    ss: Triangle


@dataclass(frozen=True)
class Sizes:
    """Numbers of active occupied and virtual orbitals and auxiliary functions.

    nao and nmo, the atomic and all molecular orbitals, are None where only factors were given.
    """

    nocc: int
    nvir: int
    naux: int
    nao: int | None = None
    nmo: int | None = None


@dataclass(frozen=True)
class Frozen:
    """Indices of the frozen occupied and virtual orbitals among all orbitals."""

    occ: tuple[int, ...] = ()
    vir: tuple[int, ...] = ()


@dataclass(frozen=True)
class System:
    """The molecule and the approximations.

    Attributes
    ----------
    geometry
        Atoms, in Angstrom.
    basis, auxbasis
        The orbital basis, and the auxiliary set of each element.
    generated
        Elements whose auxiliary set was generated because the library has none.
    metric
        In words, how (P|Q) was factorised.
    scf
        In words, what kind of reference it is.
    integrals
        In words, what computed the three-centre integrals.
    scf_ran_on
        In words, what computed J and K of the reference.
    """

    geometry: Geometry
    basis: str
    auxbasis: Mapping[str, str]
    generated: tuple[str, ...]
    metric: str
    scf: str
    integrals: str = ""
    scf_ran_on: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "auxbasis", MappingProxyType(dict(self.auxbasis)))


@dataclass(frozen=True)
class Run:
    """Where and how the pair step ran.

    Attributes
    ----------
    backend
        Name of the backend.
    ran_on
        In words, what really ran.
    note
        In words, why this backend was taken.
    precision
        Precision of the pair step.
    fused
        Whether the energy expression was part of the product kernel.
    factors
        In words, where B was.
    """

    backend: str
    ran_on: str
    note: str
    precision: str
    fused: bool
    factors: str = "in memory"


@dataclass(frozen=True)
class Comparison:
    """The pair step over the same factors on another backend; differences are this one minus the main one, Hartree."""

    run: Run
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


@dataclass(frozen=True)
class MP2Result:
    """The result of closed-shell DF-MP2; energies in Hartree.

    Attributes
    ----------
    e_hf
        Hartree-Fock energy; None where only factors were given.
    e_corr_os, e_corr_ss
        Opposite- and same-spin parts of the correlation energy.
    pairs
        The same by pairs of occupied orbitals.
    sizes, frozen
        Numbers of orbitals and functions, and which orbitals are not correlated.
    run, error
        Where and how the pair step ran, and the estimated error of its precision.
    timings
        Seconds of wall time by stage.
    versions
        Versions of the software that the result depends on.
    scs, sos
        Factors (c_os, c_ss) of SCS-MP2, and c_os of SOS-MP2.
    system
        The molecule; None where only factors were given.
    warnings
        What the user of the result has to know.
    comparisons
        The same factors on other backends.
    """

    e_hf: float | None
    e_corr_os: float
    e_corr_ss: float
    pairs: Pairs
    sizes: Sizes
    run: Run
    error: ErrorEstimate
    timings: Mapping[str, float]
    versions: Mapping[str, str]
    scs: tuple[float, float] = SCS
    sos: float = SOS
    frozen: Frozen = Frozen()
    system: System | None = None
    warnings: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = field(default=())

    def __post_init__(self) -> None:
        for name in ("timings", "versions"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        # Callers may give numbers of NumPy, which JSON cannot hold.
        object.__setattr__(self, "scs", tuple(map(float, self.scs)))
        object.__setattr__(self, "sos", float(self.sos))

    def __reduce__(self) -> tuple[Any, ...]:
        # Read-only mappings cannot be pickled, so results are sent between processes in their form on disk.
        return MP2Result.from_dict, (self.to_dict(),)

    @property
    def e_corr(self) -> float:
        """MP2 correlation energy."""
        return self.e_corr_os + self.e_corr_ss

    @property
    def e_corr_scs(self) -> float:
        """Spin-component-scaled correlation energy (Grimme 2003, unless other factors were given)."""
        return self.scs[0] * self.e_corr_os + self.scs[1] * self.e_corr_ss

    @property
    def e_corr_sos(self) -> float:
        """Scaled-opposite-spin correlation energy (Jung et al. 2004, unless another factor was given)."""
        return self.sos * self.e_corr_os

    @property
    def e_tot(self) -> float | None:
        """MP2 total energy."""
        return self.total(self.e_corr)

    @property
    def e_tot_scs(self) -> float | None:
        """SCS-MP2 total energy."""
        return self.total(self.e_corr_scs)

    @property
    def e_tot_sos(self) -> float | None:
        """SOS-MP2 total energy."""
        return self.total(self.e_corr_sos)

    @property
    def pair_energies(self) -> PairEnergies:
        """The pairs as lower-triangular float64 arrays [nocc, nocc]."""
        return PairEnergies(square(self.pairs.os), square(self.pairs.ss), self.run.ran_on)

    def total(self, e_corr: float) -> float | None:
        """The Hartree-Fock energy plus a correlation energy; None without a Hartree-Fock energy."""
        return None if self.e_hf is None else self.e_hf + e_corr

    def to_dict(self) -> dict[str, Any]:
        """The result as dicts, lists, numbers and strings; ``energies`` repeats what follows from the rest."""
        names = ("e_corr", "e_corr_scs", "e_corr_sos", "e_tot", "e_tot_scs", "e_tot_sos")
        return {"schema": SCHEMA, "units": UNITS, "energies": {n: getattr(self, n) for n in names}} | _plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MP2Result:
        """The inverse of `to_dict`. Raises InputError for anything else."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            there = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise InputError(f"a result with schema {SCHEMA!r} was expected, found {there!r}")
        try:
            return _result(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the result is damaged: {type(error).__name__}: {error}") from error

    def to_json(self) -> str:
        """The result as JSON; floats are written so that they read back as the same numbers."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the result to a JSON file, which is there whole or not at all. Raises StorageError."""
        write_aside(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> MP2Result:
        """Read a file that `save` wrote. Raises InputError if it is missing, damaged or another kind of file."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error}") from error
        except ValueError as error:
            raise InputError(f"{path}: not a result of trnqc: {error}") from error


def check_scaling(scs: Any, sos: Any) -> None:
    """Check that `scs` is two finite numbers (c_os, c_ss), and `sos` one. Raises InputError."""
    try:
        usable = len(scs) == 2 and all(math.isfinite(factor) for factor in (*scs, sos))
    except TypeError:
        usable = False
    if not usable:
        raise InputError(f"scs must be two finite factors (opposite, same spin) and sos one, got {scs!r} and {sos!r}")


def triangle(matrix: np.ndarray) -> Triangle:
    """The rows of the lower triangle of a matrix."""
    return tuple(tuple(row[: i + 1]) for i, row in enumerate(matrix.tolist()))


def square(rows: Triangle) -> np.ndarray:
    """The inverse of `triangle`, zero above the diagonal."""
    matrix = np.zeros((len(rows), len(rows)))
    for i, row in enumerate(rows):
        matrix[i, : i + 1] = row
    return matrix


def _plain(value: Any) -> Any:
    """A value in terms of dicts, lists, numbers and strings."""
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _as_tuples(value: Any) -> Any:
    """Nested lists as tuples."""
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list) else value


def _make(cls: type, data: Mapping[str, Any], **nested: Any) -> Any:
    """An object of a dataclass from its form in JSON; keys of later versions are left out."""
    known = {f.name for f in dataclasses.fields(cls)}
    return cls(**({key: _as_tuples(item) for key, item in data.items() if key in known} | nested))


def _result(data: Mapping[str, Any]) -> MP2Result:
    system = data["system"]
    pairs = _make(Pairs, data["pairs"])
    n = data["sizes"]["nocc"]
    if any([len(row) for row in side] != list(range(1, n + 1)) for side in (pairs.os, pairs.ss)):
        raise ValueError(f"pair energies of {n} occupied orbitals were expected")
    return _make(
        MP2Result,
        data,
        pairs=pairs,
        sizes=_make(Sizes, data["sizes"]),
        run=_make(Run, data["run"]),
        error=_make(ErrorEstimate, data["error"]),
        frozen=_make(Frozen, data["frozen"]),
        system=system and _make(System, system, geometry=_make(Geometry, system["geometry"])),
        comparisons=tuple(_make(Comparison, c, run=_make(Run, c["run"])) for c in data["comparisons"]),
    )
