"""The example that solves CCSDT from text: residuals by matrices over all determinants, energies of FCI and PySCF."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from pyscf import gto, scf

from examples import ccsd, ccsdt
from tests.contraction import fock_space
from tests.contraction.fock_space import antisymmetrised
from trnqc.contraction import Plan, einsum_plan, parse
from trnqc.errors import NotConverged

OCCUPIED = VIRTUAL = 3
BLOCKS = ("oooo", "ooov", "oovv", "ovvo", "ovvv", "vvvv")
# Blocks of both spaces: no spin, and 2 alpha and 1 beta electrons in 4 alpha and 2 beta spin orbitals.
SPINS = {"one block": (3, 3), "two spins": ((2, 1), (2, 1))}


def conserving(x: np.ndarray, spins: tuple[np.ndarray, ...]) -> np.ndarray:
    """The elements with as much spin on the first half of the axes as on the second half."""
    total = np.zeros(x.shape)
    for axis, spin in enumerate(spins):
        total += (1 if axis < x.ndim // 2 else -1) * spin.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    return x * (total == 0)


class RandomProblem:
    """Random real integrals and amplitudes of three electrons in six spin orbitals with a diagonal Fock matrix."""

    def __init__(self, seed: int, blocks: tuple, strength: float) -> None:
        rng = np.random.default_rng(seed)
        n = OCCUPIED + VIRTUAL
        parts = [(x,) if isinstance(x, int) else x for x in blocks]
        o, v = (np.repeat(range(len(part)), part) for part in parts)
        spin = np.concatenate([o, v])
        g = antisymmetrised(strength * rng.standard_normal((n,) * 4), (0, 1), (2, 3))
        self.g = conserving(g + g.transpose(2, 3, 0, 1), (spin,) * 4)
        self.energies = np.sort(rng.uniform(0, 1, n)) + np.repeat([0, 1], [OCCUPIED, VIRTUAL])
        mean_field = np.einsum("pkqk->pq", self.g[:, :OCCUPIED, :, :OCCUPIED])
        self.operator = fock_space.hamiltonian(np.diag(self.energies) - mean_field, self.g)
        # The energy of the reference.
        self.energy = self.energies[:OCCUPIED].sum() - np.trace(mean_field[:OCCUPIED, :OCCUPIED]) / 2
        amplitudes = ccsd.unpacked(rng.standard_normal(9 + 9 + 1), OCCUPIED, VIRTUAL, 3)
        self.amplitudes = [conserving(t, (o,) * order + (v,) * order) for order, t in enumerate(amplitudes, 1)]

    def arrays(self) -> dict[str, np.ndarray]:
        spaces = {"o": slice(0, OCCUPIED), "v": slice(OCCUPIED, None)}
        arrays = {x: np.ascontiguousarray(self.g[tuple(spaces[space] for space in x)]) for x in BLOCKS}
        d1 = self.energies[:OCCUPIED, None] - self.energies[OCCUPIED:]
        d2 = d1[:, None, :, None] + d1[None, :, None, :]
        return arrays | {"d1": d1, "d2": d2, "d3": d2[:, :, None, :, :, None] + d1[:, None, None, :]}


@cache
def planned(spins: str) -> Plan:
    occupied, virtual = SPINS[spins]
    program = parse(ccsdt.EQUATIONS).sized(o=occupied, v=virtual)
    return einsum_plan(program, outputs=("r1", "r2", "r3", *ccsdt.OUTPUTS), time_limit=0.5)


@pytest.mark.parametrize("spins", SPINS)
@pytest.mark.parametrize("seed", [1, 2])
def test_residuals_are_those_of_the_transformed_hamiltonian(spins, seed):
    """Every element of exp(-T) H exp(T) on the reference, by matrices over all determinants."""
    problem = RandomProblem(seed, SPINS[spins], strength=1.0)
    arrays = problem.arrays()
    energy, expected = fock_space.residuals(problem.operator, problem.amplitudes)
    values = planned(spins).run(arrays | dict(zip(("t1", "t2", "t3"), problem.amplitudes)))
    assert values["energy"] == pytest.approx(energy - problem.energy, abs=1e-11)
    for order, (t, residual) in enumerate(zip(problem.amplitudes, expected), 1):
        assert np.abs(residual).max() > 0.1
        # The text leaves the diagonal of the Fock matrix to the denominators. Elements are of order 10.
        complete = values[f"r{order}"] - arrays[f"d{order}"] * t
        np.testing.assert_allclose(complete, residual, rtol=0, atol=1e-11)


@pytest.mark.parametrize("spins", SPINS)
def test_three_electrons_have_the_energy_of_full_configuration_interaction(spins):
    problem = RandomProblem(3, SPINS[spins], strength=0.1)
    bound = planned(spins).bind(problem.arrays())
    start = {f"t{order}": np.zeros_like(t) for order, t in enumerate(problem.amplitudes, 1)}
    energy, amplitudes = ccsd.solve(bound.run, start, 1e-13, 1e-11, 100, lambda line: None)
    assert abs(amplitudes["t3"]).max() > 1e-6
    full = fock_space.lowest(problem.operator, OCCUPIED + VIRTUAL, OCCUPIED)
    assert energy == pytest.approx(full - problem.energy, abs=1e-11)


def test_amplitudes_and_their_unique_elements_have_the_same_content():
    amplitudes = RandomProblem(4, SPINS["one block"], strength=1.0).amplitudes
    unique = ccsd.packed(*amplitudes)
    assert unique.size == 9 + 9 + 1
    for t, again in zip(amplitudes, ccsd.unpacked(unique, OCCUPIED, VIRTUAL, 3), strict=True):
        np.testing.assert_array_equal(again, t)


@pytest.mark.parametrize("basis", ["sto-3g", pytest.param("6-31g", marks=pytest.mark.slow)])
def test_the_script_prints_the_energy_of_pyscf(basis, capsys):
    assert ccsdt.main(["water", "--basis", basis]) == 0
    printed = capsys.readouterr().out
    assert abs(float(re.search(r"difference (\S+)", printed)[1])) < 1e-9


def test_a_memory_limit_is_kept():
    mf = scf.RHF(gto.M(atom="Li 0 0 0; H 0 0 1.6", basis="sto-3g", verbose=0)).run(conv_tol=1e-12)
    energy, plan, _ = ccsdt.iterate(mf, progress=lambda line: None)
    limit = 3 * plan.peak_bytes // 4
    limited, plan, _ = ccsdt.iterate(mf, memory_limit=limit, progress=lambda line: None)
    assert plan.peak_bytes <= limit
    assert limited == pytest.approx(energy, abs=1e-11)


def test_without_triples_the_energy_is_that_of_singles_and_doubles():
    mf = scf.RHF(gto.M(atom="H 0 0 0; F 0 0 0.9", basis="sto-3g", verbose=0)).run(conv_tol=1e-12)
    energy, _, arrays = ccsdt.iterate(mf, progress=lambda line: None)
    assert abs(arrays["t3"]).max() < 1e-14  # Sums that are zero by antisymmetry are rounded.
    assert energy == pytest.approx(ccsd.iterate(mf, progress=lambda line: None)[0], abs=1e-9)


def test_iterations_that_do_not_end_are_an_error():
    mf = scf.RHF(gto.M(atom="H 0 0 0; F 0 0 0.9", basis="sto-3g", verbose=0)).run()
    with pytest.raises(NotConverged, match="did not stand after 2 iterations"):
        ccsdt.iterate(mf, most=2, progress=lambda line: None)
