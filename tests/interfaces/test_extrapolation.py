"""Two-point extrapolation against numbers worked out by hand, and energies that have exactly the assumed errors."""

from __future__ import annotations

import math

import pytest

import trnqc
from trnqc.errors import InputError
from trnqc.interfaces.energy import Energy
from trnqc.interfaces.extrapolation import cardinal_numbers


def test_numbers_worked_out_by_hand():
    """8 * -0.2018 = -1.6144, 27 * -0.2622 = -7.0794, their difference divided by 19 is -0.287631579."""
    limit = trnqc.extrapolate(Energy(-76.0268, -0.2018), Energy(-76.0571, -0.2622), ("cc-pVDZ", "cc-pVTZ"))
    assert limit.e_corr == pytest.approx(-5.465 / 19, abs=1e-12)
    # 3 exp(-12.7279) = 8.9028e-6 and 4 exp(-15.5885) = 6.7938e-7: -76.0571 - 0.0303 * 0.67938 / (8.9028 - 0.67938)
    assert limit.e_hf == pytest.approx(-76.0571 - 0.0303 * 0.082615, abs=1e-6)
    assert limit.e_tot == limit.e_hf + limit.e_corr


@pytest.mark.parametrize(
    ("hf", "error"),
    [("karton-martin", lambda x: (x + 1) * math.exp(-9 * x**0.5)), ("halkier", lambda x: math.exp(-1.63 * x))],
)
@pytest.mark.parametrize("x", [2, 3, 4, 5])
def test_energies_with_the_assumed_errors_give_their_limit(hf, error, x):
    def energy(n):
        return Energy(-76.0674 + 2.5 * error(n), -0.3 + 0.7 / n**3)

    limit = trnqc.extrapolate(energy(x), energy(x + 1), (x, x + 1), hf)
    assert (limit.e_hf, limit.e_corr) == pytest.approx((-76.0674, -0.3), abs=1e-12)
    assert (limit.cardinals, limit.hf) == ((x, x + 1), hf)


def test_hartree_fock_of_the_larger_basis_set():
    limit = trnqc.extrapolate(Energy(-1.0, -0.1), Energy(-1.1, -0.2), (3, 4), "largest")
    assert limit.e_hf == -1.1


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (("cc-pvdz", "cc-pvtz"), (2, 3)),
        (("aug-cc-pVTZ", "AUG-CC-PVQZ"), (3, 4)),
        (("ccpvqz", "cc-pv5z"), (4, 5)),
        (("cc-pwcv5z", "cc-pwcv6z"), (5, 6)),
        (("cc-pv(t+d)z", "cc-pv(q+d)z"), (3, 4)),
        (("cc-pvtz-dk", "cc-pvqz-dk"), (3, 4)),
        ((3, 4), (3, 4)),
    ],
)
def test_cardinal_numbers(names, numbers):
    assert cardinal_numbers(names) == numbers


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("cc-pvdz", "cc-pvqz"), "consecutive.*'cc-pvdz' has 2 and 'cc-pvqz' has 4"),
        (("cc-pvtz", "cc-pvdz"), "the smaller one first"),
        (("cc-pvdz", "aug-cc-pvtz"), "one family"),
        (("cc-pv(d+d)z", "cc-pvtz"), "one family"),
        (("def2-svp", "def2-tzvp"), "correlation-consistent.*'def2-svp'"),
        ((1, 2), "at least 2"),
        (("cc-pvdz",), "two basis sets"),
        ("cc-pvdz", "two basis sets"),
    ],
)
def test_basis_sets_that_cannot_be_extrapolated(names, words):
    with pytest.raises(InputError, match=words):
        cardinal_numbers(names)


def test_wrong_energies_and_formula():
    with pytest.raises(InputError, match=r"str has no e_hf and no e_corr: call its kernel\(\) first"):
        trnqc.extrapolate("energy", Energy(0, 0), (2, 3))
    with pytest.raises(InputError, match="karton-martin, halkier, largest, got 'feller'"):
        trnqc.extrapolate(Energy(0, 0), Energy(0, 0), (2, 3), "feller")
