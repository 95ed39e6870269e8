"""Nests from the solver: they compute their network, and are the best there are by exhaustive search."""

import numpy as np
import pytest

from tests.sparse import oracle
from trnqc.sparse.network import network
from trnqc.sparse.solve import candidates
from trnqc.sparse.storage import from_dense

# Subscripts, extents, part of each operand that is stored; 1 for a 0/1 map is written as a negative part.
CASES = {
    "copy": ("ij->ji", (3, 4), (0.5,)),
    "sum": ("ijk->j", (3, 4, 2), (0.5,)),
    "matrix product": ("ik,kj->ij", (3, 4, 5), (0.4, 0.4)),
    "batch": ("bik,bkj->bij", (2, 3, 4, 5), (0.4, 0.9)),
    "outer": ("i,j->ij", (3, 4), (0.4, 1.0)),
    "inner": ("ij,ij->", (3, 4), (0.4, 0.4)),
    "integrals": ("Kmn,mi,nu->Kiu", (7, 5, 6, 3, 4), (0.3, 0.5, 1.0)),
    "masked": ("Kmn,mi,nu,Ki->Kiu", (7, 5, 6, 3, 4), (0.3, 0.5, 1.0, -0.4)),
    "mttkrp": ("ijk,jr,kr->ir", (7, 5, 6, 3), (0.1, 1.0, 1.0)),
    "ttmc": ("ijk,jr,ks->irs", (7, 5, 6, 3, 2), (0.1, 1.0, 1.0)),
    "running example": ("ipq,jpr,kqr,jkr->i", (4, 2, 3, 5, 3, 2), (0.4, 0.4, 0.4, 0.4)),
    "empty": ("ik,kj->ij", (3, 4, 5), (0.0, 0.4)),
}


def make(case):
    """The network and its operands, packed and dense."""
    subscripts, extents, parts = CASES[case]
    letters = dict(zip(dict.fromkeys(subscripts.split("->")[0].replace(",", "")), extents))
    rng = np.random.default_rng(7)
    arrays = []
    for labels, part in zip(subscripts.split("->")[0].split(","), parts):
        shape = [letters[x] for x in labels]
        values = rng.uniform(0.5, 1.5, shape) if part >= 0 else np.ones(shape)
        arrays.append(np.where(rng.random(shape) < abs(part), values, 0.0))
    operands = [from_dense(a != 0 if p < 0 else a, kinds=["compressed"] * a.ndim) for a, p in zip(arrays, parts)]
    return network(subscripts, [a.shape for a in arrays]), operands, arrays


@pytest.mark.parametrize("case", CASES)
def test_every_candidate_computes_its_network(case):
    net, operands, arrays = make(case)
    expected = oracle.reference(net, arrays)
    for candidate in candidates(net, operands)[:12]:
        found = oracle.interpret(candidate.nest, arrays)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=str(candidate))
