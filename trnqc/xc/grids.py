"""PySCF's integration grids with a compiled partition of space: the same points and weights.

atomic grids -> points of each atom in vectors -> weights (programs/partition.py), on threads -> points sorted by boxes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyscf import gto, lib
from pyscf.dft import gen_grid, radi

from trnqc.eri.compiled import background
from trnqc.host.arrays import zeros
from trnqc.host.overrides import users_method
from trnqc.host.threads import in_parallel, parts_of
from trnqc.jit import find_compiler, library
from trnqc.xc.blocks import CUTOFF
from trnqc.xc.programs.partition import recipe

SCHEMES = {gen_grid.original_becke: "becke", gen_grid.stratmann: "stratmann"}
# The adjustments of radii that have the form nu = mu + a (1 - mu^2).
ADJUSTMENTS = (None, radi.treutler_atomic_radii_adjust, radi.becke_atomic_radii_adjust)
# Vectors of points in the smallest part that a thread takes.
LEAST_VECTORS = 64


def accelerate_grids(grids: Any, kernels: str | None = None) -> Any:
    """Return an integration grid of PySCF whose weights are computed by a compiled program.

    Parameters
    ----------
    grids : pyscf.dft.gen_grid.Grids
        A grid of a molecule, with any of its settings.
    kernels : str, optional
        What happens while the program is not compiled; see `trnqc.accelerate`.

    Returns
    -------
    pyscf.dft.gen_grid.Grids
        An object of the same class with a layer on top and the same state, which `undo_grids` takes off. Points, their
        order and their weights are those of PySCF; weights differ by rounding.

    Notes
    -----
    The schemes of Becke and of Stratmann, Scuseria and Frisch are compiled, with the radii of Becke or Treutler or
    without adjustment. PySCF computes the weights of other schemes.
    """
    if is_accelerated(grids):
        return grids
    layer = _AcceleratedGrids(grids, background.chosen(kernels))
    return lib.set_class(layer, (_AcceleratedGrids, grids.__class__))


def is_accelerated(grids: Any) -> bool:
    """Return whether a grid has the layer of `accelerate_grids`."""
    return isinstance(grids, _AcceleratedGrids)


def undo_grids(grids: Any) -> Any:
    """Return a grid without the layer of `accelerate_grids`, with the same state; another grid as it is."""
    if not is_accelerated(grids):
        return grids
    plain = lib.view(grids, lib.drop_class(grids.__class__, _AcceleratedGrids))
    del plain.__dict__["kernels"]
    return plain


class _AcceleratedGrids(lib.StreamObject):
    """The layer that `accelerate_grids` puts on a grid."""

    __name_mixin__ = "Accelerated"

    _keys = frozenset({"kernels", "screening"})
    # What `Blocks.CUTOFF` is for the points of this grid.
    screening = CUTOFF

    def __init__(self, grids: Any, kernels: str) -> None:
        self.__dict__.update(grids.__dict__)
        self.kernels = kernels

    def __reduce__(self) -> Any:
        return accelerate_grids, (undo_grids(self), self.kernels)

    def build(
        self, mol: gto.Mole | None = None, with_non0tab: bool = False, sort_grids: bool = True, **options: Any
    ) -> Any:
        """Build the grid as PySCF does."""
        mol = self.mol if mol is None else mol
        super().build(mol, False, False, **options)
        if sort_grids:
            # Points that fill up the last block belong to no atom and stay at the end.
            count = int(np.count_nonzero(self.atm_idx >= 0))
            self._select_grids(np.append(box_order(mol, self.coords[:count]), np.arange(count, self.size)))
        if with_non0tab:
            self.screen_index = self.non0tab = self.make_mask(mol, self.coords)
        return self

    def get_partition(
        self,
        mol: gto.Mole,
        atom_grids_tab: Any = None,
        radii_adjust: Callable[..., Any] | None = None,
        atomic_radii: Any = radi.BRAGG_RADII,
        becke_scheme: Callable[..., Any] = gen_grid.original_becke,
        concat: bool = True,
    ) -> Any:
        """Return points [n, 3] and weights [n], or lists of them by atom, as PySCF does."""
        users = users_method(self, "get_partition", below=_AcceleratedGrids)
        if users or radii_adjust not in ADJUSTMENTS or not self._is_compiled(becke_scheme):
            return super().get_partition(mol, atom_grids_tab, radii_adjust, atomic_radii, becke_scheme, concat)
        table = self.gen_atomic_grids(mol) if atom_grids_tab is None else atom_grids_tab
        atoms = [table[mol.atom_symbol(i)] for i in range(mol.natm)]
        coords = [points + centre for (points, _), centre in zip(atoms, mol.atom_coords())]
        shares = atom_shares(mol, coords, shifts(mol, radii_adjust, atomic_radii), SCHEMES[becke_scheme])
        weights = [volumes * share for (_, volumes), share in zip(atoms, shares)]
        return (np.vstack(coords), np.hstack(weights)) if concat else (coords, weights)

    gen_partition = get_partition

    def _is_compiled(self, becke_scheme: Callable[..., Any]) -> bool:
        """Return whether our program computes the weights of a scheme now."""
        scheme = SCHEMES.get(becke_scheme)
        return scheme is not None and background.Needed(lambda: [recipe(scheme)], self.kernels).ready()


def shifts(mol: gto.Mole, radii_adjust: Callable[..., Any] | None, atomic_radii: Any) -> np.ndarray:
    """Return the shifts a_ij [atoms, atoms] of the boundaries between atoms by their radii."""
    if radii_adjust is None or atomic_radii is None:
        return np.zeros((mol.natm, mol.natm))
    shift = radii_adjust(mol, atomic_radii)
    return np.array([[shift(i, j, 0.0) if i != j else 0.0 for j in range(mol.natm)] for i in range(mol.natm)])


def atom_shares(mol: gto.Mole, coords: list[np.ndarray], shift: np.ndarray, scheme: str) -> list[np.ndarray]:
    """Return the weight [points], between 0 and 1, of each atom at its own points, for a scheme of
    `partition.SCHEMES`.

    `coords` are the points [points, 3] of each atom, in Bohr, and `shift` [atoms, atoms] the shifts of the boundaries.
    """
    lanes, threads = find_compiler().lanes(), lib.num_threads()
    counts = [len(points) for points in coords]
    vectors = [-(-count // lanes) for count in counts]
    points = _packed(coords, vectors, lanes)
    weight = zeros((len(points), lanes))
    call = getattr(library(recipe(scheme)), f"partition_{scheme}").bind(
        atoms=mol.natm,
        points=points,
        owner=np.repeat(np.arange(mol.natm), vectors),
        weight=weight,
        **_tables(mol, shift),
    )
    parts = parts_of(len(points), LEAST_VECTORS, threads)
    bounds = np.linspace(0, len(points), parts + 1).astype(int)

    def part(n: int) -> None:
        call(distance=zeros((mol.natm, lanes)), largest=np.zeros(1), groups_begin=bounds[n], groups_end=bounds[n + 1])

    in_parallel(part, parts, threads)
    ends = np.cumsum(vectors)
    rows = [weight[end - n : end].reshape(-1) for end, n in zip(ends, vectors)]
    return [row[:count] for row, count in zip(rows, counts)]


def _packed(coords: list[np.ndarray], vectors: list[int], lanes: int) -> np.ndarray:
    """Points of each atom as vectors [vectors, 3, lanes]; the last vector of an atom repeats its last point."""
    packed = zeros((sum(vectors), 3, lanes))
    begin = 0
    for points, count in zip(coords, vectors):
        if count:
            padded = np.concatenate([points, np.repeat(points[-1:], count * lanes - len(points), axis=0)])
            packed[begin : begin + count] = padded.reshape(count, lanes, 3).transpose(0, 2, 1)
        begin += count
    return packed


def _tables(mol: gto.Mole, shift: np.ndarray) -> dict[str, np.ndarray]:
    """The arguments of the program that depend on the atoms alone."""
    distances = gto.inter_distance(mol)
    with np.errstate(divide="ignore"):
        inverse = np.where(np.eye(mol.natm, dtype=bool), 0.0, 1.0 / distances)
    # The owner itself, which is nearest, is moved behind all others.
    order = np.argsort(distances - np.eye(mol.natm), axis=1, kind="stable")
    return {
        "order": np.ascontiguousarray(np.roll(order, -1, axis=1)),
        "centre": np.ascontiguousarray(mol.atom_coords()),
        "inverse": inverse,
        "shift": np.ascontiguousarray(shift),
    }


def box_order(mol: gto.Mole, coords: np.ndarray) -> np.ndarray:
    """Return the order in which PySCF sorts points: by boxes of space, and within a box as they are.

    This is `pyscf.dft.gen_grid.arg_group_grids` with one number for each box in place of three.
    """
    atoms = mol.atom_coords()
    low = atoms.min(axis=0) - gen_grid.GROUP_BOUNDARY_PENALTY
    width = atoms.max(axis=0) + gen_grid.GROUP_BOUNDARY_PENALTY - low
    boxes = (width * (1.0 / gen_grid.GROUP_BOX_SIZE)).round().astype(int)
    box = np.floor((coords - low) * (1.0 / (width / boxes))).astype(int)
    x, y, z = np.clip(box, -1, boxes).T
    return np.argsort((x * (boxes[1] + 2) + y) * (boxes[2] + 2) + z, kind="stable")
