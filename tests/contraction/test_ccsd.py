"""The example that solves coupled cluster from text: PySCF's energy, and the work of the factorised equations."""

from __future__ import annotations

import importlib.util
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from pyscf import ao2mo, cc, gto, scf

from trnqc.contraction import einsum_plan, expanded, parse
from trnqc.contraction.planning.program import plan_program
from trnqc.errors import MemoryLimit, SlowPlanWarning

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


@pytest.mark.parametrize("basis", ["sto-3g", pytest.param("cc-pvdz", marks=pytest.mark.slow)])
def test_the_energy_is_that_of_pyscf(ccsd, basis):
    mf = water(basis)
    energy, *_ = ccsd.iterate(mf, progress=lambda line: None)
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


@pytest.mark.slow
def test_the_intermediates_are_found(ccsd):
    """From 85 products for the doubles, without any intermediate, to less work than the published ones need."""
    program = parse(ccsd.EQUATIONS).sized(o=10, v=38)
    outputs = ("n1", "n2", "r1", "r2", "energy")
    plain = expanded(program, outputs)
    assert [len(statement.terms) for statement in plain.statements] == [12, 85, 1, 1, 2]
    plan = plan_program(plain, ("n1", "n2", "energy"))
    leading = dict(plan.symbolic_multiply_adds.terms)
    assert leading[(("o", 2), ("v", 4))] == 1 and leading[(("o", 3), ("v", 3))] <= 3
    written = plan_program(program, ("n1", "n2", "energy"))
    assert plan.multiply_adds < 0.76 * written.multiply_adds
    rng = np.random.default_rng(3)
    arrays = {}
    for tensor in program.tensors:
        x = rng.standard_normal(tuple({"o": 10, "v": 38}[space.name] for space in tensor.spaces))
        for symmetry in tensor.symmetries:
            x = x + symmetry.sign * x.swapaxes(*symmetry.axes)
        arrays[tensor.name] = x
    result, expected = plan.run(arrays), written.run(arrays)
    for name in ("n1", "n2"):
        error = np.abs(result[name] * arrays["d" + name[1]] - expected[name] * arrays["d" + name[1]]).max()
        assert error < 1e-10 * np.abs(expected[name] * arrays["d" + name[1]]).max()


def test_the_script_runs(ccsd, capsys):
    assert ccsd.main(["water", "--basis", "sto-3g"]) == 0
    printed = capsys.readouterr().out
    assert "E(CCSD) correlation" in printed and "as many" in printed


def test_an_iteration_for_closed_shells_is_that_of_pyscf():
    """With other amplitudes than those of the solution, so that every term counts; memory limited or not."""
    mf = scf.RHF(gto.M(atom="N 0 0 0; H 0 0.9 0.4; H 0.8 -0.5 0.4; H -0.8 -0.4 0.4", basis="6-31g", verbose=0))
    theirs = cc.CCSD(mf.run(conv_tol=1e-13, conv_tol_grad=1e-9))
    eris = theirs.ao2mo()
    n, v = int(theirs.nocc), int(theirs.nmo - theirs.nocc)
    rng = np.random.default_rng(2)
    t1, t2 = 0.1 * rng.standard_normal((n, v)), 0.1 * rng.standard_normal((n, n, v, v))
    t2 = t2 + t2.transpose(1, 0, 3, 2)
    d1 = eris.mo_energy[:n, None] - eris.mo_energy[n:]
    arrays = {name: np.asarray(getattr(eris, name)) for name in ("oooo", "ovoo", "ovov", "oovv", "ovvo")}
    arrays |= {"ovvv": eris.get_ovvv(), "vvvv": ao2mo.restore(1, np.asarray(eris.vvvv), v), "t1": t1, "t2": t2}
    arrays |= {"d1": d1, "d2": d1[:, None, :, None] + d1[None, :, None, :]}
    program = parse((EXAMPLE.parent / "rccsd.txt").read_text(encoding="utf-8")).sized(o=n, v=v)
    expected = *theirs.update_amps(t1, t2, eris), theirs.energy(t1, t2, eris)
    for limit in (None, 200_000):
        plan = einsum_plan(program, outputs=("n1", "n2", "energy"), memory_limit=limit)
        # Within the limit there is room for the loops over pairs.
        assert limit is None or (plan.peak_bytes <= limit and any(part.loops for part in plan.parts))
        result = plan.run(arrays)
        for name, value in zip(("n1", "n2", "energy"), expected):
            # PySCF keeps the off-diagonal elements of the Fock matrix, of 1e-10 here.
            np.testing.assert_allclose(result[name], value, rtol=0, atol=1e-8)


@pytest.mark.parametrize("limit", [30_000, 60_000, 80_000, 100_000, 131_000])
def test_a_limit_counts_results_that_are_held(limit):
    """Steps without temporaries of their own have to fit beside the results that later statements read."""
    program = parse((EXAMPLE.parent / "rccsd.txt").read_text(encoding="utf-8")).sized(o=5, v=10)
    options = {"outputs": ("n1", "n2", "energy"), "max_slowdown": None}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SlowPlanWarning)
            plan = einsum_plan(program, **options, memory_limit=limit)
    except MemoryLimit as error:
        needed = int(re.search(r"need (\d+) bytes", str(error))[1])
        assert needed > limit
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SlowPlanWarning)
            assert einsum_plan(program, **options, memory_limit=needed).peak_bytes <= needed
    else:
        assert plan.peak_bytes <= limit
