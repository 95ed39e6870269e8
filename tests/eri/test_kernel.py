"""Kernels give libcint's integrals, on random shells with two or three primitives each."""

from __future__ import annotations

from itertools import combinations_with_replacement as ordered

import numpy as np
import pytest

from tests.eri.quartets import both, both_fitted, both_two_centre, libcint, ours, pairs, random_shells, shells
from trnqc.eri.classes import BOUND, QuartetClass
from trnqc.eri.kernels.variants import FORMS, form_of

# Every class (ab|cd) with a >= b, c >= d, ab >= cd and functions up to g; what compiles quickly is tested always.
PAIRS = [(a, b) for a in range(5) for b in range(a + 1)]
CLASSES = ["{}{}{}{}".format(*bra, *ket) for ket, bra in ordered(PAIRS, 2)]
EVERY = [c if sum(map(int, c)) <= 5 else pytest.param(c, marks=pytest.mark.slow) for c in CLASSES]


def cls_of(digits: str, **kind) -> QuartetClass:
    return QuartetClass(*map(int, digits), **kind)


def agree(results: tuple[np.ndarray, np.ndarray], error: float = 1e-12) -> None:
    """To 1e-12, of what is large relative to the largest."""
    ours, theirs = results
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= error * max(1.0, np.abs(theirs).max())


def allowed(digits: str) -> float:
    """Of two g functions some bohr apart the horizontal recurrence subtracts moments |A-B|^4 times as large."""
    return 5e-12 if "44" in (digits[:2], digits[2:]) else 1e-12


@pytest.mark.parametrize("digits", EVERY)
def test_every_class(digits):
    agree(both(cls_of(digits)), allowed(digits))


@pytest.mark.parametrize("digits", ["0000", "1111", "2110", "2020", "0021", "1030"])
def test_cartesian_functions_and_any_order_of_classes(digits):
    agree(both(cls_of(digits, cartesian=True)))


@pytest.mark.slow
@pytest.mark.parametrize("digits", ["2222", "3221", "3322", "4020", "4143"])
def test_cartesian_functions_of_high_angular_momentum(digits):
    agree(both(cls_of(digits, cartesian=True)))


@pytest.mark.parametrize("operator", ["erf", "erfc"])
@pytest.mark.parametrize("omega", [0.11, 1.3])
@pytest.mark.parametrize("digits", ["0000", "1010", "2110"])
def test_range_separation(digits, operator, omega):
    agree(both(cls_of(digits, operator=operator), omega=omega))


@pytest.mark.parametrize("omega", [1e-4, 1e4])
def test_extreme_ranges(omega):
    """erf(omega r)/r goes to nothing and to 1/r, erfc to 1/r and to nothing."""
    full, theirs = both(cls_of("1010"))
    long, short = (both(cls_of("1010", operator=kind), omega=omega)[0] for kind in ("erf", "erfc"))
    agree((long + short, full))
    agree((full, theirs))
    assert np.abs(long if omega < 1 else short).max() < 1e-3 * np.abs(full).max()


@pytest.mark.parametrize("contractions", [(1, 1, 3, 1), (2, 1, 1, 1), (2, 3, 2, 2)])
@pytest.mark.parametrize("digits", ["0000", "1010", "2110"])
def test_general_contraction(digits, contractions):
    agree(both(cls_of(digits, general=True), primitives=3, contractions=contractions))


@pytest.mark.parametrize("digits", ["0000", "1110", "2111"])
def test_general_contraction_with_range_separation_and_cartesian_functions(digits):
    cls = cls_of(digits, general=True, cartesian=True, operator="erf")
    agree(both(cls, contractions=(2, 1, 1, 2), omega=0.3))


@pytest.mark.parametrize("digits", ["1000", "1110", "2110", pytest.param("2121", marks=pytest.mark.slow)])
@pytest.mark.parametrize("general", [False, True])
def test_both_forms(digits, general, monkeypatch):
    cls = cls_of(digits, general=general)
    contractions = (2, 1, 1, 2) if general else (1, 1, 1, 1)
    for form in FORMS:
        agree(both(cls, contractions=contractions, form=form))


def test_large_classes_are_buffered():
    assert form_of(cls_of("2222")) == "straight"
    assert form_of(cls_of("4444")) == "columns"


# The highest shells stand beside s and p functions, since all else takes long to compile.
@pytest.mark.parametrize(
    "pair, l, other",
    [
        *(("11", l, min(l, 3)) for l in range(5)),
        ("00", 5, 0),
        ("10", 6, 0),
        *(pytest.param("11", l, 3, marks=pytest.mark.slow) for l in (5, 6)),
    ],
)
def test_fitting_shells(pair, l, other):
    agree(both_fitted(cls_of(f"{pair}{l}0")))
    agree(both_two_centre(cls_of(f"{l}0{other}0")))


@pytest.mark.slow
@pytest.mark.parametrize("digits", ["2260", "3360", "4450", "2070"])
def test_fitting_shells_with_large_pairs(digits):
    agree(both_fitted(cls_of(digits)))


@pytest.mark.parametrize("digits", ["0000", "1110", "2121"])
def test_all_functions_on_one_centre(digits):
    agree(both(cls_of(digits), spread=0.0))


@pytest.mark.parametrize("digits", ["0000", "1010", "2110"])
def test_functions_far_apart(digits):
    """The asymptotic Boys function, and pairs whose product is nearly nothing."""
    agree(both(cls_of(digits), spread=12.0))


@pytest.mark.parametrize("digits", ["0000", "1010", "2110"])
@pytest.mark.parametrize("range_of_exponents", [(1e-2, 1e-1), (1e4, 1e6), (1e-2, 1e6)])
@pytest.mark.parametrize("spread", [0.0, 0.7])
def test_exponents_of_any_size(digits, range_of_exponents, spread):
    agree(both(cls_of(digits), exponents=range_of_exponents, spread=spread, primitives=3))


def test_small_primitive_quartets_are_left_out():
    """With a cutoff no integral moves by more than it, times the number of quartets left out."""
    cls = cls_of("1110")
    rng = np.random.default_rng(5)
    moles = [
        random_shells(rng, l, n, 3, 1, False, exponents=(0.1, 60.0), spread=1.5)
        for l, n in zip(cls.shells, (1, 1, 5, 5))
    ]
    bra, ket = pairs(moles[:2]), pairs(moles[2:])
    cutoff = 1e-6
    products = bra.records[0, :, None, BOUND] * ket.records[:, None, :, BOUND].max(axis=0)
    skipped = np.count_nonzero(products < cutoff)
    assert 10 < skipped < products.size - 1
    exact, screened = ours(cls, bra, ket), ours(cls, bra, ket, cutoff=cutoff)
    assert 0 < np.abs(exact - screened).max() <= skipped * cutoff
    agree((exact, libcint(moles[:2], moles[2:], cls)))


def test_padding_gives_zero():
    """A lane without a pair has no coefficients, and its integrals are zero rather than undefined."""
    one = shells(1, np.zeros((1, 3)), np.ones((1, 1)), np.ones((1, 1, 1)), False)
    side = pairs((one, one))
    results = ours(cls_of("1111"), side, side, kets=8)
    assert np.abs(results[..., 0]).max() > 0
    assert not results[..., 1:].any()
