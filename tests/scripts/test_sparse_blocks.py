"""The contestants of the block tensors agree, and the operands are what the cases say."""

import numpy as np
import pytest

from scripts.sparse import blocks


@pytest.mark.parametrize(
    "case", [case for case in blocks.cases(quick=True) if "loops" in case.rival], ids=lambda x: x.label
)
def test_contestants_agree(case):
    assert blocks.largest_difference(case, blocks.contestants(case)) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [case for case in blocks.cases(quick=True) if "nest" in case.rival], ids=lambda x: x.label
)
def test_nests_agree(case):
    assert blocks.largest_difference(case, blocks.contestants(case)) < 1e-12


def test_heisenberg_operator():
    """Two sites: eigenvalues of the singlet and the triplet."""
    w = blocks.heisenberg().to_dense()
    two = np.einsum("sax,xtb->satb", w[0], w[..., 2]).transpose(0, 2, 1, 3).reshape(4, 4)
    np.testing.assert_allclose(np.linalg.eigvalsh(two), [-0.75, 0.25, 0.25, 0.25], atol=1e-14)


def test_bonds():
    charges, sizes = blocks.bond(64, 0)
    assert abs(sum(sizes) - 64) <= 3 and charges == tuple(-x for x in charges[::-1]) and sizes == sizes[::-1]
