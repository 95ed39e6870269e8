"""The potential of one block of points, beside the formula by einsum."""

from __future__ import annotations

import numpy as np
import pytest

from tests.xc.test_numint import molecule
from trnqc.xc.ao import AtomicOrbitals
from trnqc.xc.blocks import Blocks
from trnqc.xc.densities import ORDER, VARIABLES
from trnqc.xc.potential import PotentialOfBlock


@pytest.mark.parametrize("negative", [0.0, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("kind", ["LDA", "GGA", "MGGA"])
def test_weights_of_both_signs(kind, negative):
    mol, rng = molecule(), np.random.default_rng(1)
    blocks = Blocks.of(mol, rng.normal(size=(97, 3)), np.ones(97), ORDER[kind])
    aos, block = AtomicOrbitals(blocks, ORDER[kind]), blocks.blocks[0]
    ao = aos(block, aos.buffer())
    weighted = rng.uniform(size=(VARIABLES[kind], block.points))
    weighted *= np.where(rng.uniform(size=block.points) < negative, -1.0, 1.0)
    matrix = np.zeros((mol.nao, mol.nao))
    PotentialOfBlock(blocks, kind)(block, ao, weighted, matrix)

    expected = np.einsum("p,ip,jp->ij", weighted[0], ao[0], ao[0])
    if kind != "LDA":
        products = np.einsum("xp,xip,jp->ij", weighted[1:4], ao[1:], ao[0])
        expected += products + products.T
    if kind == "MGGA":
        expected += np.einsum("p,xip,xjp->ij", weighted[4], ao[1:], ao[1:]) / 2
    full = np.zeros_like(matrix)
    full[np.ix_(block.functions, block.functions)] = np.tril(expected)
    np.testing.assert_allclose(matrix, full, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", ["LDA", "GGA", "MGGA"])
def test_a_block_without_functions(kind):
    mol = molecule()
    blocks = Blocks.of(mol, np.full((5, 3), 1e3), np.ones(5), ORDER[kind])
    block = blocks.blocks[0]
    assert not len(block.functions)
    matrix = np.zeros((mol.nao, mol.nao))
    ao, weighted = np.zeros((4, 0, block.points)), np.ones((VARIABLES[kind], block.points))
    PotentialOfBlock(blocks, kind)(block, ao, weighted, matrix)
    assert not matrix.any()
