"""MP2Result: everything that a finished job knows, immutable, to JSON with every digit and back."""

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

SCHEMA = "trnqc.mp2/1"
UNITS = {"energy": "Hartree", "length": "Angstrom", "time": "second (wall)"}
SCS = (6 / 5, 1 / 3)
SOS = 1.3

Triangle = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Pairs:
    """Pair energies by row of the lower triangle: ``os[i][j]``, j <= i, holds ij and ji together."""

    os: Triangle
    ss: Triangle


@dataclass(frozen=True)
class Sizes:
    """Active occupied and virtual orbitals, auxiliary functions; atomic and all orbitals, None without a molecule."""

    nocc: int
    nvir: int
    naux: int
    nao: int | None = None
    nmo: int | None = None


@dataclass(frozen=True)
class Frozen:
    """Indices of frozen orbitals among all, occupied and virtual."""

    occ: tuple[int, ...] = ()
    vir: tuple[int, ...] = ()


@dataclass(frozen=True)
class System:
    """What was computed: geometry (Angstrom), orbital and auxiliary basis by element, and what became of the metric.

    generated: elements whose auxiliary set the library lacks. scf: how the reference was made. integrals: what made the
    three-centre integrals. scf_ran_on: what made J and K of the reference.
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
    """Where and how the pairs ran: asked-for backend's name, what really ran, why it was taken, and whether fused.

    factors: where B was, in words.
    """

    backend: str
    ran_on: str
    note: str
    precision: str
    fused: bool
    factors: str = "in memory"


@dataclass(frozen=True)
class Comparison:
    """The same pairs from the same factors on another backend; differences are other minus main, Hartree."""

    run: Run
    e_corr_os: float
    e_corr_ss: float
    difference_os: float
    difference_ss: float
    estimated_error: float
    seconds: float

    @property
    def difference(self) -> float:
        """Of the correlation energies."""
        return self.difference_os + self.difference_ss


@dataclass(frozen=True)
class MP2Result:
    """Closed-shell DF-MP2, energies in Hartree. ``e_hf`` and ``system`` are None where only factors were given.

    scs: factors (c_os, c_ss) of SCS-MP2; sos: factor c_os of SOS-MP2.
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
        # What was handed in may be numbers of NumPy, which JSON does not know.
        object.__setattr__(self, "scs", tuple(map(float, self.scs)))
        object.__setattr__(self, "sos", float(self.sos))

    def __reduce__(self) -> tuple[Any, ...]:
        # Read-only mappings do not pickle; results travel between processes in the form they have on disk.
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
        """With the Hartree-Fock energy, None without one."""
        return None if self.e_hf is None else self.e_hf + e_corr

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings; ``energies`` repeats what follows from the rest."""
        names = ("e_corr", "e_corr_scs", "e_corr_sos", "e_tot", "e_tot_scs", "e_tot_sos")
        return {"schema": SCHEMA, "units": UNITS, "energies": {n: getattr(self, n) for n in names}} | _plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MP2Result:
        """The inverse of `to_dict`; InputError for anything else."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise InputError(f"a result with schema {SCHEMA!r} was expected, found {found!r}")
        try:
            return _result(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the result is damaged: {type(error).__name__}: {error}") from error

    def to_json(self) -> str:
        """JSON; floats are written so that they read back to the same number."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def save(self, path: str | Path) -> None:
        """Write JSON beside ``path`` and rename it into place, so that a reader never sees half a file."""
        write_aside(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> MP2Result:
        """Read what `save` wrote; InputError with the path for a file that is missing, damaged or something else."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error}") from error
        except ValueError as error:
            raise InputError(f"{path}: not a result of trnqc: {error}") from error


def check_scaling(scs: Any, sos: Any) -> None:
    """scs is two finite numbers (c_os, c_ss), sos one, or an InputError."""
    try:
        usable = len(scs) == 2 and all(math.isfinite(factor) for factor in (*scs, sos))
    except TypeError:
        usable = False
    if not usable:
        raise InputError(f"scs must be two finite factors (opposite, same spin) and sos one, got {scs!r} and {sos!r}")


def triangle(matrix: np.ndarray) -> Triangle:
    """Rows of the lower triangle."""
    return tuple(tuple(row[: i + 1]) for i, row in enumerate(matrix.tolist()))


def square(rows: Triangle) -> np.ndarray:
    """The inverse of `triangle`, zero above the diagonal."""
    matrix = np.zeros((len(rows), len(rows)))
    for i, row in enumerate(rows):
        matrix[i, : i + 1] = row
    return matrix


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _make(cls: type, data: Mapping[str, Any], **nested: Any) -> Any:
    known = {f.name for f in dataclasses.fields(cls)}
    return cls(**({key: _frozen(item) for key, item in data.items() if key in known} | nested))


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
