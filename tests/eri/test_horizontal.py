"""Phase 2 on a pair of points instead of integrals: there (ab|cd) is a product of four functions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gen.programs import compiled
from trnqc.eri.kernels.angular import cartesians, spherical
from trnqc.eri.kernels.horizontal import flops, horizontal_function, scratch_size, stages
from trnqc.eri.kernels.recurrence import components
from trnqc.gen import run

LANES = 4


def functions(l: int, r: np.ndarray, cartesian: bool) -> np.ndarray:
    """Functions [n, lanes] of a shell at displacements r [3, lanes]."""
    values = np.array([np.prod([r[n] ** p for n, p in enumerate(powers)], axis=0) for powers in cartesians(l)])
    return values if cartesian else spherical(l).T @ values


def products(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.einsum("an,bn->abn", x, y).reshape(-1, x.shape[-1])


def case(shells: tuple[int, int, int, int], cartesian: bool, fused: bool):
    """Arguments of horizontal_function and the integrals that are to come out."""
    la, lb, lc, ld = shells
    rng = np.random.default_rng(sum(shells))
    a, b = rng.uniform(-1, 1, (2, 3))
    c, d, r1, r2 = rng.uniform(-1, 1, (4, 3, LANES))
    ra, rb, rc, rd = r1 - a[:, None], r1 - b[:, None], r2 - c, r2 - d
    e = np.array([np.prod([ra[n] ** p for n, p in enumerate(powers)], axis=0) for powers in components(la, lb)])
    f = np.array([np.prod([rc[n] ** p for n, p in enumerate(powers)], axis=0) for powers in components(lc, ld)])
    bra = products(functions(la, ra, cartesian), functions(lb, rb, cartesian))
    ket = products(functions(lc, rc, cartesian), functions(ld, rd, cartesian))
    want = np.einsum("in,jn->ijn", bra, ket)
    inputs = {
        "h": np.einsum("en,fn->efn", e, f),
        "ab": np.concatenate([a, a - b]),
        "cd": np.concatenate([c, c - d]),
        "scratch": np.full((scratch_size(*shells, cartesian, fused), LANES), np.nan),
        "out": np.full(want.shape, np.nan),
    }
    return inputs, want


SMALL = [(0, 0, 0, 0), (1, 0, 1, 0), (1, 1, 0, 0), (0, 0, 1, 1), (2, 0, 1, 0), (1, 1, 1, 1), (3, 0, 2, 0), (2, 1, 1, 1)]
LOOPS = [(2, 2, 1, 1), (1, 1, 3, 2)]
# Cartesian or not, harmonics of a side at once or of all indices at the end.
KINDS = [(True, True), (False, True), (False, False)]


@pytest.mark.parametrize("cartesian, fused", KINDS)
@pytest.mark.parametrize(
    "shells, unrolled", [(s, u) for s in SMALL for u in (True, False)] + [(s, False) for s in LOOPS]
)
def test_products_of_functions(shells, cartesian, unrolled, fused):
    inputs, want = case(shells, cartesian, fused)
    run(horizontal_function(*shells, cartesian, fused=fused, unrolled=unrolled), inputs, lanes=LANES)
    np.testing.assert_allclose(inputs["out"], want, atol=1e-12)


@pytest.mark.parametrize(
    "shells, cartesian",
    [
        ((3, 3, 2, 2), True),
        ((3, 3, 2, 2), False),
        ((4, 4, 1, 0), True),
        ((4, 4, 1, 0), False),
        ((7, 0, 5, 5), False),
        pytest.param((7, 0, 5, 5), True, marks=pytest.mark.slow),
    ],
)
def test_compiled(shells, cartesian):
    inputs, want = case(shells, cartesian, fused=True)
    function = horizontal_function(*shells, cartesian)
    compiled(function, LANES, flags=("-O0",))(*inputs.values())
    np.testing.assert_allclose(inputs["out"], want, atol=1e-11)


def test_targets_are_not_changed():
    inputs, _ = case((2, 1, 2, 1), False, True)
    before = inputs["h"].copy()
    run(horizontal_function(2, 1, 2, 1, False), inputs, lanes=LANES)
    np.testing.assert_array_equal(inputs["h"], before)


@pytest.mark.parametrize("shells, cartesian", [((1, 0, 1, 0), False), ((1, 0, 0, 0), True), ((4, 0, 7, 0), True)])
def test_nothing_to_do(shells, cartesian):
    assert stages(*shells, cartesian) == []


# Flops by the plain way: a side after the other, all harmonics at the end, Cartesian only.
FLOPS = {
    "1111": (324, 324, 324),
    "2111": (891, 945, 648),
    "2121": (2139, 2313, 1224),
    "2211": (2961, 3159, 2070),
    "2222": (15624, 17967, 10586),
    "3333": (138621, 185473, 122148),
    "4444": (758908, 1170268, 825100),
}


@pytest.mark.parametrize("digits", FLOPS)
def test_flops(digits):
    la, lb, lc, ld = map(int, digits)
    extents = len(components(la, lb)), len(components(lc, ld))
    kinds = [(False, True), (False, False), (True, True)]
    counts = [flops(stages(la, lb, lc, ld, *kind), extents) for kind in kinds]
    assert all(count <= known for count, known in zip(counts, FLOPS[digits]))
    if (la, lb) == (lc, ld):  # where both orders of the sides cost the same
        assert counts[2] == FLOPS[digits][2]
    if la > 1:
        assert counts[0] < counts[1]
