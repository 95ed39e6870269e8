"""Block tensors of ITensor and symmray."""

import numpy as np
import pytest

from trnqc.errors import OperandError, UnsupportedError
from trnqc.sparse import BlockCharges, BlockTensor, contract, from_itensor, from_symmray, to_symmray

SPACE = [(0, 2), (1, 3)]
INDS = [{"dir": 1, "space": SPACE}, {"dir": -1, "space": [(0, 1), (1, 4)]}]


def test_itensor():
    """Blocks are counted from 1, and stored by columns one after another."""
    rng = np.random.default_rng(1)
    first, second = rng.random((2, 1)), rng.random((3, 4))
    stored = np.concatenate([second.ravel(order="F"), first.ravel(order="F")])
    rows = [2, 2, 0, 1, 1, 12]
    made = from_itensor({"inds": INDS, "blockoffsets": rows, "data": stored})
    again = from_itensor({"inds": INDS, "blocks": {(1, 1): first, (2, 2): second}})
    assert made.pattern == again.pattern and (made.values == again.values).all()
    np.testing.assert_array_equal(made.blocks[1, 1], second)
    assert made.charges == BlockCharges(((0, 1), (0, 1)), (1, -1))
    bare = [{"dir": 1, "space": [(None, 2), (None, 3)]}]
    assert from_itensor({"inds": bare, "blocks": {(2,): np.ones(3)}}).charges is None
    pairs = [{"dir": 1, "space": [((0, 1), 2), ((1, 0), 3)]}]
    both = {"inds": pairs, "blocks": {(2,): np.ones(3)}, "flux": (1, 0), "modulus": (None, 2)}
    assert from_itensor(both).charges.total == (1, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inds": None}, r"\['inds'\] .* missing"),
        ({"data": None}, r"\['data'\] .* missing"),
        ({"blockoffsets": [1, 3, 0]}, r"numbers of blocks are 1 to \[2, 2\]; found \(1, 3\)"),
        ({"blockoffsets": [1, 1, 1]}, r"block \(1, 1\) is data 1 to 3; found 2 numbers"),
        ({"flux": 1}, r"must sum to 1; those of block \(0, 0\) sum to 0"),
    ],
)
def test_storage_that_does_not_fit(change, message):
    data = {"inds": INDS, "blockoffsets": [1, 1, 0], "data": [1.0, 2.0]} | change
    with pytest.raises(OperandError, match=message):
        from_itensor({name: value for name, value in data.items() if value is not None})


@pytest.mark.parametrize(
    ("symmetry", "charges", "total"),
    [("U1", (-1, 0, 1), 1), ("Z2", (0, 1), 1), ("Z3", (0, 1, 2), 2), ("U1U1", ((0, 0), (0, 1), (1, 0)), (0, 0))],
)
def test_symmray(symmetry, charges, total):
    symmray = pytest.importorskip("symmray")
    rng = np.random.default_rng(len(charges))

    def index(dual):
        return symmray.BlockIndex({charge: int(rng.integers(1, 5)) for charge in charges}, dual=dual)

    shared = index(False)
    first = symmray.AbelianArray.random([index(False), shared, index(True)], charge=total, symmetry=symmetry, seed=1)
    second = symmray.AbelianArray.random([shared.conj(), index(False)], symmetry=symmetry, seed=2)
    ours = [from_symmray(x) for x in (first, second)]
    for x, own in zip((first, second), ours):
        np.testing.assert_array_equal(own.to_dense(), x.to_dense())
        back = to_symmray(own)
        back.check()
        assert back.charge == x.charge and back.symmetry == x.symmetry and back.allclose(x)
    product = symmray.tensordot(first, second, axes=[(1,), (0,)])
    result = contract("abc,bd->acd", *ours)
    np.testing.assert_allclose(result.to_dense(), product.to_dense(), rtol=0, atol=1e-12)
    assert result.charges.total == product.charge


def test_symmray_refusals():
    symmray = pytest.importorskip("symmray")
    index = symmray.BlockIndex({0: 1, 1: 2}, dual=False)
    fermions = symmray.U1FermionicArray.random([index, index.conj()], charge=0)
    with pytest.raises(UnsupportedError, match="signs of fermions are not supported"):
        from_symmray(fermions)
    with pytest.raises(OperandError, match="takes block-sparse arrays of symmray; found ndarray"):
        from_symmray(np.ones(2))
    with pytest.raises(OperandError, match="the tensor has none"):
        to_symmray(BlockTensor.from_dense(np.ones(2), [(2,)]))
    twice = BlockTensor.from_dense(np.ones(2), [(1, 1)], charges=BlockCharges(((0, 0),), (1,)))
    with pytest.raises(OperandError, match=r"one block for each charge; mode 0 has the charges \(0, 0\)"):
        to_symmray(twice)
