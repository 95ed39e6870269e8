"""Equations of p†q and Wick&d, read as programs and solved."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import ao2mo, cc, gto, scf
from pyscf.cc import ccd

from trnqc.contraction import einsum_plan
from trnqc.errors import ExpressionError
from trnqc.expression.imports import pdaggerq, wickd

# Coupled cluster doubles as p†q writes it; I. Shavitt and R. J. Bartlett, Many-Body Methods (2009), section 9.2.
ENERGY = [["+0.250", "<i,j||b,a>", "t2(b,a,i,j)"]]
DOUBLES = [
    ["+1.000", "<e,f||m,n>"],
    ["+1.000", "P(e,f)", "f(e,a)", "t2(a,f,m,n)"],
    ["-1.000", "P(m,n)", "f(i,n)", "t2(e,f,m,i)"],
    ["+0.500", "<i,j||m,n>", "t2(e,f,i,j)"],
    ["+0.500", "<e,f||b,a>", "t2(b,a,m,n)"],
    ["+1.000", "P(m,n)", "P(e,f)", "<i,e||a,n>", "t2(a,f,m,i)"],
    ["-0.500", "P(m,n)", "<j,i||b,a>", "t2(b,a,n,i)", "t2(e,f,m,j)"],
    ["+0.250", "<i,j||b,a>", "t2(b,a,m,n)", "t2(e,f,i,j)"],
    ["-0.500", "P(e,f)", "<i,j||a,b>", "t2(a,e,i,j)", "t2(b,f,m,n)"],
    ["+1.000", "P(m,n)", "<j,i||a,b>", "t2(a,e,n,i)", "t2(b,f,m,j)"],
]


@pytest.fixture(scope="module")
def orbitals():
    """Spin orbitals: energies, <pq||rs>, number of occupied ones; and the mean field."""
    mf = scf.RHF(gto.M(atom="H; F 1 0.92", basis="sto-3g", verbose=0)).run(conv_tol=1e-12)
    spatial = ao2mo.restore(1, ao2mo.kernel(mf.mol, mf.mo_coeff), mf.mo_coeff.shape[1])
    order = np.repeat(np.arange(len(spatial)), 2)
    spin = np.arange(2 * len(spatial)) % 2
    same = spin[:, None] == spin
    chemists = spatial[np.ix_(order, order, order, order)] * same[:, :, None, None] * same
    physicists = chemists.transpose(0, 2, 1, 3)
    return mf.mo_energy[order], physicists - physicists.transpose(0, 1, 3, 2), mf.mol.nelectron, mf


def blocks(name, tensor, spaces, wanted):
    """The blocks of a tensor that a program reads."""
    arrays = {}
    for full in wanted:
        if full.startswith(f"{name}_"):
            arrays[full] = tensor[np.ix_(*(spaces[letter] for letter in full.removeprefix(f"{name}_")))]
    return arrays


def iterate(step, shape, gaps, start=None):
    amplitudes = np.zeros(shape) if start is None else start
    for _ in range(60):
        energy, residual = step(amplitudes)
        if abs(residual).max() < 1e-10:
            return energy
        amplitudes = amplitudes + residual / gaps
    raise AssertionError("not converged")


def test_strings_of_pdaggerq_solve_coupled_cluster_doubles(orbitals):
    energies, g, nocc, mf = orbitals
    plan = einsum_plan(
        pdaggerq({"energy": ENERGY, "r2[e,f,m,n]": DOUBLES}).sized(o=nocc, v=len(g) - nocc), outputs=("energy", "r2")
    )
    spaces = {"o": np.arange(nocc), "v": np.arange(nocc, len(g))}
    names = [name for name, _ in plan.inputs]
    arrays = blocks("g", g, spaces, names) | blocks("f", np.diag(energies), spaces, names)
    o, v = energies[:nocc], energies[nocc:]
    gaps = o + o[:, None] - v[:, None, None] - v[:, None, None, None]

    def step(t2):
        out = plan.run(arrays | {"t2": t2})
        return float(out["energy"]), out["r2"]

    reference = ccd.CCD(mf).run(conv_tol=1e-11, conv_tol_normt=1e-9)
    assert abs(iterate(step, gaps.shape, gaps) - reference.e_corr) < 1e-9


def test_equations_of_wickd_solve_coupled_cluster_doubles(orbitals):
    energies, g, nocc, mf = orbitals
    equations = [
        "R^{}_{} += 1/4 T^{o0,o1}_{v0,v1} V^{v0,v1}_{o0,o1}",
        "D^{o0,o1}_{v0,v1} += 1/4 V^{o0,o1}_{v0,v1}",
        "D^{o0,o1}_{v0,v1} += 1/2 F^{o0}_{o2} T^{o1,o2}_{v0,v1}",
        "D^{o0,o1}_{v0,v1} += -1/2 F^{v2}_{v0} T^{o0,o1}_{v1,v2}",
        "D^{o0,o1}_{v0,v1} += 1/8 T^{o0,o1}_{v2,v3} V^{v2,v3}_{v0,v1}",
        "D^{o0,o1}_{v0,v1} += 1/8 T^{o2,o3}_{v0,v1} V^{o0,o1}_{o2,o3}",
        "D^{o0,o2}_{v0,v1} += - T^{o0,o1}_{v0,v2} V^{o2,v2}_{o1,v1}",
        "D^{o0,o1}_{v0,v1} += 1/16 T^{o2,o3}_{v0,v1} T^{o0,o1}_{v2,v3} V^{v2,v3}_{o2,o3}",
        "D^{o0,o2}_{v0,v1} += 1/4 T^{o0,o3}_{v0,v1} T^{o2,o1}_{v2,v3} V^{v2,v3}_{o1,o3}",
        "D^{o0,o1}_{v0,v1} += -1/4 T^{o2,o3}_{v0,v2} T^{o0,o1}_{v1,v3} V^{v2,v3}_{o2,o3}",
        "D^{o0,o1}_{v0,v1} += 1/2 T^{o0,o2}_{v0,v2} T^{o1,o3}_{v1,v3} V^{v2,v3}_{o2,o3}",
    ]
    plan = einsum_plan(wickd(equations).sized(o=nocc, v=len(g) - nocc), outputs=("R", "D_oovv"))
    spaces = {"o": np.arange(nocc), "v": np.arange(nocc, len(g))}
    names = [name for name, _ in plan.inputs]
    # Upper indices of V are annihilators, those of T creators of holes: V^{pq}_{rs} = <rs||pq>, real integrals.
    arrays = blocks("V", g, spaces, names) | blocks("F", np.diag(energies), spaces, names)
    o, v = energies[:nocc], energies[nocc:]
    gaps = o[:, None, None, None] + o[:, None, None] - v[:, None] - v

    def step(t):
        out = plan.run(arrays | {"T_oovv": t})
        return float(out["R"]), out["D_oovv"]

    reference = ccd.CCD(mf).run(conv_tol=1e-11, conv_tol_normt=1e-9)
    assert abs(iterate(step, gaps.shape, gaps) - reference.e_corr) < 1e-9


def test_equations_that_wickd_derives_solve_coupled_cluster(orbitals):
    w = pytest.importorskip("wickd")
    w.reset_space()
    w.add_space("o", "fermion", "occupied", list("ijklmn"))
    w.add_space("v", "fermion", "unoccupied", list("abcdef"))
    hamiltonian = w.utils.gen_op("F", 1, "ov", "ov") + w.utils.gen_op("V", 2, "ov", "ov")
    transformed = w.bch_series(hamiltonian, w.op("T", ["v+ o", "v+ v+ o o"]), 4)
    derived = w.WickTheorem().contract(w.rational(1), transformed, 0, 4).to_manybody_equation("R")
    program = wickd(equation for block in ("|", "o|v", "oo|vv") for equation in derived[block])
    energies, g, nocc, mf = orbitals
    plan = einsum_plan(program.sized(o=nocc, v=len(g) - nocc), outputs=("R", "R_ov", "R_oovv"))
    spaces = {"o": np.arange(nocc), "v": np.arange(nocc, len(g))}
    names = [name for name, _ in plan.inputs]
    arrays = blocks("V", g, spaces, names) | blocks("F", np.diag(energies), spaces, names)
    o, v = energies[:nocc], energies[nocc:]
    gaps = o[:, None] - v, o[:, None, None, None] + o[:, None, None] - v[:, None] - v
    t1, t2, energy = np.zeros(gaps[0].shape), np.zeros(gaps[1].shape), 0.0
    for _ in range(60):
        out = plan.run(arrays | {"T_ov": t1, "T_oovv": t2})
        t1, t2, energy = t1 + out["R_ov"] / gaps[0], t2 + out["R_oovv"] / gaps[1], float(out["R"])
    assert abs(energy - cc.CCSD(mf).run(conv_tol=1e-11, conv_tol_normt=1e-9).e_corr) < 1e-9


WRONG = [
    ([["t2(a,b,i,j)"]], "begins with a number"),
    ([["+0.3141592653", "t2(a,b,i,j)"]], "small denominator"),
    ([["+1.0", "PP2(i,a;j,b)", "t2(a,b,i,j)"]], "found 'PP2"),
    ([["+1.0", "t2(a,b,i,z)"]], "'z' is the label of no space"),
    ([["+1.0", "t2(a,b,i,j)", "t2(i,b,a,j)"]], "t2 has indices of the spaces"),
    ([], "has no terms"),
]


@pytest.mark.parametrize(("terms", "message"), WRONG)
def test_words_that_are_not_understood_are_named(terms, message):
    with pytest.raises(ExpressionError, match=message):
        pdaggerq({"energy": terms})


def test_an_equation_that_is_none_is_shown():
    with pytest.raises(ExpressionError, match="found R = T"):
        wickd(["R = T"])


def test_groups_of_labels_are_antisymmetrised():
    text = "space n = 4\nindex a b c d : n\ntensor A[n,n,n,n]\n"
    x = np.random.default_rng(0).standard_normal((4, 4, 4, 4))
    one = {
        "P(a/bc)": ["abcd", "-bacd", "-cbad"],
        "P(ab/c)": ["abcd", "-cbad", "-acbd"],
        "P(a/b,c)": ["abcd", "-bacd", "-cbad"],
        "P(a/b/c)": ["abcd", "-bacd", "-cbad", "-acbd", "bcad", "cabd"],
        "P(a/b) * P(c/d)": ["abcd", "-bacd", "-abdc", "badc"],
    }
    for operator, terms in one.items():
        plan = einsum_plan(f"{text}R[a,b,c,d] = {operator} * A[a,b,c,d]")
        expected = sum((-1) ** term.startswith("-") * np.einsum(f"{term.strip('-')}->abcd", x) for term in terms)
        np.testing.assert_allclose(plan.run(A=x), expected, atol=1e-14, err_msg=operator)
    with pytest.raises(ExpressionError, match="groups of different labels"):
        einsum_plan(f"{text}R[a,b,c,d] = P(a,b,c) * A[a,b,c,d]")
    with pytest.raises(ExpressionError, match="z is summed"):
        einsum_plan(f"{text}R[a,b,c,d] = P(a/bz) * A[a,b,c,d]")


@pytest.mark.parametrize("number", ["1e40000", "+1e-40000", "0.0"])
def test_factors_out_of_range_are_refused(number):
    with pytest.raises(ExpressionError, match="between 1e-9 and 1e9"):
        pdaggerq({"energy": [[number, "f(i,a)", "t1(a,i)"]]})


def test_deltas_of_pdaggerq_are_those_of_programs():
    """The density of occupied orbitals, <0| (1 + L) e(-T) i*j e(T) |0>, with L2 and T2."""
    terms = [["+1.000", "d(m,n)"], ["-0.500", "l2(m,i,a,b)", "t2(a,b,n,i)"]]
    program = pdaggerq({"D[m,n]": terms})
    assert str(program) == "D[m,n] = delta(m,n) - 1/2 * l2[m,i,a,b] * t2[a,b,n,i]"
    rng = np.random.default_rng(0)
    arrays = {"l2": rng.standard_normal((2, 2, 3, 3)), "t2": rng.standard_normal((3, 3, 2, 2))}
    density = einsum_plan(program, arrays).run(arrays, check_finite=False)
    expected = np.eye(2) - np.einsum("miab,abni->mn", arrays["l2"], arrays["t2"]) / 2
    np.testing.assert_allclose(density, expected, atol=1e-14)
    with pytest.raises(ExpressionError, match=r"labels of a delta run over one space; found 'd\(i,a\)'"):
        pdaggerq({"D[i,a]": [["+1.000", "d(i,a)"]]})
