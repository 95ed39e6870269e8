"""The example that solves coupled cluster from text: PySCF's energy, and the work of the factorised equations."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from pyscf import cc, gto, scf

from trnqc.contraction import parse
from trnqc.contraction.program import plan_program

EXAMPLE = Path(__file__).parents[2] / "examples" / "ccsd.py"


@pytest.fixture(scope="module")
def ccsd():
    spec = importlib.util.spec_from_file_location("examples_ccsd", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def water(basis):
    return scf.RHF(gto.M(atom=str(EXAMPLE.parent / "molecules" / "water.xyz"), basis=basis, verbose=0)).run(
        conv_tol=1e-12
    )


def test_the_energy_is_that_of_pyscf(ccsd):
    mf = water("cc-pvdz")
    energy, _ = ccsd.iterate(mf, progress=lambda line: None)
    reference = cc.CCSD(mf).run(conv_tol=1e-10, conv_tol_normt=1e-8).e_corr
    assert energy == pytest.approx(reference, abs=1e-8)


def test_the_work_is_that_of_the_factorised_equations(ccsd):
    """Two steps of o^2 v^4 (ladder and its intermediate), the rings once for all exchanges; spins save most of it."""
    program = parse(ccsd.EQUATIONS).sized(o=10, v=38)
    terms = dict(plan_program(program, ("n1", "n2", "energy")).symbolic_multiply_adds.terms)
    leading = {monomial: factor for monomial, factor in terms.items() if sum(power for _, power in monomial) == 6}
    o, v = (("o", 2), ("v", 4)), (("o", 3), ("v", 3))
    assert leading == {o: 2, v: 2, (("o", 4), ("v", 2)): 2}
    alone = plan_program(program, ("n1", "n2", "energy"), share=False)
    assert dict(alone.symbolic_multiply_adds.terms)[v] == 5
    cut = parse(ccsd.EQUATIONS).sized(o=(5, 5), v=(19, 19))
    assert 7 * plan_program(cut, ("n1", "n2", "energy")).multiply_adds < plan_program(program).multiply_adds


def test_the_script_runs(ccsd, capsys):
    assert ccsd.main(["water", "--basis", "sto-3g"]) == 0
    printed = capsys.readouterr().out
    assert "E(CCSD) correlation" in printed and "as many" in printed
