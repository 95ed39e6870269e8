"""Pair energies are recognised in any form, and the kernel computes what the formula says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from trnqc.contraction import OuterSum, einsum_plan, parse
from trnqc.contraction.kernels import LIBRARY, Kernels
from trnqc.contraction.pair_energy import orbital_energies, pair_forms
from trnqc.errors import InputError, MemoryLimit
from trnqc.types import PairEnergies

O, V, X = 3, 5, 7
HEAD = """
space o = 3
space v = 5
space x = 7
index i j k l : o
index a b c d : v
index P Q R : x
"""
SPOKEN = {
    "through integrals": """
tensor B[o,v,x]
tensor D[o,v,o,v]
W[i,a,j,b] = B[i,a,Q] * B[j,b,Q]
E = W[i,a,j,b] * (2 * W[i,a,j,b] - W[i,b,j,a]) / D[i,a,j,b]
""",
    "through amplitudes": """
tensor B[o,v,x]
tensor D[o,v,o,v]
W[i,a,j,b] = B[i,a,Q] * B[j,b,Q]
t[i,j,a,b] = W[i,a,j,b] / D[i,a,j,b]
E  = 2 * t[k,l,c,d] * W[k,c,l,d]
E -= t[k,l,c,d] * W[k,d,l,c]
""",
    "written out, in other orders": """
tensor B[x,o,v]
tensor D[v,v,o,o]
E = (2 * B[R,i,a] * B[R,j,b] * B[P,i,a] * B[P,j,b]
     - B[P,j,a] * B[Q,j,b] * B[P,i,b] * B[Q,i,a]) / D[a,b,i,j]
""",
}
OTHER = {
    "two factors": """
tensor B[o,v,x]
tensor C[o,v,x]
tensor D[o,v,o,v]
E = B[i,a,Q] * C[j,b,Q] * B[i,a,P] * C[j,b,P] / D[i,a,j,b]
""",
    "no denominator": """
tensor B[o,v,x]
E = B[i,a,Q] * B[j,b,Q] * B[i,a,P] * B[j,b,P]
""",
    "another exchange": """
tensor B[v,v,x]
tensor D[v,v,v,v]
E = B[a,b,Q] * B[c,d,Q] * B[a,c,P] * B[b,d,P] / D[a,b,c,d]
""",
    "one more output": SPOKEN["through integrals"] + "F = W[i,a,j,b] * W[i,a,j,b]\n",
}


def numbers(name):
    rng = np.random.default_rng(2)
    e, f = -1 - rng.random(O), rng.random(V)
    factors, axes = rng.standard_normal((O, V, X)), (e, -f, e, -f)
    if "other orders" in name:
        factors, axes = factors.transpose(2, 0, 1), (-f, -f, e, e)
    return {"B": factors, "D": OuterSum(*axes)(*[slice(None)] * 4)}, OuterSum(*axes), e, f


def reference(B, e, f, direct=2.0, exchange=-1.0):
    g = np.einsum("iaQ,jbQ->iajb", B, B)
    t = g / (e[:, None, None, None] - f[:, None, None] + e[:, None] - f)
    return direct * (t * g).sum() + exchange * (t * g.swapaxes(1, 3)).sum()


def kernel(B, e, f, memory):
    """Pair by pair, as backends define it."""
    os, ss = np.zeros((O, O)), np.zeros((O, O))
    for i in range(O):
        for j in range(i + 1):
            T = B[i] @ B[j].T
            R = T / (e[i] + e[j] - f[:, None] - f)
            os[i, j] = (2 - (i == j)) * (R * T).sum()
            ss[i, j] = os[i, j] - (2 - (i == j)) * (R * T.T).sum()
    return PairEnergies(os, ss, "test")


@pytest.mark.parametrize("name", SPOKEN)
def test_the_kernel_gives_what_the_steps_give(name):
    arrays, function, e, f = numbers(name)
    plan = einsum_plan(HEAD + SPOKEN[name])
    (form,) = plan.pairs
    assert (form.direct, form.exchange) == (2, -1) and "recognised   E is a sum of pair energies" in str(plan)
    fused = replace(plan, kernels=Kernels("test", pairs=kernel, pairs_name="test"))
    assert "one kernel of test in place of the steps" in str(fused) and fused.to_dict()["fused_kernel"] == "test"
    B = arrays["B"] if arrays["B"].shape == (O, V, X) else arrays["B"].transpose(1, 2, 0)
    expected = reference(B, e, f)
    assert replace(plan, kernels=LIBRARY).run(arrays) == pytest.approx(expected, rel=1e-12)
    assert fused.run(arrays) == pytest.approx(expected, rel=1e-10)
    assert fused.run(arrays | {"D": function}) == pytest.approx(expected, rel=1e-12)


def test_spins_apart_are_two_forms_of_one_run():
    text = SPOKEN["through integrals"].replace(
        "E = W[i,a,j,b] * (2 * W[i,a,j,b] - W[i,b,j,a])",
        """
