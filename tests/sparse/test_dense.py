"""Networks as products of dense matrices."""

import numpy as np
import pytest

from tests.sparse.corpus import CASES, dense
from tests.sparse.oracle import reference
from trnqc.sparse.run.dense import by_matrices


@pytest.mark.parametrize("label", CASES)
def test_every_network(label):
    case = CASES[label]
    arrays = dense(case.operands())
    for tree in (case.tree, tuple(range(len(arrays)))):
        result = by_matrices(case.network, tree, arrays)
        np.testing.assert_allclose(result, reference(case.network, arrays), rtol=1e-12, atol=1e-13)
        assert result.flags.c_contiguous


def test_a_copy_is_one():
    case = CASES["copy"]
    (array,) = dense(case.operands())
    assert not np.may_share_memory(by_matrices(case.network, (0,), [array]), array)
