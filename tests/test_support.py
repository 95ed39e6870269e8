"""The table of docs/support.md is true: each of its cells is run, also those that are empty."""

from pathlib import Path

import numpy as np
import pytest
from pyscf import dft, gto, scf

import trnqc
from trnqc.errors import TrnqcError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "support.md"
WATER = "O 0 0 0.1; H 0 0.76 -0.47; H 0 -0.76 -0.47"
KINDS = {"R": ("RHF", "RKS", 0), "U": ("UHF", "UKS", 1), "RO": ("ROHF", "ROKS", 1)}


def table() -> dict[str, dict[str, set[str]]]:
    """References by method and heading."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").partition("##")[0].splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {row[0]: {title: set(cell.split()) for title, cell in zip(head[1:], row[1:], strict=True)} for row in rows}


TABLE = table()
ATTRIBUTES = {
    "gradient": "nuc_grad_method",
    "Hessian": "Hessian",
    "density, dipole": "make_rdm1",
    "excited states": "TDA",
}
CELLS = [(method, title, kind) for method, row in TABLE.items() for title in row for kind in KINDS]


def mean_field(kohn_sham, kind, fitted):
    hf, ks, spin = KINDS[kind]
    mol = gto.M(atom=WATER, basis="sto-3g", charge=spin, spin=spin, verbose=0)
    mf = getattr(dft, ks)(mol, xc="pbe0") if kohn_sham else getattr(scf, hf)(mol)
    mf = mf.density_fit() if fitted else mf
    return trnqc.accelerate(mf, kernels="wait").run(conv_tol=1e-10)


def method_of(name, kind, fitted):
    mf = mean_field(name == "DFT", kind, fitted)
    if name == "double hybrids":
        # Made for a molecule, it chooses between RKS and UKS.
        return trnqc.DH(mf if kind == "RO" else mf.mol, "B2PLYP", density_fit=fitted)
    if name in ("Hartree-Fock", "DFT"):
        return mf
    return {"DF-MP2": trnqc.DFMP2, "SOS-MP2": trnqc.SOSMP2, "RPA on HF or DFT": trnqc.RPA}[name](mf)


def asked(method, title):
    """What stands in a cell, as a number or an array."""
    if title == "gradient":
        return method.nuc_grad_method().kernel()
    if title == "Hessian":
        return method.Hessian().kernel()
    if title == "density, dipole":
        return method.make_rdm1()
    if title == "excited states":
        return method.TDA().run(nstates=2).e
    return method.e_tot


@pytest.mark.parametrize(("name", "title", "kind"), CELLS)
def test_a_cell_says_what_the_method_does(name, title, kind):
    fitted = title == "energy, fitted"
    if kind in TABLE[name][title]:
        method = method_of(name, kind, fitted)
        if name not in ("Hartree-Fock", "DFT"):
            method.kernel()
        assert np.isfinite(asked(method, title)).all()
    elif name in ("Hartree-Fock", "DFT"):
        # PySCF's refusals of ROHF: a Hessian is not implemented, and the class of TDA is None.
        with pytest.raises((RuntimeError, TypeError), match=r"Hessian invalid or not implemented|'NoneType' object"):
            asked(method_of(name, kind, fitted), title)
    elif kind == "RO" and "RO" not in TABLE[name]["energy, direct"]:
        with pytest.raises(TrnqcError):
            method_of(name, kind, fitted).kernel()
    else:
        assert not hasattr(method_of(name, kind, fitted), ATTRIBUTES[title])
