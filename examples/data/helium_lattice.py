"""Tensors of local correlation (DLPNO) on square lattices of helium: real sparsity for benchmarks and examples.

lattice -> RHF -> Boys orbitals C, one an atom -> projected atomic orbitals P = 1 - C C^T S
        -> integrals I = (K|mu nu) above 1e-6, and maps L of the auxiliary functions near each orbital

The spacing is half the cell edge of diamond. Atoms carry 6-311G (three s functions) and the seven s functions of
def2-QZVPPD-RIFIT, which makes 25 atoms 175 x 75 x 75 and 100 atoms 700 x 300 x 300. Made once (half a minute for 100
atoms), kept in the user's cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pyscf
from pyscf import df, gto, lo, scf

from trnqc.eri.integrals import int3c2e
from trnqc.errors import NotConverged
from trnqc.jit.cache import key_of, library_cache
from trnqc.pyscf.accelerate import accelerate
from trnqc.sparse.tensors.convert import as_tensor
from trnqc.sparse.tensors.storage import SparseTensor, from_coo

SPACING = 1.7835  # angstrom
BASIS, AUXILIARY = "6-311g", "def2-qzvppd-ri"
SMALLEST = 1e-6  # integrals below are not kept
NEAR = {5: 2.0, 10: 1.0}  # spacings within which an auxiliary function is near an orbital, by side of the lattice


@dataclass(frozen=True, eq=False)
class Cuts:
    """Magnitudes above which elements are kept; 0 keeps an array dense."""

    integrals: float
    orbitals: float
    projected: float


SETS = {"A": Cuts(1e-6, 1e-4, 0.0), "B": Cuts(1e-4, 1e-4, 1e-4)}


@dataclass(frozen=True, eq=False)
class Lattice:
    """I: [K, mu, nu], its elements above 1e-6; C: [mu, i], one orbital an atom, in the order of atoms; P: [nu, u]."""

    side: int
    I: SparseTensor
    C: np.ndarray
    P: np.ndarray

    def map(self, radius: float | None = None) -> SparseTensor:
        """L [K, i]: 0/1, whether K's atom lies within `radius` spacings of orbital i's; by default as in NEAR."""
        near = distances(self.side) <= (NEAR[self.side] if radius is None else radius) + 1e-6
        return as_tensor(np.repeat(near, self.I.shape[0] // self.side**2, axis=0))

    def operands(self, cuts: Cuts) -> dict[str, SparseTensor | np.ndarray]:
        """I, C, P and L with small elements left out."""
        return {
            "I": above(self.I, cuts.integrals),
            "C": above(self.C, cuts.orbitals),
            "P": above(self.P, cuts.projected) if cuts.projected else self.P,
            "L": self.map(),
        }


def above(tensor: SparseTensor | np.ndarray, cut: float) -> SparseTensor:
    """The elements larger than `cut` in magnitude, all levels compressed."""
    coordinates, values = as_tensor(tensor).to_coo()
    kept = np.abs(values) > cut
    return from_coo(tensor.shape, coordinates[:, kept], values[kept])


def distances(side: int) -> np.ndarray:
    """Between atoms, in spacings."""
    x, y = np.divmod(np.arange(side**2), side)
    return np.hypot(x[:, None] - x, y[:, None] - y)


@cache
def lattice(side: int) -> Lattice:
    """Tensors of side x side atoms, from the cache when they are there."""
    key = key_of(Path(__file__).read_text(encoding="utf-8"), pyscf.__version__, str(side))
    path = library_cache().get(f"dlpno-{side}-{key}", lambda out: write(generate(side), out), ".h5")
    return read(side, path)


def read(side: int, path: Path) -> Lattice:
    """The tensors of a file of `write`."""
    with h5py.File(path) as file:
        flat, values, shape = file["flat"][:], file["values"][:], tuple(file.attrs["shape"])
        I = from_coo(shape, np.array(np.unravel_index(flat, shape)), values)
        return Lattice(side, I, file["C"][:], file["P"][:])


def write(data: Lattice, path: Path) -> None:
    coordinates, values = data.I.to_coo()
    flat = np.ravel_multi_index(coordinates, data.I.shape).astype(np.int32)
    with h5py.File(path, "w") as file:
        file.attrs["shape"] = data.I.shape
        file.create_dataset("flat", data=flat, compression="lzf", shuffle=True)
        file.create_dataset("values", data=values)
        file["C"], file["P"] = data.C, data.P


def generate(side: int) -> Lattice:
    """Tensors of side x side atoms, computed. Errors: NotConverged."""
    atoms = [("He", (SPACING * x, SPACING * y, 0.0)) for x in range(side) for y in range(side)]
    mol = gto.M(atom=atoms, basis=BASIS, verbose=0)
    mf = accelerate(scf.RHF(mol)).run(conv_tol=1e-10)
    if not mf.converged:
        raise NotConverged(f"RHF of {side} x {side} helium atoms did not converge; its last energy is {mf.e_tot}")
    C = localised(mol, mf.mo_coeff[:, mf.mo_occ > 0])
    P = np.eye(mol.nao) - C @ C.T @ mol.intor("int1e_ovlp")
    return Lattice(side, integrals(mol), C, P)


def localised(mol: gto.Mole, occupied: np.ndarray) -> np.ndarray:
    """Boys orbitals in the order of the atoms on which they sit, their largest coefficient positive."""
    boys = lo.Boys(mol, occupied)
    boys.init_guess = "atomic"
    C = boys.kernel()
    places = np.einsum("xmn,mi,ni->ix", mol.intor("int1e_r"), C, C)
    home = np.linalg.norm(places[:, None] - mol.atom_coords(), axis=2).argmin(axis=1)
    C = C[:, np.argsort(home, kind="stable")]
    return np.ascontiguousarray(C * np.sign(C[np.abs(C).argmax(axis=0), np.arange(C.shape[1])]))


def integrals(mol: gto.Mole) -> SparseTensor:
    """(K|mu nu) above 1e-6, over the s functions of the auxiliary basis, an atom's functions at a time."""
    functions = [shell for shell in gto.basis.load(AUXILIARY, "He") if shell[0] == 0]
    auxiliary = df.addons.make_auxmol(mol, {"He": functions})
    n, rows = mol.nbas, []
    for first in range(0, auxiliary.nbas, len(functions)):
        block = int3c2e(mol, auxiliary, shls_slice=(0, n, 0, n, first, first + len(functions))).transpose(2, 0, 1)
        at = np.nonzero(np.abs(block) > SMALLEST)
        rows.append((np.array((at[0] + first, at[1], at[2])), block[at]))
    shape = (auxiliary.nao, mol.nao, mol.nao)
    return from_coo(shape, np.hstack([at for at, _ in rows]), np.concatenate([values for _, values in rows]))
