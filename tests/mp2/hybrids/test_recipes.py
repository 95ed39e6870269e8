"""Recipes, their dispersion, and functionals as power series."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from pyscf import dft, gto

from trnqc.errors import InputError, UnsupportedError
from trnqc.mp2.hybrids.dispersion import dispersion_energy
from trnqc.mp2.hybrids.expansion import WB97M2, SeriesFunctional, semilocal_energy
from trnqc.mp2.hybrids.kohn_sham import energy_with
from trnqc.mp2.hybrids.recipes import RECIPES, HybridRecipe, recipe

# The coefficients of wB97M-V, which libxc has too: J. Chem. Phys. 144, 214110 (2016), table V.
WB97M_V = SeriesFunctional(
    exchange={(0, 0): 0.85, (0, 1): 1.007, (1, 0): 0.259},
    same_spin={(0, 0): 0.443, (0, 4): -1.437, (1, 0): -4.535, (2, 0): -3.39, (4, 3): 4.278},
    opposite_spin={(0, 0): 1.0, (1, 0): 1.358, (2, 0): 2.924, (2, 1): -8.812, (6, 0): -1.39, (6, 1): 9.142},
    omega=0.3,
    short_range=0.15,
    nonlocal_correlation=("wB97M-V", 1.0),
)


@pytest.mark.parametrize("name", ["B2PLYP", "b2-plyp", "PBEQIDH", "ωB97M(2)", "wb97m2", "dsd_pbep86", "WB2PLYP"])
def test_names_are_found_in_any_spelling(name):
    assert recipe(name) in RECIPES


def test_an_unknown_functional_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"B2PLYP, B2GP-PLYP.*wB97M"):
        recipe("B3LYP")


@pytest.mark.parametrize("parts", [("PBE0",), ("PBE0", 1), (1, 2, 3), ("PBE", 3, 0.1, 0.2), ("PBE", "a", "b"), 7, None])
def test_parts_that_are_no_recipe_are_refused(parts):
    with pytest.raises(InputError, match="a double hybrid was expected"):
        recipe(parts)


def test_explicit_parts_are_a_recipe():
    assert recipe(("PBE", "PBE0", 0.1, 0.2)) == HybridRecipe("user-defined", "PBE", 0.1, 0.2, "", "PBE0")
    assert recipe(RECIPES[0]) is RECIPES[0]


def test_exchange_of_a_global_hybrid_adds_up_to_one():
    for known in RECIPES:
        functional = known.final or known.scf
        if isinstance(functional, str):
            hybrid, terms = dft.libxc.parse_xc(functional)
            semilocal = sum(factor for number, factor in terms if number in (1, 101, 106, 529))
            assert hybrid[0] + semilocal == pytest.approx(1, abs=1e-6), known.name
    assert WB97M2.short_range + WB97M2.exchange[0, 0] == pytest.approx(1, abs=1e-12)
    assert WB97M2.nonlocal_correlation[1] == pytest.approx(1 - recipe("wB97M(2)").c_os, abs=1e-12)


def coarse(atom, spin, xc):
    mf = dft.KS(gto.M(atom=atom, basis="6-31g", spin=spin, verbose=0), xc=xc)
    mf.grids.atom_grid = mf.nlcgrids.atom_grid = (15, 38)
    return mf


@pytest.mark.parametrize(("atom", "spin"), [("F 0 0 0; H 0 0 0.92", 0), ("O 0 0 0; H 0 0 0.97", 1), ("H 0 0 0", 1)])
def test_the_series_of_wb97m_v_gives_libxcs_energy(atom, spin):
    mf = coarse(atom, spin, "wB97M-V")
    D = np.asarray(mf.get_init_guess())
    spins = D if spin else np.array([D, D]) / 2
    mf.grids.build()
    theirs = mf._numint.nr_uks(mf.mol, mf.grids, "wB97M-V", spins)[1]
    assert semilocal_energy(WB97M_V, mf.mol, mf.grids, spins) == pytest.approx(theirs, abs=1e-11)


@pytest.mark.parametrize(("atom", "spin"), [("H 0 0 0; H 0 0 0.74", 0), ("H 0 0 0; H 0 0 0.74", 2)])
def test_the_energy_of_an_scfs_density(atom, spin):
    mf = coarse(atom, spin, "wB97M-V").run(max_cycle=3, conv_tol=1e-4)
    assert energy_with(mf, None) == mf.e_tot
    of_density = pytest.approx(mf.energy_tot(), abs=1e-11)
    assert energy_with(mf, "wB97M-V") == of_density
    assert energy_with(mf, WB97M_V) == of_density
    assert abs(energy_with(mf, WB97M2) - mf.e_tot) > 1e-4


@pytest.fixture(scope="module")
def water_dimer():
    return gto.M(atom="O 0 0 0; H 0.96 0 0; H -0.24 0.93 0; O 0 0 2.9; H 0.3 0.7 3.4; H 0.3 -0.7 3.4", basis="sto-3g")


@pytest.mark.parametrize(
    ("functional", "theirs"), [("B2PLYP", "b2plyp"), ("B2GP-PLYP", "b2gpplyp"), ("DSD-PBEP86", "dsdpbep86")]
)
def test_damping_is_that_of_the_package(water_dimer, functional, theirs):
    pytest.importorskip("pyscf.dispersion")
    ours = dispersion_energy(water_dimer, recipe(functional), "d3bj")
    assert ours == pytest.approx(dispersion_energy(water_dimer, recipe(functional), f"d3bj:{theirs}"), abs=1e-12)
    assert ours < -1e-4


def test_dispersion_is_added_where_it_is_part_of_the_functional(water_dimer):
    pytest.importorskip("pyscf.dispersion")
    assert dispersion_energy(water_dimer, recipe("DSD-BLYP")) < -1e-4
    assert dispersion_energy(water_dimer, recipe("DSD-BLYP"), False) == 0
    assert dispersion_energy(water_dimer, recipe("B2PLYP")) == 0
    assert dispersion_energy(water_dimer, recipe("B2PLYP"), "d4:b2plyp") < -1e-4


@pytest.mark.parametrize(
    ("functional", "disp", "message"),
    [
        ("XYG3", "d3bj", "no parameters"),
        ("B2PLYP", "d3", "disp must be"),
        ("B2PLYP", 1.5, "disp must be"),
        ("B2PLYP", "d3bj:nosuch", "no d3bj parameters for 'nosuch'"),
        ("B2PLYP", "d9:b2plyp", "no d9 parameters"),
        ("B2PLYP", "d4:nosuch", "no d4 parameters for 'nosuch'"),
    ],
)
def test_dispersion_without_parameters_is_refused(water_dimer, functional, disp, message):
    pytest.importorskip("pyscf.dispersion")
    with pytest.raises(InputError, match=message):
        dispersion_energy(water_dimer, recipe(functional), disp)


def test_a_missing_package_is_named(water_dimer, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyscf.dispersion.dftd3", None)
    with pytest.raises(UnsupportedError, match=r"pyscf-dispersion.*disp=False"):
        dispersion_energy(water_dimer, recipe("DSD-BLYP"))
