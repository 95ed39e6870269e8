"""What the layers on PySCF's objects share: what is kept for a molecule, and which molecules the kernels reach."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from pyscf import gto

from trnqc.eri.classes import LMAX


class Kept:
    """What was made for a molecule's shells, by key, until they change or move."""

    def __init__(self) -> None:
        self._shells = b""
        self._made: dict[Any, Any] = {}

    def get(self, mol: gto.Mole, key: Any, make: Callable[[], Any]) -> Any:
        """What was made for this molecule and key; make() is called when there is nothing."""
        # The slots before PTR_ENV_START hold settings, omega among them, and no shells.
        shells = b"".join(a.tobytes() for a in (mol._atm, mol._bas, mol._env[gto.PTR_ENV_START :]))
        if shells != self._shells:
            self._shells, self._made = shells, {}
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def is_ours(mol: gto.Mole, limit: int = LMAX, what: str = "integrals") -> bool:
    """Whether our kernels reach the molecule's highest shell; warns, naming the shell, if not."""
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


def actual_omega(mol: gto.Mole, omega: float | None) -> float:
    """PySCF's rule: None means the molecule's own (`mol.set_range_coulomb`), 0 the full operator."""
    return float(mol.omega if omega is None else omega)
