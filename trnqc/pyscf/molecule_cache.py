"""Values that are kept for a molecule until its shells change, and the molecules that the kernels cover."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from pyscf import gto

from trnqc.eri.classes import LMAX


class MoleculeCache:
    """Values by key for one molecule. They are dropped when its shells change or move."""

    def __init__(self) -> None:
        self._shells = b""
        self._values: dict[Any, Any] = {}

    def get(self, mol: gto.Mole, key: Any, make: Callable[[], Any]) -> Any:
        """Return the value of a key for this molecule, which is make() the first time."""
        # The slots before PTR_ENV_START hold settings such as omega, and no shells.
        shells = b"".join(a.tobytes() for a in (mol._atm, mol._bas, mol._env[gto.PTR_ENV_START :]))
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
