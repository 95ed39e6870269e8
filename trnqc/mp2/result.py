"""The result of an MP2 job: an immutable value that can be written to JSON with every digit, and read back."""

from __future__ import annotations

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
from trnqc.mp2.result_parts import (
    BackendComparison,
    Frozen,
    PairRun,
    Pairs,
    Sizes,
    SpinPairs,
    System,
    from_plain,
    square,
    to_plain,
)
from trnqc.types import PairEnergies, SpinPairEnergies

# Name and version of the JSON format.
SCHEMA = "trnqc.mp2/1"
# Units of all numbers; they are also written to the JSON file.
UNITS = {"energy": "Hartree", "length": "Angstrom", "time": "second (wall)"}
# (c_os, c_ss) of SCS-MP2: S. Grimme, J. Chem. Phys. 118, 9095 (2003).
SCS = (6 / 5, 1 / 3)
# c_os of SOS-MP2: Y. Jung, R. C. Lochan, A. D. Dutoi, M. Head-Gordon, J. Chem. Phys. 121, 9793 (2004).
SOS = 1.3


@dataclass(frozen=True)
class MP2Result:
    """The result of DF-MP2; energies in Hartree.

    Attributes
    ----------
    e_hf
        Hartree-Fock energy; None for the caller's own factors.
    e_corr_os, e_corr_ss
        Opposite- and same-spin parts of the correlation energy.
    pairs
        These parts by pairs of occupied orbitals.
    sizes, frozen
        Numbers of orbitals and functions, and the orbitals that are not correlated.
    run, error
        Where and how the pair step ran, and the estimated error of its precision.
    timings
        Wall time in seconds, by stage.
    versions
        Versions of the software that the result depends on.
    scs, sos
        Factors (c_os, c_ss) of SCS-MP2, and c_os of SOS-MP2.
    system
        The molecule and the approximations; None for the caller's own factors.
    warnings
        Messages about doubts in the result.
    comparisons
        Pair steps over the same factors on other backends.
    e_corr_aa, e_corr_bb
        Parts of e_corr_ss of two alpha and of two beta electrons; None for a closed shell, where each is half of it.
    e_singles
        Energy of single excitations, which is not zero for a restricted open-shell reference.
    """

    e_hf: float | None
    e_corr_os: float
    e_corr_ss: float
    pairs: Pairs | SpinPairs
    sizes: Sizes
    run: PairRun
    error: ErrorEstimate
    timings: Mapping[str, float]
    versions: Mapping[str, str]
    scs: tuple[float, float] = SCS
    sos: float = SOS
    frozen: Frozen = field(default_factory=Frozen)
    system: System | None = None
    warnings: tuple[str, ...] = ()
    comparisons: tuple[BackendComparison, ...] = field(default=())
    e_corr_aa: float | None = None
    e_corr_bb: float | None = None
    e_singles: float = 0.0

    def __post_init__(self) -> None:
        for name in ("timings", "versions"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        # Callers may pass NumPy numbers, which cannot be written to JSON.
        object.__setattr__(self, "scs", tuple(map(float, self.scs)))
        object.__setattr__(self, "sos", float(self.sos))

    def __reduce__(self) -> tuple[Any, ...]:
        # Read-only mappings cannot be pickled, so results are pickled as the dicts that JSON files contain.
        return MP2Result.from_dict, (self.to_dict(),)

    @property
    def e_corr(self) -> float:
        """MP2 correlation energy."""
        return self.e_corr_os + self.e_corr_ss + self.e_singles

    @property
    def e_corr_scs(self) -> float:
        """Spin-component-scaled correlation energy c_os E_os + c_ss E_ss + E_singles, with the factors `scs`."""
        return self.scs[0] * self.e_corr_os + self.scs[1] * self.e_corr_ss + self.e_singles

    @property
    def e_corr_sos(self) -> float:
        """Scaled-opposite-spin correlation energy c_os E_os + E_singles, with the factor `sos`."""
        return self.sos * self.e_corr_os + self.e_singles

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
    def pair_energies(self) -> PairEnergies | SpinPairEnergies:
        """Pair energies as float64 arrays."""
        if isinstance(self.pairs, SpinPairs):
            ab = np.array(self.pairs.ab, dtype=float).reshape(self.sizes.nocc, self.sizes.nocc_beta or 0)
            return SpinPairEnergies(square(self.pairs.aa), ab, square(self.pairs.bb), self.run.ran_on)
        return PairEnergies(square(self.pairs.os), square(self.pairs.ss), self.run.ran_on)

    def total(self, e_corr: float) -> float | None:
        """The Hartree-Fock energy plus `e_corr`, or None if there is no Hartree-Fock energy."""
        return None if self.e_hf is None else self.e_hf + e_corr

    def to_dict(self) -> dict[str, Any]:
        """The result as dicts, lists, numbers and strings, with the total and scaled energies under ``energies``."""
        names = ("e_corr", "e_corr_scs", "e_corr_sos", "e_tot", "e_tot_scs", "e_tot_sos")
        return {"schema": SCHEMA, "units": UNITS, "energies": {n: getattr(self, n) for n in names}} | to_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MP2Result:
        """The inverse of `to_dict`. Raises InputError if `data` is something else."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            schema = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise InputError(f"a result with schema {SCHEMA!r} was expected, found {schema!r}")
        try:
            return _result(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the result is damaged: {type(error).__name__}: {error}") from error

    def to_json(self) -> str:
        """The result as JSON text, in which floats have all digits."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the result to a JSON file. Raises StorageError, and then leaves an older file as it was."""
        write_aside(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> MP2Result:
        """Read a file that `save` has written. Raises InputError if it is missing, damaged or another kind of file."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error}") from error
        except ValueError as error:
            raise InputError(f"{path}: not a result of trnqc: {error}") from error


def check_scaling(scs: Any, sos: Any, name: str = "scs") -> None:
    """Check that `scs` has two finite factors (c_os, c_ss) and that `sos` is one. Raises InputError with the name."""
    try:
        usable = len(scs) == 2 and all(math.isfinite(factor) for factor in (*scs, sos))
    except TypeError:
        usable = False
    if not usable:
        also = f" and sos one, got {scs!r} and {sos!r}" if name == "scs" else f", got {scs!r}"
        raise InputError(f"{name} must be two finite factors (opposite, same spin){also}")


def _result(data: Mapping[str, Any]) -> MP2Result:
    system, sizes = data["system"], from_plain(Sizes, data["sizes"])
    return from_plain(
        MP2Result,
        data,
        pairs=_pairs(data["pairs"], sizes),
        sizes=sizes,
        run=from_plain(PairRun, data["run"]),
        error=from_plain(ErrorEstimate, data["error"]),
        frozen=from_plain(Frozen, data["frozen"]),
        system=system and from_plain(System, system, geometry=from_plain(Geometry, system["geometry"])),
        comparisons=tuple(
            from_plain(BackendComparison, c, run=from_plain(PairRun, c["run"])) for c in data["comparisons"]
        ),
    )


def _pairs(data: Mapping[str, Any], sizes: Sizes) -> Pairs | SpinPairs:
    m, n = sizes.nocc, sizes.nocc_beta
    triangle = list(range(1, m + 1))
    expected = {"os": triangle, "ss": triangle}
    if n is not None:
        expected = {"aa": triangle, "ab": [n] * m, "bb": list(range(1, n + 1))}
    for name, lengths in expected.items():
        if [len(row) for row in data[name]] != lengths:
            raise ValueError(f"pair energies {name} of {m if n is None else (m, n)} occupied orbitals were expected")
    return from_plain(Pairs if n is None else SpinPairs, data)
