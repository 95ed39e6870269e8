"""einsum on the backends: the same numbers within the precision, and clear errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import trnqc
from trnqc import backends
from trnqc.contraction import OuterSum
from trnqc.contraction.kernels import LIBRARY
from trnqc.errors import InputError, UnsupportedPrecision

# Products of fp32 numbers of order one over at most a few dozen terms.
SINGLE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture
def operands():
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape) for shape in ((3, 7, 5), (3, 5, 9), (9, 2))]


def test_the_library_of_the_arrays_is_the_default(operands):
    expected = np.einsum("xab,xbc,cd->xda", *operands)
    np.testing.assert_allclose(trnqc.einsum("xab,xbc,cd->xda", *operands), expected, rtol=1e-12, atol=1e-12)
    assert trnqc.einsum_plan("xab,xbc,cd->xda", *operands).multiply_adds == 3 * 5 * 9 * 2 + 3 * 7 * 5 * 2


@pytest.mark.parametrize(
    ("backend", "precision", "close"),
    [
        ("cpu", "fp64", {"rtol": 1e-12, "atol": 1e-12}),
        ("cpu", "fp32", SINGLE),
        ("simulator", "fp32", SINGLE),
    ],
)
def test_backends_multiply_the_matrices(operands, backend, precision, close):
    result = trnqc.einsum("xab,xbc,cd->xda", *operands, backend=backend, precision=precision)
    np.testing.assert_allclose(result, np.einsum("xab,xbc,cd->xda", *operands), **close)


def test_refusals(operands):
    with pytest.raises(UnsupportedPrecision):
        trnqc.einsum("xab,xbc,cd->xda", *operands, backend="simulator", precision="fp64")
    with pytest.raises(InputError, match="no backend is called 'abacus'"):
        trnqc.einsum("xab,xbc,cd->xda", *operands, backend="abacus")
    with pytest.raises(InputError, match="multiplies real numbers; found complex128"):
        trnqc.einsum("xab,xbc,cd->xda", *(x + 0j for x in operands), backend="cpu")
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="takes NumPy arrays; found Tensor"):
        trnqc.einsum("xab->x", torch.tensor(operands[0]), backend="cpu")


LADDER = "Qae,Qbf,efij->abij"


@pytest.mark.parametrize(
    ("backend", "precision", "close"),
    [
        ("cpu", "fp64", {"rtol": 1e-11, "atol": 1e-11}),
        ("simulator", "fp32", {"rtol": 2e-4, "atol": 2e-4}),
    ],
)
def test_backends_multiply_within_a_limit(backend, precision, close):
    """The loops of a memory limit hand their slices to the backend; the plan says whose products they are."""
    rng = np.random.default_rng(6)
    operands = [rng.standard_normal(shape) for shape in ((5, 9, 9), (5, 9, 9), (9, 9, 2, 3))]
    limit = 9**4 * 8 // 3
    plan = trnqc.einsum_plan(LADDER, *operands, memory_limit=limit, backend=backend, precision=precision)
    assert f"by backend {backend} in {precision}" in str(plan) and "for " in str(plan)
    expected = np.einsum(LADDER, *operands, optimize=True)
    np.testing.assert_allclose(plan.run(*operands), expected, **close)
    result = trnqc.einsum(LADDER, *operands, memory_limit=limit, backend=backend, precision=precision)
    np.testing.assert_allclose(result, expected, **close)


MP2 = """
space o
space v
space x
index i j : o
index a b : v
index Q : x
tensor B[o,v,x]
function D[o,v,o,v] cost 3
W[i,a,j,b] = B[i,a,Q] * B[j,b,Q]
E = W[i,a,j,b] * (2 * W[i,a,j,b] - W[i,b,j,a]) / D[i,a,j,b]
"""


@pytest.mark.parametrize(
    ("backend", "precision", "rel"),
    [
        (None, "fp64", 1e-10),
        ("cpu", "fp64", 1e-10),
        ("cpu", "fp32", 1e-5),
        ("simulator", "fp32", 1e-5),
    ],
)
def test_pair_energies_go_to_the_fused_kernel(monkeypatch, backend, precision, rel):
    rng = np.random.default_rng(7)
    B, e, f = rng.standard_normal((4, 9, 13)), -1 - rng.random(4), rng.random(9)
    operands = {"B": B, "D": OuterSum(e, -f, e, -f)}
    machine = backends.get(backend or "cpu")
    if machine.status().reason:
        pytest.skip(machine.status().reason)
    calls, really = [], type(machine).pair_step
    monkeypatch.setattr(type(machine), "pair_step", lambda *a, **k: calls.append(a[1]) or really(*a, **k))
    plan = trnqc.einsum_plan(MP2, {"B": B}, backend=backend, precision=precision)
    assert f"one kernel of backend {backend or 'cpu'} in {precision}" in str(plan)
    steps = replace(plan, kernels=LIBRARY).run(operands)
    assert plan.run(operands) == pytest.approx(steps, rel=rel)
    assert calls == [precision]
