"""The interpreter of nests against einsum, whatever is shared."""

from dataclasses import replace

import numpy as np
import pytest

from tests.sparse.oracle import interpret, reference
from tests.sparse.test_nest import DLPNO, NEST
from trnqc.sparse.network.nest import Workspace


def operands():
    rng = np.random.default_rng(3)
    return [rng.standard_normal(DLPNO.shape(x)) for x in DLPNO.inputs]


def test_fused():
    arrays = operands()
    np.testing.assert_allclose(interpret(NEST, arrays), np.einsum("Kmn,mi,nu->Kiu", *arrays), rtol=1e-13)


@pytest.mark.parametrize("depth", [0, 1])
def test_shared_less(depth):
    rest = tuple("Kin")[depth:]
    nest = replace(NEST, shared=(depth,), workspaces=(Workspace(rest),))
    arrays = operands()
    np.testing.assert_allclose(interpret(nest, arrays), reference(DLPNO, arrays), rtol=1e-13)
