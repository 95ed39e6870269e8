"""Early cycles in single precision: the same converged numbers, and no such cycle at the end."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from pyscf import dft, gto, lib, scf

import trnqc
from trnqc.errors import InputError, StorageError
from trnqc.pyscf.density_fitting import DF
from trnqc.pyscf.early import gradient, precision

WATER = "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692"
# One shell of each kind up to d, so that few kernels are compiled.
FITTING = {
    "O": [[0, [9.0, 0.4], [1.9, 0.7]], [0, [0.5, 1.0]], [1, [1.5, 1.0]], [2, [1.2, 1.0]]],
    "H": [[0, [2.0, 0.4], [0.6, 0.7]], [1, [0.9, 1.0]]],
}


def fitted(method=scf.RHF, **more):
    cation = {"charge": 1, "spin": 1} if method in (scf.UHF, scf.ROHF) else {}
    mol = gto.M(atom=WATER, basis="6-31g", verbose=0, max_memory=4000, **cation)
    return method(mol).density_fit(auxbasis=FITTING).set(conv_tol=1e-10, **more)


@pytest.fixture(autouse=True)
def also_for_small_molecules(monkeypatch):
    monkeypatch.setattr(precision, "SMALLEST", 0)


@pytest.fixture
def precisions(monkeypatch):
    """What each J and K was computed in, in order."""
    seen: list[str] = []
    get_jk = DF.get_jk

    def noted(self, *args, **options):
        seen.append("double" if self.rounded is None else "single")
        return get_jk(self, *args, **options)

    monkeypatch.setattr(DF, "get_jk", noted)
    return seen


@pytest.mark.parametrize("method", [scf.RHF, scf.UHF, scf.ROHF], ids=lambda m: m.__name__)
def test_converged_numbers_are_those_of_double_precision(method, precisions):
    early = trnqc.accelerate(fitted(method)).run()
    assert precisions.count("single") > 2
    # The last cycle, the one before, and the extra one after convergence.
    assert precisions[-3:] == ["double"] * 3
    precisions.clear()
    late = trnqc.accelerate(fitted(method), early_precision="fp64").run()
    assert "single" not in precisions
    assert early.converged and abs(early.cycles - late.cycles) <= 1
    assert early.e_tot == pytest.approx(late.e_tot, abs=1e-10)
    np.testing.assert_allclose(early.mo_energy, late.mo_energy, rtol=0, atol=1e-5)
    assert early.with_df.rounded is None


@pytest.mark.parametrize("method", [scf.RHF, scf.UHF], ids=lambda m: m.__name__)
@pytest.mark.parametrize("max_cycle", [0, 1, 2, 3, 5])
def test_an_scf_that_stops_early_has_the_energy_of_its_orbitals(method, max_cycle, precisions):
    """The last orbitals come from a potential in double precision too."""
    mf = trnqc.accelerate(fitted(method, max_cycle=max_cycle)).run()
    assert not mf.converged
    assert precisions[-2:] == ["double"] * min(2, max_cycle + 1)
    assert mf.reduced_cycles == [n for n, one in enumerate(precisions) if one == "single"]
    assert bool(mf.reduced_cycles) == (max_cycle > 2 or (max_cycle == 2 and method is scf.RHF))
    if max_cycle:
        assert mf.e_tot == pytest.approx(mf.energy_tot(mf.make_rdm1()), abs=1e-11)


def test_what_is_computed_between_the_cycles_is_in_double_precision(precisions):
    """A callback sees which cycle was in which precision, and gets J, K and potentials in double precision."""
    seen = []

    def callback(of_cycle):
        mf, dm = of_cycle["mf"], of_cycle["dm"]
        before = len(precisions)
        potential = mf.get_veff(dm=dm)
        mf.get_k(dm=dm)
        assert precisions[before:] == ["double", "double"]
        del precisions[before:]
        reduced = of_cycle["cycle"] + 1 in mf.reduced_cycles
        seen.append((reduced, np.abs(potential - of_cycle["vhf"]).max() > 1e-12))

    mf = trnqc.accelerate(fitted(callback=callback))
    mf.verbose, mf.stdout = 4, io.StringIO()
    mf.kernel()
    assert all(one == other for one, other in seen) and {one for one, _ in seen} == {True, False}
    assert mf.reduced_cycles == [n for n, one in enumerate(precisions) if one == "single"]
    assert "cycles 0, 1, " in mf.ran_on and "the potential after cycle 1 is in reduced" in mf.stdout.getvalue()
    assert mf.run().reduced_cycles == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda mf: {"dm0": mf.get_init_guess()}, "starts from"),
        (lambda mf: mf.set(init_guess="chkfile") and {}, "starts from"),
        (lambda mf: mf.set(check_convergence=lambda env: True) and {}, "criterion"),
        (lambda mf: mf.set(max_cycle=1) and {}, "before the last"),
        (lambda mf: mf.set(direct_scf=True) and {}, "differences"),
        (lambda mf: setattr(mf, "get_fock", mf.get_fock) or {}, "get_fock"),
    ],
    ids=["density", "checkpoint", "criterion", "one cycle", "increments", "Fock matrix"],
)
def test_when_all_cycles_are_in_double_precision(change, reason):
    mf = fitted()
    assert reason in precision.why_not(mf, **({"dm0": None} | change(mf)))


def test_a_pure_functional_has_nothing_to_round():
    mf = trnqc.accelerate(fitted(dft.RKS, xc="pbe"))
    assert "no exact exchange" in precision.why_not(mf, None)
    assert not precision.why_not(mf.set(xc="b3lyp"), None)


def test_coulomb_alone_uses_integrals_in_memory():
    mf = trnqc.accelerate(fitted())
    dm = fitted().get_init_guess()
    expected = fitted().get_j(dm=dm)
    np.testing.assert_allclose(mf.get_j(dm=dm), expected, rtol=0, atol=1e-10)
    assert isinstance(mf.with_df._cderi, np.ndarray) and "generated" in mf.ran_on
    small = trnqc.accelerate(fitted())
    small.with_df.max_memory = 0
    np.testing.assert_allclose(small.get_j(dm=dm), expected, rtol=0, atol=1e-10)
    assert small.with_df._cderi is None


@pytest.mark.parametrize("method", [scf.RHF, scf.UHF, scf.ROHF], ids=lambda m: m.__name__)
def test_the_gradient_of_an_scf_in_a_solvent_has_the_potential_of_the_solvent(method, precisions, monkeypatch):
    norms = []

    class Watch(gradient.GradientWatch):
        def norm(self, dm, potential):
            norms.append(super().norm(dm, potential))
            fock = self.mf.get_fock(self.mf.get_hcore(), self.mf.get_ovlp(), potential, dm)
            exact = np.linalg.norm(self.mf.get_grad(dm.mo_coeff, dm.mo_occ, fock))
            assert norms[-1] == pytest.approx(exact, rel=1e-12, abs=1e-12)
            return norms[-1]

    monkeypatch.setattr(precision, "GradientWatch", Watch)
    theirs = fitted(method).PCM().run()
    ours = trnqc.accelerate(fitted(method).PCM()).run()
    assert len(norms) > 2 and precisions.count("single") > 2 and precisions[-3:] == ["double"] * 3
    assert ours.e_tot == pytest.approx(theirs.e_tot, abs=1e-9)
    assert ours.with_solvent.e == pytest.approx(theirs.with_solvent.e, abs=1e-7)


def test_the_potential_of_a_solvent_is_computed_once_for_a_density_that_is_asked_for_twice(monkeypatch, precisions):
    monkeypatch.setattr(precision.EarlyCycles, "_gradient", lambda *_: (1.0, 1.0))
    mf = trnqc.accelerate(fitted().PCM())
    potentials = type(mf.with_solvent)._get_v
    densities = []
    monkeypatch.setattr(type(mf.with_solvent), "_get_v", lambda self, d: densities.append(d) or potentials(self, d))
    mf.run()
    assert precisions[:2] == ["single", "double"]
    assert len(densities) == precisions.count("double")


def test_a_gradient_that_does_not_become_smaller_ends_single_precision(monkeypatch, precisions):
    monkeypatch.setattr(precision.EarlyCycles, "_gradient", lambda *_: (1.0, 0.0))
    expected = fitted().kernel()
    mf = trnqc.accelerate(fitted())
    mf.verbose, mf.stdout = 4, io.StringIO()
    assert mf.kernel() == pytest.approx(expected, abs=1e-9)
    assert precisions.count("single") == gradient.PATIENCE + 1
    assert "double precision after 5 cycles" in mf.stdout.getvalue()


def test_mp2_on_top_of_tightly_converged_orbitals():
    """The correlation energy is of first order in errors of the orbitals, so that they have to be converged further."""
    energies = []
    for early in ("fp32", "fp64"):
        mf = trnqc.accelerate(fitted(), early_precision=early)
        mf.conv_tol = 1e-12
        energies.append(trnqc.DFMP2(mf.run(), auxbasis=FITTING).kernel()[0])
    assert energies[0] == pytest.approx(energies[1], abs=1e-8)


def test_a_potential_that_is_not_accurate_enough_is_computed_again(monkeypatch, precisions):
    monkeypatch.setattr(precision.EarlyCycles, "_gradient", lambda *_: (1.0, 1.0))
    mf = trnqc.accelerate(fitted()).run()
    assert precisions[:2] == ["single", "double"] and "single" not in precisions[2:]
    assert mf.converged


@pytest.mark.parametrize("method", [scf.RHF, scf.UHF], ids=lambda m: m.__name__)
def test_integrals_on_disk_are_rounded_too(method, precisions):
    expected = fitted(method).kernel()
    mf = fitted(method)
    mf.max_memory = mf.with_df.max_memory = 0
    mf = trnqc.accelerate(mf)
    assert mf.kernel() == pytest.approx(expected, abs=1e-9)
    assert not isinstance(mf.with_df._cderi, np.ndarray)
    assert precisions.count("single") > 3 and precisions[-1] == "double"
    assert mf.with_df.rounded is None


def test_a_file_that_cannot_be_read_in_an_early_cycle_is_one_error(monkeypatch, precisions):
    def failing(*_):
        raise OSError(5, "Input/output error")

    mf = fitted()
    mf.max_memory = mf.with_df.max_memory = 0
    mf = trnqc.accelerate(mf)
    mf.with_df.build()
    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(StorageError, match=r"Input/output error.*reset"):
        mf.kernel()
    assert precisions == ["single"]


@pytest.mark.parametrize("shape", [(), (2,)], ids=["one density", "two densities"])
@pytest.mark.parametrize("with_j", [True, False])
def test_single_precision_is_that_of_rounded_numbers(shape, with_j):
    """Of the first densities J is exact; of others it differs by rounding errors of the difference from the first."""
    fitting = trnqc.accelerate(fitted()).with_df
    rng, nao = np.random.default_rng(2), fitting.mol.nao
    for turn in range(2):
        c, occupation = rng.standard_normal((*shape, nao, 7)), np.broadcast_to([2.0] * 5 + [0.0] * 2, (*shape, 7))
        dm = (c * occupation[..., None, :]) @ c.swapaxes(-1, -2)
        tagged = lib.tag_array(dm, mo_coeff=c, mo_occ=occupation)
        vj, vk = fitting.get_jk(dm)
        if turn == 0:
            context = fitting.reduced_precision()
            assert context.__enter__()
        ours = fitting.get_jk(tagged, with_j=with_j)
        assert 0 < np.abs(ours[1] - vk).max() < 1e-5 * np.abs(vk).max()
        assert (ours[0] is None) is not with_j
        if with_j:
            np.testing.assert_allclose(ours[0], vj, rtol=0, atol=(1e-12 if turn == 0 else 1e-5) * np.abs(vj).max())
    context.__exit__(None, None, None)


@pytest.mark.parametrize("method", [scf.RHF, scf.UHF, scf.ROHF], ids=lambda m: m.__name__)
def test_rounding_errors_are_of_the_estimated_size(method):
    """Estimated from independent errors of K: within a factor of five of those of random perturbations of it."""
    mf = trnqc.accelerate(fitted(method)).run()
    dm = mf.make_rdm1()
    vk = np.asarray(mf.get_k(dm=dm))
    rng, square = np.random.default_rng(1), vk.reshape(-1, *vk.shape[-2:])
    sizes = np.array([np.sqrt(np.outer(k.diagonal(), k.diagonal())) for k in square]).reshape(vk.shape)
    noise = 1e-6 * rng.standard_normal(vk.shape) * sizes
    noise = (noise + noise.swapaxes(-1, -2)) / np.sqrt(2)
    fock = mf.get_hcore() + np.asarray(mf.get_veff(dm=dm))
    both = [mf.get_grad(mf.mo_coeff, mf.mo_occ, fock - change) for change in (0, noise / (2 if noise.ndim == 2 else 1))]
    measured = np.linalg.norm(both[1] - both[0])
    assert 0.2 < measured / (1e-6 * precision.gradient_scale(dm, vk)) < 5


def test_early_cycles_of_range_separated_exchange():
    expected = fitted(dft.RKS, xc="wb97x").kernel()
    assert trnqc.accelerate(fitted(dft.RKS, xc="wb97x")).kernel() == pytest.approx(expected, abs=1e-9)


def test_timings_name_the_parts():
    mf = trnqc.accelerate(fitted()).run()
    for part in ("SCF", "fitted integrals", "J and K", "J and K, single precision", "initial guess", "diagonalisation"):
        assert mf.timings[part] > 0
    assert sum(seconds for part, seconds in mf.timings.items() if part != "SCF") < mf.timings["SCF"]
    assert not hasattr(mf.undo(), "timings")


def test_an_unknown_precision_is_an_error():
    with pytest.raises(InputError, match="fp32 or fp64"):
        trnqc.accelerate(fitted(), early_precision="fp16")
