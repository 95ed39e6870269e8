"""Natural orbitals and frozen natural orbitals against PySCF."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import df
from pyscf.mp import dfmp2, dfmp2_native, dfump2, dfump2_native

from tests.mp2.density.references import Parts, converged
from trnqc.errors import InputError
from trnqc.mp2.density.density import correlation_density
from trnqc.mp2.density.natural import frozen_natural_orbitals, natural_orbitals


@pytest.mark.parametrize("name", ["water", "water cation"])
def test_natural_orbitals(name):
    parts = Parts(converged(name, True), 1)
    mf = parts.mf
    cls = dfump2_native.DFUMP2 if len(parts.spins) == 2 else dfmp2_native.DFRMP2
    expected, orbitals = cls(mf, frozen=1, auxbasis="cc-pvdz-ri").make_natorbs()
    overlap = mf.get_ovlp()
    occupations, c = natural_orbitals(correlation_density(*parts.arguments).rdm1(), mf.mo_coeff, overlap)
    assert np.abs(occupations - expected).max() < 1e-12
    assert occupations.sum() == pytest.approx(mf.mol.nelectron, abs=1e-12)
    assert np.abs(c.T @ overlap @ c - np.eye(len(c))).max() < 1e-12
    assert np.abs((c * occupations) @ c.T - (orbitals * expected) @ orbitals.T).max() < 1e-12


@pytest.mark.parametrize("name", ["water", "water cation"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"threshold": 2e-2}, {"thresh": 2e-2}),
        ({"fraction": 0.8}, {"pct_occ": 0.8}),
        ({"nvir_active": 5}, {"nvir_act": 5}),
    ],
)
def test_frozen_natural_orbitals(name, ours, theirs):
    parts = Parts(converged(name, True), 1)
    mf = parts.mf
    mp = (dfump2.DFUMP2 if len(parts.spins) == 2 else dfmp2.DFRMP2)(mf, frozen=1)
    mp.with_df = df.DF(mf.mol, auxbasis="cc-pvdz-ri")
    mp.kernel(with_t2=True)
    expected, orbitals = mp.make_fno(**theirs)
    frozen, c = frozen_natural_orbitals(correlation_density(*parts.arguments), **ours)
    if len(parts.spins) == 1:
        frozen, c, expected, orbitals = [frozen], [c], [expected], [orbitals]
    for one, other, mine, peer in zip(frozen, expected, c, orbitals):
        assert one.tolist() == list(other)
        assert 0 < len(one) < len(mine)
        kept = np.setdiff1d(np.arange(len(mine)), one)
        assert np.abs(mine[:, kept] @ mine[:, kept].T - peer[:, kept] @ peer[:, kept].T).max() < 1e-9


def test_densities_that_do_not_fit_the_orbitals():
    with pytest.raises(InputError, match=r"\[nmo, nmo\] with orbitals \[nao, nmo\].*found \(3, 3\) and \(4, 4\)"):
        natural_orbitals(np.eye(3), np.eye(4))
    with pytest.raises(InputError, match="the overlap of the atomic orbitals is needed"):
        natural_orbitals(np.ones((2, 3, 3)), np.ones((2, 4, 3)))
