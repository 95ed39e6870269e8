"""Nests from the solver: they compute their network, and are the best there are by exhaustive search."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.sparse import brute, oracle
from tests.sparse.nests import interpreted, networks
from trnqc.errors import ExpressionError
from trnqc.sparse.network.network import network
from trnqc.sparse.run.operands import NetworkOperands
from trnqc.sparse.search.formats import Choices
from trnqc.sparse.search.rates import WorkRates
from trnqc.sparse.search.solve import candidates
from trnqc.sparse.tensors.storage import from_dense

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
    proposals = candidates(net, operands, WorkRates())
    assert all(candidate.nest.check() for candidate in proposals)
    for candidate in proposals[:12]:
        result = oracle.interpret(candidate.nest, arrays)
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12, err_msg=str(candidate))


@some.composite
def maps_with_factors(draw):
    """A 0/1 map of few elements in 3 to 5 modes and a full factor, with permuted indices: subscripts and arrays."""
    extents = draw(some.lists(some.integers(1, 6), min_size=3, max_size=5))
    letters = "abcde"[: len(extents)]
    elements = some.tuples(*(some.integers(0, extent - 1) for extent in extents))
    stored = np.zeros(extents, bool)
    for place in draw(some.lists(elements, min_size=1, max_size=9)):
        stored[place] = True
    factor, result = ("".join(draw(some.permutations(letters))) for _ in range(2))
    factor, result = factor[: draw(some.integers(1, len(letters)))], result[: draw(some.integers(1, len(letters)))]
    shape = [extents[letters.index(x)] for x in factor]
    return f"{letters},{factor}->{result}", stored, np.arange(1.0, 1 + np.prod(shape)).reshape(shape)


@given(maps_with_factors())
@settings(max_examples=60, deadline=None)
def test_operands_can_be_stored_in_the_formats_of_every_candidate(case):
    subscripts, stored, factor = case
    arrays = [stored, factor]
    net = network(subscripts, [a.shape for a in arrays])
    operands = [from_dense(a) for a in arrays]
    for candidate in candidates(net, operands, WorkRates())[:4]:
        tensors = NetworkOperands(net, tuple(operands)).for_nest(candidate.nest.formats)
        result = interpreted(candidate.nest)(tensors)
        dense = result if isinstance(result, np.ndarray) else result.to_dense()
        np.testing.assert_allclose(dense, np.einsum(subscripts, *arrays), rtol=1e-12, atol=0)


# In a given tree, the order of a workspace follows its reader; the best nest of all seldom needs more.
@pytest.mark.parametrize(
    ("case", "tree"),
    [
        ("matrix product", (0, 1)),
        ("integrals", ((0, 1), 2)),
        ("integrals", ((0, 2), 1)),
        ("masked", ((0, (1, 3)), 2)),
        ("masked", ((0, 1, 3), 2)),
        ("mttkrp", ((0, 1), 2)),
        ("ttmc", ((0, 2), 1)),
    ],
)
def test_the_best_nest_is_that_of_all_nests(case, tree):
    net, operands, _ = make(case)
    proposals = candidates(net, operands, WorkRates(), tree=tree, time_limit=60.0)
    dense = frozenset(t for t, f in enumerate(proposals[0].nest.formats[:-1]) if not f.sparse)
    best = min(expected.seconds for _, expected in brute.nests(net, operands, tree, Choices(dense=dense)))
    assert min(candidate.estimate.seconds for candidate in proposals) <= best * (1 + 1e-9)


@pytest.mark.parametrize("part", [0.05, 0.4, 0.95])
def test_a_level_skips_empty_coordinates_where_that_is_estimated_to_be_faster(part):
    rng, shape = np.random.default_rng(4), (30, 40, 50)
    array = np.where((rng.random(shape[:2]) < part)[:, :, None] & (rng.random(shape) < 0.07), 1.5, 0.0)
    factors = [from_dense(rng.random((extent, 16))) for extent in shape[1:]]
    tensor = from_dense(array, kinds=["compressed"] * 3)
    net = network("ijk,jr,kr->ir", [shape, *(factor.shape for factor in factors)])
    best, *others = candidates(net, [tensor, *factors], WorkRates(), out="dense")
    layouts = [candidate.nest.formats[0] for candidate in (best, *others)]
    middle = {layout.kinds[1] for layout in layouts if layout.order == ("i", "j", "k")}
    assert middle == ({"dense", "compressed"} if part == 0.4 else {"dense"} if part > 0.4 else {"compressed"})
    assert best.nest.formats[0].kinds[1] == ("dense" if part > 0.4 else "compressed")


def test_rows_at_stored_coordinates_are_read_from_what_nearly_fits_into_a_cache():
    """Rows of one factor are read in order, those of the other at stored coordinates: the larger one in order."""
    rng, shape = np.random.default_rng(4), (2, 150, 900)
    array = np.where(rng.random(shape) < 0.2, 1.5, 0.0)
    factors = [from_dense(rng.random((extent, 16))) for extent in shape[1:]]
    tensor = from_dense(array, kinds=["compressed"] * 3)
    net = network("kji,jr,ir->kr", [shape, *(factor.shape for factor in factors)])
    rates = WorkRates(first_cache=2**11, second_cache=0.8 * factors[0].bytes)
    best, *_ = candidates(net, [tensor, *factors], rates, out="dense", time_limit=60.0)
    assert best.nest.formats[0].order == ("k", "i", "j")


def test_a_tensor_that_stands_twice_is_packed_once_where_that_costs_nothing():
    rng = np.random.default_rng(2)
    operand = from_dense(np.where(rng.random((6, 5)) < 0.5, 1.5, 0.0), kinds=["compressed"] * 2)
    best = candidates(network("ki,kj->ij", [(6, 5)] * 2, [0, 0]), [operand, operand], WorkRates())[0]
    assert best.copies == 1


def test_time_runs_out_with_a_nest():
    net, operands, arrays = make("running example")
    nest = candidates(net, operands, WorkRates(), time_limit=0.0)[0].nest
    np.testing.assert_allclose(oracle.interpret(nest, arrays), oracle.reference(net, arrays), rtol=1e-12)


def test_given_tree_and_storage_are_kept():
    net, operands, _ = make("masked")
    proposals = candidates(net, operands, WorkRates(), tree=(((0, 1), 2), 3), out="sparse")
    assert {candidate.tree for candidate in proposals} == {(((0, 1), 2), 3)}
    assert all(candidate.nest.formats[-1].sparse for candidate in proposals)


def test_large_workspaces_are_tables():
    net, operands, _ = make("integrals")
    for candidate in candidates(net, operands, WorkRates(), dense_workspace=20):
        for workspace in candidate.nest.workspaces:
            assert (workspace.space == "hashed") == (np.prod(net.shape(workspace.order)) > 20)


def test_tree_of_other_operands_is_refused():
    net, operands, _ = make("integrals")
    with pytest.raises(ExpressionError, match="each of the operands"):
        candidates(net, operands, WorkRates(), tree=((0, 1), 1))


ONCE = """
from tests.sparse.test_solve import make
from trnqc.sparse.search.rates import WorkRates
from trnqc.sparse.search.solve import candidates
for candidate in candidates(*make("masked")[:2], WorkRates(), time_limit=60.0): print(candidate.nest)
"""


def test_the_same_in_every_process():
    """Whatever the order of hashes, which another process has."""
    printed = subprocess.run(
        [sys.executable, "-c", ONCE],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    here = "".join(f"{candidate.nest}\n" for candidate in candidates(*make("masked")[:2], WorkRates(), time_limit=60.0))
    assert printed == here


@settings(max_examples=25, deadline=None)
@given(net=networks(), part=some.sampled_from((0.0, 0.3, 1.0)), seed=some.integers(0, 9))
def test_any_network_is_computed(net, part, seed):
    """Scalars, indices that stand alone, operands without elements, outer products."""
    rng = np.random.default_rng(seed)
    arrays = [np.where(rng.random(net.shape(labels)) < part, 1.5, 0.0) for labels in net.inputs]
    operands = [from_dense(a, kinds=["compressed"] * a.ndim) for a in arrays]
    nest = candidates(net, operands, WorkRates(), time_limit=0.05)[0].nest.check()
    np.testing.assert_allclose(oracle.interpret(nest, arrays), oracle.reference(net, arrays), rtol=1e-12, atol=1e-12)
