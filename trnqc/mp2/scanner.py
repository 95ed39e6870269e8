"""MP2 energies along a series of geometries, with PySCF's scanner interface."""

from __future__ import annotations

from typing import Any

from pyscf import gto, lib


class DFMP2Scanner(lib.SinglePointScanner):
    """A function of a molecule or of coordinates that returns the total MP2 energy.

    The SCF of each geometry starts from the density of the one before. The options of the original object apply to all
    geometries.
    """

    mol: gto.Mole

    def __init__(self, mp: Any) -> None:
        self.__dict__.update(mp.__dict__)
        self._scf = mp._scf.as_scanner()
        self.with_df = mp.with_df.copy()

    def __call__(self, mol_or_geometry: Any, **options: Any) -> float:
        """Run SCF and MP2 for a molecule, or for coordinates in the form of ``mol.atom``; returns e_tot in Hartree."""
        if isinstance(mol_or_geometry, gto.MoleBase):
            mol = mol_or_geometry
        else:
            mol = self.mol.set_geom_(mol_or_geometry, inplace=False)
        self._scf(mol)
        self.mol = mol
        self.with_df.reset(mol)
        self._take_orbitals()
        self.kernel(**options)
        return self.e_tot


def as_scanner(mp: Any) -> Any:
    """Make a scanner of a DF-MP2 object; return a scanner unchanged."""
    if isinstance(mp, lib.SinglePointScanner):
        return mp
    name = mp.__class__.__name__ + DFMP2Scanner.__name_mixin__
    return lib.set_class(DFMP2Scanner(mp), (DFMP2Scanner, mp.__class__), name)
