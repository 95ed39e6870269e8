"""Fusions from the solver: legal, all different, the smallest order first, as exhaustive search finds it."""

import os
import subprocess
import sys

import pytest

from tests.sparse import brute
from trnqc.sparse.network.network import network
from trnqc.sparse.network.tree import contractions
from trnqc.sparse.search.fusion import Fusions


def make(subscripts, extent=3):
    return network(subscripts, [(extent,) * len(part) for part in subscripts.split("->")[0].split(",")])


def fusions(net, tree, limit=50):
    return list(Fusions(contractions(net, tree), len(net.inputs)).smallest_first(limit, 10.0))


def chain(count):
    tree = 0
    for operand in range(1, count):
        tree = (tree, operand)
    return tree


RUNNING = "ipq,jpr,kqr,jkr->i"


@pytest.mark.parametrize(
    ("subscripts", "tree", "order"),
    [
        (RUNNING, chain(4), 1),  # the paper's figure 5 shows 2
        ("Kmn,mi,nu->Kiu", chain(3), 0),
        ("Kmn,mi,nu,Ki->Kiu", chain(4), 1),
        ("Kmn,mi,nu,Ki->Kiu", ((0, (1, 3)), 2), 1),
        ("Kmn,mi,nu,Ki->Kiu", (((0, 1), 3), 2), 0),
        ("ijk,jr,kr->ir", chain(3), 0),
        ("ijk,jr,ks->irs", chain(3), 0),
        ("pqr,pa,qb,rc->abc", chain(4), 1),
        ("pqrs,pa,qb,rc,sd->abcd", chain(5), 2),
        ("pqrst,pa,qb,rc,sd,te->abcde", chain(6), 3),
        ("acik,befl,dfjk,cdel->abij", (((1, 3), 2), 0), 2),
    ],
)
def test_least_order_of_known_networks(subscripts, tree, order):
    net = make(subscripts)
    result = next(Fusions(contractions(net, tree), len(net.inputs)).smallest_first(1, 10.0))
    assert result.order == order


@pytest.mark.parametrize(
    ("subscripts", "tree"),
    [
        ("Kmn,mi,nu->Kiu", ((0, 1), 2)),
        ("Kmn,mi,nu->Kiu", ((0, 2), 1)),
        ("Kmn,mi,nu->Kiu", ((1, 2), 0)),
        ("ij,jk,kl->il", ((0, 1), 2)),
        ("ij,jk,kl,lm->im", ((0, 1), (2, 3))),
        ("ij,jk,kl,lm->im", (((0, 1), 2), 3)),
        ("bij,bjk,bkl->bil", ((0, 1), 2)),
        ("ijk,jr,kr->ir", ((0, 1), 2)),
        ("Kmn,mi,nu,Ki->Kiu", ((0, (1, 3)), 2)),
        ("ab,bc,cd,da->", ((0, 1), (2, 3))),
        (RUNNING, chain(4)),
    ],
)
def test_least_order_is_that_of_all_nests(subscripts, tree):
    net = make(subscripts)
    assert fusions(net, tree, 1)[0].order == brute.least_order(net, tree)


@pytest.mark.parametrize(("subscripts", "tree"), [("Kmn,mi,nu->Kiu", ((0, 1), 2)), (RUNNING, chain(4))])
def test_fusions_differ_and_grow(subscripts, tree):
    result = fusions(make(subscripts), tree)
    assert len({fusion.fused for fusion in result}) == len(result)
    assert [fusion.order for fusion in result] == sorted(fusion.order for fusion in result)


def test_all_fusions_of_one_intermediate():
    """Runs of its three indices in any order: 1 + 3 + 6 + 6."""
    assert len(fusions(make("Kmn,mi,nu->Kiu"), ((0, 1), 2))) == 16


def test_no_more_than_asked_for():
    assert len(fusions(make(RUNNING), chain(4), 7)) == 7


ONCE = """
from tests.sparse.test_fusion import RUNNING, chain, fusions, make
for fusion in fusions(make(RUNNING), chain(4), 30): print(fusion)
"""


def test_the_same_in_every_process():
    """Whatever the order of hashes, and however much the solver has done before."""
    printed = [
        subprocess.run(
            [sys.executable, "-c", ONCE],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    here = "".join(f"{fusion}\n" for fusion in fusions(make(RUNNING), chain(4), 30))
    assert printed == [here, here]
