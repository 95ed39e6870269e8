"""One bra pair against a vector of ket pairs of a class: our kernel's integrals beside libcint's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from pyscf import gto

from trnqc import jit
from trnqc.eri.classes import BOUND, QuartetClass
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import parameters, work_size
from trnqc.eri.kernels.quartet import quartet_function
from trnqc.eri.shells.pairs import ShellPairs, fitting_shells, pairs_between
from trnqc.gen import statements as st

LANES = 8
QUICK = ("-O0",)  # correctness does not need the optimiser


def shells(l: int, centres: np.ndarray, exponents: np.ndarray, coefficients: np.ndarray, cartesian: bool) -> gto.Mole:
    """A molecule of one shell on each centre [n, 3]: exponents [n, p], coefficients [n, c, p]."""
    mol = gto.Mole(verbose=0, unit="Bohr", cart=cartesian, charge=0)
    mol.atom = [(f"ghost-He{n}", tuple(point)) for n, point in enumerate(centres)]
    mol.basis = {
        f"ghost-He{n}": [[l, *([e, *c] for e, c in zip(exponents[n], coefficients[n].T))]] for n in range(len(centres))
    }
    return mol.build(parse_arg=False)


def random_shells(
    rng: np.random.Generator,
    l: int,
    n: int,
    primitives: int,
    contractions: int,
    cartesian: bool,
    exponents: tuple[float, float] = (0.2, 4.0),
    spread: float = 1.0,
) -> gto.Mole:
    low, high = np.log(exponents)
    e = np.exp(rng.uniform(low, high, (n, primitives)))
    c = rng.uniform(0.2, 1.0, (n, contractions, primitives))
    return shells(l, rng.normal(scale=spread, size=(n, 3)), e, c, cartesian)


def libcint(bra: Sequence[gto.Mole], ket: Sequence[gto.Mole], cls: QuartetClass, omega: float = 0.0) -> np.ndarray:
    """(ab|cd) f64 [n_ab, n_cd, na nb, nc nd, kets]: shell 0 of a and b with shell n of c and d."""
    whole = gto.conc_mol(gto.conc_mol(*bra), gto.conc_mol(*ket))
    whole.cart = cls.cartesian
    n = ket[0].nbas
    signed = {"coulomb": 0.0, "erf": omega, "erfc": -omega}[cls.operator]
    with whole.with_range_coulomb(signed):
        all_kets = [whole.intor("int2e", shls_slice=(0, 1, 1, 2, 2 + k, 3 + k, 2 + n + k, 3 + n + k)) for k in range(n)]
    na, nb, nc, nd = cls.extents
    block = np.stack(all_kets, axis=-1)
    ca, cb, cc, cd = (size // f for size, f in zip(block.shape, cls.extents))
    block = block.reshape(ca, na, cb, nb, cc, nc, cd, nd, n).transpose(0, 2, 4, 6, 1, 3, 5, 7, 8)
    return block.reshape(ca * cb, cc * cd, na * nb, nc * nd, n)


def libcint_fitted(bra: Sequence[gto.Mole], aux: gto.Mole, cls: QuartetClass) -> np.ndarray:
    """(ab|P) in the same shape: shell 0 of a and b with shell n of the fitting basis."""
    whole = gto.conc_mol(gto.conc_mol(*bra), aux)
    whole.cart = cls.cartesian
    all_kets = [whole.intor("int3c2e", shls_slice=(0, 1, 1, 2, 2 + k, 3 + k)) for k in range(aux.nbas)]
    block = np.stack(all_kets, axis=-1)
    return block.reshape(1, 1, -1, *block.shape[2:])


@cache
def compiled(cls: QuartetClass, form: str = "") -> Callable[..., None]:
    function = quartet_function(cls, form)
    return getattr(jit.library(jit.Recipe.of(function, name="eri-test"), LANES, QUICK), cls.name)


def pairs(side: Sequence[gto.Mole]) -> ShellPairs:
    """Shell n of one molecule with shell n of the other."""
    a, b = side
    (pairs_of_shells,) = pairs_between(a, b)
    assert not pairs_of_shells.swapped
    return pairs_of_shells.take(np.flatnonzero(pairs_of_shells.first == pairs_of_shells.second))


def wide(pairs: ShellPairs, general: bool) -> np.ndarray:
    """Records of a class; in a general one a segmented side has the contraction coefficient 1."""
    if not general or pairs.general:
        return pairs.records
    return np.concatenate([pairs.records, np.ones((*pairs.records.shape[:2], 1))], axis=2)


def arguments(cls: QuartetClass, bra: ShellPairs, ket: ShellPairs, omega: float = 0.0, cutoff: float = 0.0) -> dict:
    """The kernel's arguments by name for the first bra pair; lanes beyond the ket pairs are padding."""
    of_ket = wide(ket, cls.general)
    rows = np.zeros((*of_ket.shape[1:], LANES))
    rows[:, 0] = 1.0
    rows[..., : len(ket)] = of_ket.transpose(1, 2, 0)
    centre = np.zeros((6, LANES))
    centre[:, : len(ket)] = ket.centre.T
    n_ab, n_cd = bra.contractions, ket.contractions
    na, nb, nc, nd = cls.extents
    return {
        "n_bra": int(bra.count[0]),
        "bra": wide(bra, cls.general)[0].copy(),
        "bra_centre": bra.centre[0].copy(),
        "n_ket": len(rows),
        "ket": rows,
        "ket_centre": centre,
        "ket_bound": np.append(rows[:, BOUND].max(axis=1), 0.0),
        "n_ab": n_ab,
        "n_cd": n_cd,
        "cutoff": cutoff,
        "omega": omega,
        "boys": boys.table(cls.order),
        "work": np.full((work_size(cls, n_ab, n_cd), LANES), np.nan),
        "out": np.full((n_ab, n_cd, na * nb, nc * nd, LANES), np.nan),
    }


