"""Derived symmetry of computed tensors: found in known cases, and true for random arrays in all cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnqc.contraction import einsum_plan, parse
from trnqc.contraction.order.exchanges import exchanges_of
from trnqc.expression.symmetry import Exchange

HEAD = """
space o = 3
space v = 4
space x = 5
index i j k l : o
index a b c d e f : v
index Q : x
tensor s[v,o]
tensor t[v,v,o,o] symmetric(0,1)(2,3)
tensor w[o,o] antisymmetric(0,1)
tensor B[x,v,v] symmetric(1,2)
"""
BOTH = Exchange(((0, 1), (2, 3)), 1)
CASES = {
    "T[a,b,i,j] = t[a,b,i,j] + s[a,i] * s[b,j]": {BOTH},
    "T[a,b,i,j] = t[a,b,i,j] + 2 * s[a,i] * s[b,j] + s[a,j] * s[b,i]": {BOTH},
    "T[a,b,i,j] = t[a,b,i,j] - t[b,a,i,j]": {Exchange(((0, 1),), -1), Exchange(((2, 3),), -1), BOTH},
    "T[a,b,i,j] = t[a,c,i,k] * t[b,c,j,k]": {BOTH},
    "T[a,b,i,j] = t[a,c,i,k] * t[c,b,k,j]": {BOTH},
    "T[a,b,i,j] = t[a,b,i,k] * w[k,j]": set(),
    "T[a,b,i,j] = t[a,b,i,j] + s[a,i] * s[b,k] * w[k,j]": set(),
    "T[i,j] = w[i,k] * w[k,j]": {Exchange(((0, 1),), 1)},
    "T[i,j] = w[i,k] * w[k,l] * w[l,j]": {Exchange(((0, 1),), -1)},
    "T[i,j] = s[a,i] * s[a,j] / w[i,j]": {Exchange(((0, 1),), -1)},
    "S[a,i] = s[a,i]\nT[a,b,i,j] = S[a,i] * S[b,j]": {BOTH},
    "T[a,b] = s[a,i] * s[b,i]\nT[a,b] += s[a,i] * s[b,i]": set(),
}


@pytest.mark.parametrize("text", CASES)
def test_exchanges_of_targets(text):
    assert set(exchanges_of(parse(HEAD + text), "T")) == CASES[text]


def test_declared_and_changed_tensors():
    program = parse(HEAD + "T[a,b] = B[Q,a,b] * B[Q,c,c]\ns[a,i] += s[a,i]")
    assert exchanges_of(program, "B") == (Exchange(((1, 2),), 1),)
    assert exchanges_of(program, "s") == ()


FACTORS = [
    "t[a,b,i,j]",
    "t[b,a,i,j]",
    "s[a,i]*s[b,j]",
    "s[b,i]*s[a,j]",
    "t[a,c,i,k]*t[b,c,j,k]",
    "s[a,k]*s[b,k]*w[i,j]",
]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, -1, 2]), st.sampled_from(FACTORS)), min_size=1, max_size=4))
def test_what_is_found_is_true(terms):
    text = (
        HEAD
        + "T[a,b,i,j] = "
        + " + ".join(f"{c} * {f}" for c, f in terms).replace("+ -", "- ").replace("= -", "= 0*t[a,b,i,j] - ")
    )
    rng = np.random.default_rng(5)
    t, w = rng.standard_normal((4, 4, 3, 3)), rng.standard_normal((3, 3))
    values = {"s": rng.standard_normal((4, 3)), "t": t + t.transpose(1, 0, 3, 2), "w": w - w.T}
    result = einsum_plan(text, outputs=("T",)).run(values)
    for pairs in ((((0, 1),)), (((2, 3),)), ((0, 1), (2, 3))):
        pairs = (pairs,) if isinstance(pairs[0], int) else pairs
        order = Exchange(pairs).order(4)
        true = {sign for sign in (1, -1) if np.allclose(result, sign * result.transpose(order))}
        signs = {e.sign for e in exchanges_of(parse(text), "T") if e.pairs == pairs}
        assert signs <= true and (signs or not true)


LADDER = """
tau[a,b,i,j] = t[a,b,i,j] + s[a,i] * s[b,j]
R[a,b,i,j] = t[a,b,i,j] + B[Q,a,e] * B[Q,b,f] * tau[e,f,i,j]
"""


def test_a_ladder_over_a_target():
    program = parse((HEAD + LADDER).replace("o = 3", "o = 5").replace("v = 4", "v = 30").replace("x = 5", "x = 40"))
    plan = einsum_plan(program)
    loops = plan.assignments[-1].parts[1].loops
    assert loops is not None and loops.ladder.t.name == "tau" and loops.ladder.even
    rng = np.random.default_rng(5)
    t, b, s = (rng.standard_normal(shape) for shape in ((30, 30, 5, 5), (40, 30, 30), (30, 5)))
    t, b = t + t.transpose(1, 0, 3, 2), b + b.transpose(0, 2, 1)
    tau = t + np.einsum("ai,bj->abij", s, s)
    expected = t + np.einsum("aebf,efij->abij", np.tensordot(b, b, (0, 0)), tau, optimize=True)
    np.testing.assert_allclose(plan.run({"t": t, "B": b, "s": s}), expected, rtol=1e-11, atol=1e-9)
