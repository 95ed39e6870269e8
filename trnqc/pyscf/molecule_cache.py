"""Values that are kept for a molecule until its shells change, which molecules kernels cover, and seconds by part."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyscf import gto

from trnqc.eri.classes import LMAX


def shells_of(mol: gto.Mole) -> bytes:
    """Return the atoms and shells of a molecule. The slots before PTR_ENV_START hold settings such as omega, and no
    shells.
    """
    return b"".join(a.tobytes() for a in (mol._atm, mol._bas, mol._env[gto.PTR_ENV_START :]))


class MoleculeCache:
    """Values by key for one molecule. They are dropped when its shells change or move."""

    def __init__(self) -> None:
        self._shells = b""
        self._values: dict[Any, Any] = {}

    def get(self, mol: gto.Mole, key: Any, make: Callable[[], Any]) -> Any:
        """Return the value of a key for this molecule, which is make() the first time."""
        shells = shells_of(mol)
        if shells != self._shells:
            self._shells, self._values = shells, {}
        if key not in self._values:
            self._values[key] = make()
        return self._values[key]


def is_covered(mol: gto.Mole, limit: int = LMAX, what: str = "integrals") -> bool:
    """Return whether no shell exceeds the highest angular momentum of the kernels; if one does, warn and name it."""
    l = mol._bas[:, gto.ANG_OF]
    if l.max(initial=0) <= limit:
        return True
    shell = int(l.argmax())
    atom = int(mol._bas[shell, gto.ATOM_OF])
    warnings.warn(
        f"shell {shell} (atom {atom}, {mol.atom_symbol(atom)}) has angular momentum {l[shell]}, beyond {limit}, the "
        f"limit of trnqc's {what}: PySCF's own are used for this molecule",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


class Timings(dict[str, float]):
    """Seconds by part. The part "SCF" contains the others.

    >>> timings = Timings({"SCF": 4.0, "J and K": 3.0})
    >>> print(timings)
    seconds: SCF 4.00 = J and K 3.00 + rest 1.00
    """

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Add the time that the context takes to a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self[part] = self.get(part, 0.0) + time.perf_counter() - start

    def __str__(self) -> str:
        parts = {name: seconds for name, seconds in self.items() if name != "SCF"}
        whole = self.get("SCF", 0.0)
        parts["rest"] = whole - sum(parts.values())
        return f"seconds: SCF {whole:.2f} = " + " + ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())
