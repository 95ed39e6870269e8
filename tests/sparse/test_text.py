"""Nests as people read them."""

from dataclasses import replace

from tests.sparse.corpus import CASES
from tests.sparse.test_nest import NEST
from trnqc.sparse import forms
from trnqc.sparse.nest import Workspace
from trnqc.sparse.text import layouts, listing


def test_fused():
    assert listing(NEST) == (
        "for K:\n"
        "    for i:\n"
        "        w3[n] = 0\n"
        "        for m:\n"
        "            for n: w3[n] += t0[K,m,n] * t1[i,m]\n"
        "        for n:\n"
        "            for u: result[K,i,u] += w3[n] * t2[n,u]"
    )
    assert layouts(NEST).splitlines() == [
        "t0      (K:dense m:compressed n:compressed)",
        "t1      (i:dense m:compressed)",
        "t2      (n:dense u:dense)",
        "result  (K:dense i:dense u:dense)",
    ]


def test_spaces_are_named():
    assert "w3[n] = 0  (hashed)" in listing(replace(NEST, workspaces=(Workspace(("n",), "hashed"),)))


def test_siblings_and_scalars():
    case = CASES["siblings"]
    nest = forms.fused(case.network, case.tree, ["ikj", "kml", "kim"])
    assert listing(nest).splitlines() == [
        "w4[k,i] = 0",
        "for i:",
        "    for k:",
        "        for j: w4[k,i] += t0[i,j] * t1[k,j]",
        "for k:",
        "    w5[m] = 0",
        "    for m:",
        "        for l: w5[m] += t2[k,l] * t3[m,l]",
        "    for i:",
        "        for m: result[i,m] += w4[k,i] * w5[m]",
    ]
    scalar = CASES["dlpno-1"]
    assert "            w3 = 0\n" in listing(forms.fused(scalar.network, scalar.tree, ["Kinm", "Kinu"]))