F = 3 * W[i,a,j,b] * W[i,a,j,b] / D[i,a,j,b]
E = 1/2 * W[i,a,j,b] * (W[i,a,j,b] - W[i,b,j,a])""",
    )
    arrays, _, e, f = numbers("")
    plan = einsum_plan(HEAD + text)
    assert {form.target: (form.direct, form.exchange) for form in plan.pairs} == {
        "F": (3, 0),
        "E": (Fraction(1, 2), Fraction(-1, 2)),
    }
    calls = []
    fused = replace(plan, kernels=Kernels("test", pairs=lambda *inputs: calls.append(1) or kernel(*inputs)))
    result = fused.run(arrays)
    assert len(calls) == 1
    assert result["F"] == pytest.approx(reference(arrays["B"], e, f, 3, 0), rel=1e-12)
    assert result["E"] == pytest.approx(reference(arrays["B"], e, f, 0.5, -0.5), rel=1e-12)


@pytest.mark.parametrize("name", OTHER)
def test_what_only_looks_like_it_is_left_alone(name):
    program = parse(HEAD + OTHER[name])
    assert pair_forms(program, [t for t in program.targets if t in "EF"]) == ()


def never(*inputs):
    raise AssertionError("the kernel was called")


def test_denominators_that_are_no_sums_run_step_by_step():
    arrays, _, e, f = numbers("")
    plan = replace(einsum_plan(HEAD + SPOKEN["through integrals"]), kernels=Kernels("test", pairs=never))
    arrays["D"] = arrays["D"] * (1 + 1e-6 * np.random.default_rng(0).random(arrays["D"].shape))
    assert plan.run(arrays) == pytest.approx(reference(arrays["B"], e, f), rel=1e-5)
    (form,) = plan.pairs
    assert orbital_energies(form, OuterSum(e, -f, e + 1, -f)) is None


def test_single_precision_and_a_kernel_that_needs_more_memory_run_step_by_step():
    arrays, _, e, f = numbers("")
    plan = einsum_plan(HEAD + SPOKEN["through integrals"], memory_limit=10**6)
    single = {name: x.astype(np.float32) for name, x in arrays.items()}
    assert replace(plan, kernels=Kernels("test", pairs=never)).run(single) == pytest.approx(
        reference(arrays["B"], e, f), rel=1e-4
    )

    def large(B, e, f, memory):
        assert memory == 10**6 + B.nbytes
        raise MemoryLimit("too little")

    result = replace(plan, kernels=Kernels("test", pairs=large)).run(arrays)
    assert result == pytest.approx(reference(arrays["B"], e, f), rel=1e-12)


def test_outer_sums_are_of_vectors():
    with pytest.raises(InputError, match=r"of vectors; found shapes \[\(2, 2\)\]"):
        OuterSum(np.ones((2, 2)))
