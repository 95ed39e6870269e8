"""The estimate of PySCF's time for an SCF counts all functions, points and cycles, and leaves the SCF as it is."""

from __future__ import annotations

from typing import Any

import pytest
from pyscf import dft, gto, scf

import trnqc
from trnqc.pyscf import scf_time

WATER = gto.M(atom="O 0 0 0; H 0 0.757 0.587; H 0 -0.757 0.587", basis="6-31g", verbose=0)
RADICAL = gto.M(atom="O 0 0 0; H 0 0 0.97", basis="6-31g", spin=1, verbose=0)


def made(kind: str) -> Any:
    return {
        "fitted": lambda: scf.RHF(WATER).density_fit(),
        "pure": lambda: dft.RKS(WATER, xc="pbe").density_fit(),
        "separated": lambda: dft.RKS(WATER, xc="wb97x").density_fit(),
        "memory": lambda: scf.RHF(WATER),
        "open": lambda: dft.UKS(RADICAL, xc="b3lyp").density_fit(),
    }[kind]()


PARTS = {
    "fitted": ["fitted integrals", "J and K"],
    "pure": ["fitted integrals", "J and K", "exchange and correlation"],
    "separated": ["fitted integrals", "J and K", "exchange and correlation"],
    "memory": ["integrals", "J and K"],
    "open": ["fitted integrals", "J and K", "exchange and correlation"],
}


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("kind", PARTS)
def test_every_cycle_counts(monkeypatch, kind, accelerated):
    """One second a sample: that of the grid is the whole grid, so that its pass counts once for each potential."""
    mf = made(kind)
    mf = (trnqc.accelerate(mf, kernels="cached") if accelerated else mf).run()
    monkeypatch.setattr(scf_time, "SHARE", 1.0)
    monkeypatch.setattr(scf_time, "_seconds", lambda work: [work(), 1.0][1])
    monkeypatch.setattr(scf_time, "seconds_of_jk", lambda mol: 100.0)
    energy, kept = mf.e_tot, vars(mf).copy()
    few, many = scf_time.seconds_of_scf(mf, 3), scf_time.seconds_of_scf(mf, 13)
    assert list(few) == list(many) == PARTS[kind]
    assert many["J and K"] == pytest.approx(few["J and K"] * 15 / 5)
    if "exchange and correlation" in few:
        assert few["exchange and correlation"] == pytest.approx(5) and many["exchange and correlation"] == 15
    if kind == "separated":
        assert few["J and K"] == pytest.approx(2 * 5)
    elif kind != "memory":
        assert few["J and K"] == pytest.approx(5)
    assert vars(mf) == kept and mf.e_tot == energy


def test_integrals_that_do_not_fit_are_computed_in_each_cycle(monkeypatch):
    mf = scf.RHF(WATER).run()
    monkeypatch.setattr(scf_time, "seconds_of_jk", lambda mol: 100.0)
    monkeypatch.setattr(scf.hf.SCF, "_is_mem_enough", lambda self: False)
    assert scf_time.seconds_of_scf(mf, 8) == {"J and K": 1000.0}
