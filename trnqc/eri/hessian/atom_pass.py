"""A pass over the integrals (i'v|cd) whose sums are those of one atom after the other.

classes of bra pairs (i', v), of ket pairs (c, d) -> one task for each atom of i' -> digestions (digest.py) -> sums

Tasks run on threads. Each atom is the work of one thread, so that the bits do not depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from trnqc.eri.classes import PRIMITIVE, QuartetClass
from trnqc.eri.compiled import programs as library
from trnqc.eri.gradient.digest import BRA
from trnqc.eri.hessian import digest
from trnqc.eri.hessian.passes import HessianPass
from trnqc.eri.hessian.sides import Ket, OrientedPairs
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import work_size
from trnqc.eri.operators import Operator
from trnqc.eri.shells.lane_packing import row_arguments
from trnqc.eri.shells.pairs import quartet_class
from trnqc.host.arrays import zeros

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class AtomBlock:
    """Bra pairs, sorted by atoms, and ket pairs of one class of quartets, with the density-dependent arrays of
    `digest.parameters`.

    `once` states that the quartets of two atoms are met in one order only, as for a class of pairs with itself.
    """

    cls: QuartetClass
    kind: HessianPass
    bra: OrientedPairs
    ket: Ket
    once: bool = False

    @property
    def name(self) -> str:
        return digest.hessian_program(self.kind, self.cls).name

    @cached_property
    def first_rows(self) -> np.ndarray:
        """The first vector of kets that each bra pair meets."""
        if not self.once:
            return np.zeros(len(self.bra.pairs), np.int64)
        return np.searchsorted(self.ket.atoms, self.bra.atoms, side="right").astype(np.int64)

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """The arguments that no density and no atom decides."""
        cls, bra, ket, side = self.cls, self.bra.pairs, self.ket.side.pairs, self.ket
        a, b, _, _ = cls.extents
        layout = (a, b, b, 1, bra.nca, bra.ncb, bra.ncb, 1)
        if bra.swapped:  # The index i' is b of (a, b).
            layout = (b, a, 1, b, bra.ncb, bra.nca, 1, bra.ncb)
        ao_i, ao_v = (bra.ao_first, bra.ao_second)[:: self.bra.order]
        shell_i, shell_v = self.bra.shells
        return {
            **dict(zip(BRA, layout, strict=True)),
            **row_arguments(cls.general, bra, ket, side.packed),
            "rows": len(side.packed),
            "n_d": ket.ncb,
            "ao_i": ao_i,
            "ao_v": ao_v,
            "shell_i": shell_i,
            "shell_v": shell_v,
            "bra_atom": self.bra.atoms,
            "first_row": self.first_rows,
            "row_atom": side.atoms,
            "ao_c": side.of(ket.ao_first),
            "ao_d": side.of(ket.ao_second),
            "share": side.share,
            "boys": boys.table(cls.order),
        }

    def scratch(self) -> dict[str, np.ndarray]:
        """Return the kernel's working memory for one thread."""
        n_ab, n_cd = self.bra.pairs.contractions, self.ket.side.pairs.contractions
        width, sizes = library.lanes(), self.cls.extents
        out = zeros((n_ab * n_cd * int(np.prod(sizes)), width))
        return {"work": zeros((work_size(self.cls, n_ab, n_cd), width)), "out": out}

    def j_sums(self, count: int) -> np.ndarray:
        """Return an array for j_atom, or for j_pair of this number of bra pairs."""
        a, b, c, d = self.cls.extents
        if self.kind.j_pair:
            return zeros((count, self.bra.pairs.contractions, a * b, library.lanes()))
        return zeros((len(self.ket.packed), 3, self.ket.side.pairs.contractions, c * d, library.lanes()))


def blocks_of(
    kind: Callable[[Ket], HessianPass],
    bras: Sequence[OrientedPairs],
    kets: Sequence[Ket],
    operator: Operator,
    once: bool = False,
) -> list[AtomBlock]:
    """Return blocks for every bra with every ket, or only with the kets up to the bra's own place in the list if
    `once`.
    """
    blocks = []
    for n, bra in enumerate(bras):
        for m, ket in enumerate(kets[: n + 1] if once else kets):
            cls = quartet_class(bra.pairs, ket.side.pairs, operator.name)
            blocks.append(AtomBlock(cls, kind(ket), bra, ket, once and n == m))
    return blocks


def run(
    blocks: Sequence[AtomBlock],
    arguments: Sequence[dict[str, Any]],
    common: dict[str, Any],
    operator: Operator,
    cutoff: float,
    threads: int,
    finish: Callable[[int, np.ndarray, np.ndarray, list[tuple[AtomBlock, slice, np.ndarray]]], T],
) -> list[T]:
    """Run blocks for each atom, and return what `finish` makes of its sums, in the order of the atoms.

    `arguments` are those of `digest.parameters` that depend on densities, for each block; `common` are shared by all
    blocks, with the extents of the matrices. `operator`, `cutoff` and `threads` are as for `MixedJK`. `finish` gets the
    atom, k_pair's rows and k_atom of this atom, and for each block its bra pairs and its sums of J.
    """
    programs = {block.name: digest.hessian_program(block.kind, block.cls) for block in blocks}
    libraries = library.build(tuple(programs.values()), "kernels of second derivatives")
    functions = {name: getattr(libraries[name], name) for name in programs}
    atoms = sorted({int(atom) for block in blocks for atom in np.unique(block.bra.atoms)})
    shared = common | {"screen": cutoff, "cutoff": PRIMITIVE * cutoff, "omega": operator.omega}
    sets, n_mixed = common["sets"], common["n_mixed"]
    paired = any(block.kind.k_pair for block in blocks) and common["with_k"]
    k_pair = zeros((sets, n_mixed, n_mixed)) if paired else zeros((1, 1, 1))
    unused = zeros((1, 1, 1, 1))

    def one_atom(atom: int) -> T:
        k_atom = zeros((sets, 3, common["n_v"], common["n_column"])) if common["with_k"] else unused
        sums = []
        for block, own in zip(blocks, arguments):
            begin, end = np.searchsorted(block.bra.atoms, [atom, atom + 1]).tolist()
            if begin == end:
                continue
            j = block.j_sums(len(block.bra.pairs)) if common["with_j"] else unused
            written = {"j_pair": j, "j_atom": unused} if block.kind.j_pair else {"j_pair": unused, "j_atom": j}
            given = {**block.fixed, **shared, **own, **block.scratch(), **written, "k_pair": k_pair, "k_atom": k_atom}
            functions[block.name](**given, groups_begin=begin, groups_end=end)
            sums.append((block, slice(begin, end), j))
        return finish(atom, k_pair, k_atom, sums)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one_atom, atoms))
