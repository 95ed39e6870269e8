"""Trees, and the contractions that they represent."""

import pytest

from trnqc.errors import ExpressionError
from trnqc.sparse.network.network import network
from trnqc.sparse.network.tree import Contraction, contractions, greedy, leaves, trees

RING = network("Kmn,mi,nu,Ki->Kiu", [(7, 5, 5), (5, 3), (5, 4), (7, 3)])


@pytest.mark.parametrize(("count", "binary", "wide"), [(1, 1, 1), (2, 1, 1), (3, 3, 4), (4, 15, 26), (5, 105, 236)])
def test_number_of_trees(count, binary, wide):
    """(2n - 3)!! of binary trees, Schröder's fourth problem for wide ones."""
    assert len(set(trees(count))) == len(trees(count)) == binary
    assert len(set(trees(count, count))) == wide
    assert all(sorted(leaves(tree)) == list(range(count)) for tree in trees(count, count))


def test_contractions():
    assert contractions(RING, ((0, (1, 3)), 2)) == (
        Contraction((1, 3), tuple("Kmi"), tuple("Kmi")),
        Contraction((0, 4), tuple("Kmni"), tuple("Kni")),
        Contraction((5, 2), tuple("Kniu"), tuple("Kiu")),
    )
    assert contractions(RING, (0, 1, 2, 3)) == (Contraction((0, 1, 2, 3), tuple("Kmniu"), tuple("Kiu")),)


def test_tree_of_other_operands_refused():
    with pytest.raises(ExpressionError, match=r"operands 0 \.\. 3 once; found \(\(0, 1\), 1\)"):
        contractions(RING, ((0, 1), 1))


def test_greedy_joins_the_cheapest_pair():
    sizes = [100, 2, 3, 50]
    cost = lambda a, b: sum(sizes[t] for t in a + b)  # noqa: E731
    assert greedy(4, cost) == (0, (3, (1, 2)))
    assert greedy(1, cost) == (0,)
