"""The text form of nests."""

from dataclasses import replace

from tests.sparse.corpus import CASES
from tests.sparse.test_nest import NEST
from trnqc.sparse.network.nest import Workspace
from trnqc.sparse.network.notation import layouts, listing
from trnqc.sparse.search import named_nests


def test_fused():
    assert listing(NEST) == (
        "for K:\n"
        "    for i:\n"
        "        for m:\n"
        "            for n: X0(n) += A(K,m,n) * B(i,m)\n"
        "        for n:\n"
        "            for u: R(K,i,u) += X0(n) * C(n,u)"
    )
    assert layouts(NEST).splitlines() == [
        "A       (K:dense m:compressed n:compressed)",
        "B       (i:dense m:compressed)",
        "C       (n:dense u:dense)",
        "X0      (n) dense workspace",
        "R       (K:dense i:dense u:dense)",
    ]
    assert "X0      (n) hashed workspace" in layouts(replace(NEST, workspaces=(Workspace(("n",), "hashed"),)))


def test_siblings_and_what_puts_a_result_in_order():
    case = CASES["siblings"]
    nest = named_nests.fused(case.network, case.tree, ["ijk", "klm", "ikm"])
    assert listing(nest).splitlines() == [
        "for i:",
        "    for j:",
        "        for k: X0(i,k) += A(i,j) * B(j,k)",
        "for k:",
        "    for l:",
        "        for m: X1(k,m) += C(k,l) * D(l,m)",
        "for i:",
        "    for k:",
        "        for m: X2(m) += X0(i,k) * X1(k,m)",
        "    for m: R(i,m) = X2(m)",
    ]
    assert "X2      (m) listed workspace" in layouts(nest)