def ours(
    cls: QuartetClass,
    bra: ShellPairs,
    ket: ShellPairs,
    omega: float = 0.0,
    cutoff: float = 0.0,
    form: str = "",
    kets: int = 0,
) -> np.ndarray:
    """The same as `libcint` from our kernel. kets: lanes to show, by default those with a pair."""
    inputs = arguments(cls, bra, ket, omega, cutoff)
    compiled(cls, form)(*(inputs[st.name_of(p)] for p in parameters(cls).all))
    return inputs["out"][..., : kets or len(ket)]


def both(
    cls: QuartetClass,
    seed: int = 0,
    primitives: int = 2,
    contractions: tuple[int, ...] = (1, 1, 1, 1),
    omega: float = 0.0,
    kets: int = 5,
    form: str = "",
    **shape,
) -> tuple[np.ndarray, np.ndarray]:
    """Ours and libcint's for random shells."""
    rng = np.random.default_rng([seed, *cls.shells])
    moles = [
        random_shells(rng, l, n, primitives, c, cls.cartesian, **shape)
        for l, n, c in zip(cls.shells, (1, 1, kets, kets), contractions)
    ]
    return ours(cls, pairs(moles[:2]), pairs(moles[2:]), omega, form=form), libcint(moles[:2], moles[2:], cls, omega)


def both_fitted(cls: QuartetClass, seed: int = 0, kets: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """(ab|P) by us and by libcint; la lb are of orbitals, lc of the fitting basis and ld = 0."""
    rng = np.random.default_rng([seed, *cls.shells])
    a, b, aux = (random_shells(rng, l, n, 2, 1, cls.cartesian) for l, n in zip(cls.shells, (1, 1, kets)))
    return ours(cls, pairs((a, b)), fitting_shells(aux)[0]), libcint_fitted((a, b), aux, cls)


def both_two_centre(cls: QuartetClass, seed: int = 0, kets: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """(P|Q) by us and by libcint; lb = ld = 0."""
    rng = np.random.default_rng([seed, *cls.shells])
    p, q = (random_shells(rng, l, n, 2, 1, cls.cartesian) for l, n in ((cls.la, 1), (cls.lc, kets)))
    whole = gto.conc_mol(p, q)
    whole.cart = cls.cartesian
    blocks = [whole.intor("int2c2e", shls_slice=(0, 1, 1 + k, 2 + k)) for k in range(kets)]
    return ours(cls, fitting_shells(p)[0], fitting_shells(q)[0]), np.stack(blocks, axis=-1)[None, None]
