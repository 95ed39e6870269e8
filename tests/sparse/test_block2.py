"""Matrix product states of block2, by objects with its names, and by block2 itself where it is installed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from trnqc.errors import OperandError, UnsupportedError
from trnqc.sparse import contract, from_block2


class SZ:
    """A quantum number of block2."""

    def __init__(self, n: int, twos: int, pg: int = 0) -> None:
        self.n, self.twos, self.pg = n, twos, pg


SITE = ((0, 0), (1, 1), (1, -1), (2, 0))


def state(count: int, target: tuple[int, int], seed: int, widths: int = 3) -> SimpleNamespace:
    """All blocks of a state of `count` sites that lead to the target, with the site's number as its representation."""
    draw = np.random.default_rng(seed)
    left, tensors = {(0, 0, 0): 1}, []
    for n in range(count):
        right: dict[tuple[int, int, int], int] = {}
        blocks = []
        for (e, s, p), rows in left.items():
            for de, ds in SITE:
                pg = n % 8 if de == 1 else 0
                to = (e + de, s + ds, p ^ pg)
                if n == count - 1 and to[:2] != target:
                    continue
                columns = 1 if n == count - 1 else right.setdefault(to, int(draw.integers(1, widths + 1)))
                labels, array = [SZ(e, s, p), SZ(de, ds, pg), SZ(*to)], draw.standard_normal((rows, 1, columns))
                if n == 0:
                    labels, array = labels[1:], array[0]
                if n == count - 1:
                    labels, array = labels[:-1], array[..., 0]
                blocks.append(SimpleNamespace(q_labels=tuple(labels), reduced=array))
        if n == count - 1:  # A state has one representation.
            one = blocks[0].q_labels
            kept = [b for b in blocks if b.q_labels[0].pg ^ b.q_labels[1].pg == one[0].pg ^ one[1].pg]
            blocks = kept
        tensors.append(SimpleNamespace(blocks=blocks))
        left = right
    return SimpleNamespace(tensors=tensors)


def dense(mps: SimpleNamespace) -> dict[tuple[tuple[int, int], ...], float]:
    """The coefficients of the state by the quantum numbers of its sites."""
    found: dict[tuple, np.ndarray] = {(): np.ones(1)}
    at: dict[tuple, tuple[int, int, int]] = {(): (0, 0, 0)}
    for n, tensor in enumerate(mps.tensors):
        last, more, place = n == len(mps.tensors) - 1, {}, {}
        for block in tensor.blocks:
            labels = [(q.n, q.twos, q.pg) for q in block.q_labels]
            left, site = ((0, 0, 0), labels[0]) if n == 0 else labels[:2]
            array = block.reduced[None] if n == 0 else block.reduced
            array = array[..., None] if last else array
            for key, vector in found.items():
                if at[key] == left:
                    to = (*key, site[:2])
                    more[to] = vector @ array[:, 0, :]
                    place[to] = (left[0] + site[0], left[1] + site[1], left[2] ^ site[2])
        found, at = more, place
    return {key: float(vector[0]) for key, vector in found.items()}


def overlap(bra: list, ket: list) -> float:
    e = contract("sr,sR->rR", bra[0].conj(), ket[0])
    for x, y in zip(bra[1:-1], ket[1:-1]):
        e = contract("lL,lsr,LsR->rR", e, x.conj(), y)
    return float(contract("lL,ls,Ls->", e, bra[-1].conj(), ket[-1], out="dense"))


@pytest.mark.parametrize("count", [2, 3, 5])
def test_overlaps_are_those_of_the_coefficients(count):
    """Two states of the same target, whose bonds have different blocks."""
    one, two = state(count, (count, count % 2), 1), state(count, (count, count % 2), 2, widths=5)
    a, b = from_block2(one, two.tensors)
    left, right = dense(one), dense(two)
    expected = sum(x * right.get(key, 0.0) for key, x in left.items())
    assert expected != 0 and np.isclose(overlap(a, b), expected, rtol=1e-12)
    assert np.isclose(overlap(a, a), sum(x * x for x in left.values()), rtol=1e-12)
    assert a[-1].charges.total[:2] == (count, count % 2)
    (alone,) = (from_block2(one),)
    assert [x.shape for x in alone] == [x.shape for x in a]


def test_what_it_refuses():
    class SU2(SZ):
        pass

    block = SimpleNamespace(q_labels=(SU2(0, 0), SU2(0, 0)), reduced=np.ones((1, 1)))
    with pytest.raises(UnsupportedError, match=r"found SU2: .*mps_change_to_sz"):
        from_block2([SimpleNamespace(blocks=[block])] * 2)
    with pytest.raises(OperandError, match=r"at least two sites; found \[1\]"):
        from_block2(state(2, (2, 0), 1).tensors[:1])
    with pytest.raises(OperandError, match=r"same number .* found \[2, 3\]"):
        from_block2(state(2, (2, 0), 1), state(3, (3, 1), 1))
    with pytest.raises(OperandError, match="expected tensors of pyblock2"):
        from_block2([np.ones((2, 2))] * 2)
    broken = state(3, (3, 1), 1)
    broken.tensors[1].blocks[0].reduced = np.ones((7, 1, 1))
    with pytest.raises(OperandError, match="elements"):
        from_block2(broken)


def test_states_of_block2_itself(tmp_path):
    """A Hubbard chain: overlaps of the ground state with another state are block2's."""
    core = pytest.importorskip("pyblock2.driver.core")
    tools = pytest.importorskip("pyblock2.algebra.io").MPSTools
    driver = core.DMRGDriver(scratch=str(tmp_path), symm_type=core.SymmetryTypes.SZ, n_threads=1, stack_mem=1 << 26)
    driver.initialize_system(n_sites=6, n_elec=6, spin=0)
    terms = driver.expr_builder()
    for i in range(5):
        for spin in ("cd", "CD"):
            terms.add_term(spin, [i, i + 1, i + 1, i], -1.0)
    for i in range(6):
        terms.add_term("cdCD", [i] * 4, 2.0)
    ket = driver.get_random_mps(tag="KET", bond_dim=30, nroots=1)
    driver.dmrg(driver.get_mpo(terms.finalize(), iprint=0), ket, n_sweeps=4, bond_dims=[30] * 4, iprint=0)
    bra = driver.get_random_mps(tag="BRA", bond_dim=20, nroots=1)
    bra, ket = (driver.adjust_mps(x, dot=1)[0] for x in (bra, ket))
    expected = driver.expectation(bra, driver.get_identity_mpo(), ket)
    ours = from_block2(tools.from_block2(bra), tools.from_block2(ket))
    assert np.isclose(overlap(*ours), expected, rtol=0, atol=1e-12)
