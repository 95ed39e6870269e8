"""Forced forms: each computes every network of the corpus, and shares and orders what its name says."""

import numpy as np
import pytest

from tests.sparse.corpus import CASES, dense
from tests.sparse.oracle import interpret, reference
from trnqc.errors import ExpressionError
from trnqc.sparse.network.network import network
from trnqc.sparse.search import named_nests

DLPNO = CASES["dlpno-1"].network


def by_steps(steps, arrays):
    held = list(arrays)
    for step in steps:
        held.append(interpret(step.nest, [held[t] for t in step.operands]))
    return held[-1]


@pytest.mark.parametrize("name", named_nests.NAMES)
@pytest.mark.parametrize("label", CASES)
def test_forms_compute_their_network(label, name):
    case = CASES[label]
    arrays = dense(case.operands())
    steps = named_nests.form(name, case.network, case.tree, case.full)
    np.testing.assert_allclose(by_steps(steps, arrays), reference(case.network, arrays), rtol=1e-12, atol=1e-13)


def test_loops_of_forms():
    tree = CASES["dlpno-1"].tree
    loops = {
        name: ["".join(a.loops) for step in named_nests.form(name, DLPNO, tree) for a in step.nest.assignments]
        for name in named_nests.NAMES
    }
    assert loops == {"nary": ["Kiumn"], "unfused": ["Kinm", "Kiun"], "unfused-rows": ["Kimn", "Kinu"]}


def test_intermediates_are_stored_as_they_are_read():
    for name in ("unfused", "unfused-rows"):
        for case in CASES.values():
            steps = named_nests.form(name, case.network, case.tree)
            n = len(case.network.inputs)
            for step in steps:
                for place, t in enumerate(step.operands):
                    if t >= n:
                        assert steps[t - n].nest.formats[-1] == step.nest.formats[place]


def test_fused_shares_what_it_can():
    nest = named_nests.fused(DLPNO, ((0, 1), 2), ["Kimn", "Kinu"], full=[2])
    assert nest.shared == (2,) and nest.workspaces[0].order == ("n",)
    assert [str(f) for f in nest.formats] == [
        "(K:dense m:compressed n:compressed)",
        "(i:dense m:compressed)",
        "(n:dense u:dense)",
        "(K:dense i:compressed u:compressed)",
    ]
    # A summed index outside ends what is shared: the intermediate has not got it.
    assert named_nests.fused(DLPNO, ((0, 1), 2), ["Kmin", "Kinu"]).shared == (1,)


def test_fused_siblings():
    case = CASES["siblings"]
    nest = named_nests.fused(case.network, case.tree, ["ijk", "klm", "ikm"])
    assert nest.shared == (0, 0)
    arrays = dense(case.operands())
    np.testing.assert_allclose(interpret(nest, arrays), reference(case.network, arrays), rtol=1e-12)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: named_nests.form("n-ary", DLPNO, ((0, 1), 2)), "a form is one of nary"),
        (lambda: named_nests.fused(DLPNO, ((0, 1), 1), ["Kimn", "Kinu"]), "each of the operands 0 .. 2"),
        (lambda: named_nests.fused(DLPNO, ((0, 1), 2), ["Kimn"]), "found loops for 1"),
        (lambda: named_nests.fused(DLPNO, ((0, 1), 2), ["Kimn", "Kinu", "u"]), "found loops for 3"),
        (lambda: named_nests.fused(DLPNO, ((0, 1), 2), ["Kim", "Kinu"]), "runs over"),
    ],
)
def test_refused(work, message):
    with pytest.raises(ExpressionError, match=message):
        work()


def test_in_order():
    assert named_nests.in_order(network("a,b,c,d->", [(1,)] * 4)) == (((0, 1), 2), 3)
