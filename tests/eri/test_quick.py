"""The quick form of kernels: the same J and K, used while kernels are compiled and replaced when they are there."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto, scf

import trnqc
from trnqc.eri.classes import QuartetClass
from trnqc.eri.compiled import background
from trnqc.eri.compiled import programs as library
from trnqc.eri.jk import quick
from trnqc.eri.jk.batch import Batch
from trnqc.eri.jk.builder import JKBuilder
from trnqc.eri.kernels.quartet import SHARED
from trnqc.eri.kernels.variants import QUICK, form_of
from trnqc.eri.prepare import needs
from trnqc.errors import CompilerError
from trnqc.jit import Compiler

# Segmented and generally contracted classes; with a d shell also kernels that are object files of their own, and loops
# over columns.
WITH_P, WITH_D = (
    {
        "H": [[0, [1.3, 0.4], [0.5, 0.7]]],
        "O": [[0, [2.1, 0.3, 0.9], [0.4, 0.8, -0.2]], [l, [0.9, 1.0]]],
    }
    for l in (1, 2)
)


@pytest.fixture
def no_builder(monkeypatch):
    """Nothing is compiled in the background."""
    monkeypatch.setattr(background, "_start", lambda programs: pytest.fail("a builder is started"))


def molecule(basis) -> gto.Mole:
    return gto.M(atom="O 0 0 0; H 0 0.4 0.9; H 0.9 0 -0.3", basis=basis, verbose=0)


def small() -> gto.Mole:
    return gto.M(atom="H 0 0 0; H 0.1 0 0.74; He 0.2 1.5 0.3", basis="6-31g", verbose=0)


def quick_forms(mol: gto.Mole) -> None:
    for form in {program.quick for program in needs.for_jk(mol, 0.0, True, True)}:
        library.store(form)


def direct(mol: gto.Mole):
    return scf.RHF(mol).set(max_memory=1, conv_tol=1e-11)


@pytest.mark.parametrize("basis", [WITH_P, pytest.param(WITH_D, marks=pytest.mark.slow)], ids=["p", "d"])
def test_both_forms_give_the_same_matrices_and_the_kernels_replace_the_quick_ones(directory, basis):
    mol = molecule(basis)
    classes = JKBuilder(mol).classes()
    assert {cls.general for cls in classes} == {True, False}
    assert any(cls.order >= SHARED for cls in classes) == (basis is WITH_D)
    dm = np.random.default_rng(1).normal(size=(2, mol.nao, mol.nao))
    quick_forms(mol)
    jk = JKBuilder(mol, threads=1, quick=True)
    first = jk.get_jk(dm, hermi=0)
    assert jk.quick_kernels == len(classes)
    assert f"{len(classes)} of {len(classes)} kernels in their quick form" in jk.ran_on
    # Some kernels, then all.
    library.store(Batch(classes[0]).program)
    jk.get_jk(dm, hermi=0)
    assert f"{len(classes) - 1} of {len(classes)} kernels" in jk.ran_on
    for cls in classes:
        library.store(Batch(cls).program)
    second = jk.get_jk(dm, hermi=0)
    assert jk.quick_kernels == 0 and "quick" not in jk.ran_on
    expected = scf.hf.get_jk(mol, dm, hermi=0)
    for one, other, theirs in zip(first, second, expected):
        # Both differ from libcint's by rounding of some hundred terms of a few Hartree, and from each other.
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11)
        np.testing.assert_allclose(one, theirs, rtol=0, atol=1e-9)


def test_quick_forms_are_only_for_those_who_accept_them(directory):
    mol = gto.M(atom="H 0 0 0; H 0 0 0.74", basis="sto-3g", verbose=0)
    quick_forms(mol)
    programs = needs.for_jk(mol, 0.0, True, True)
    assert not any(map(library.is_compiled, programs))
    jk = JKBuilder(mol)
    jk.get_jk(np.eye(2))
    assert jk.quick_kernels == 0 and "quick" not in jk.ran_on
    assert all(map(library.is_compiled, programs))
    waiting, accepting = (background.Needed(lambda: programs, kernels) for kernels in ("wait", "cached"))
    assert waiting.ready() and accepting.ready()


def test_an_scf_with_cached_quick_forms(directory, no_builder):
    quick_forms(small())
    mf = trnqc.accelerate(direct(small()), kernels="cached")
    assert mf.kernel() == pytest.approx(direct(small()).kernel(), abs=1e-10)
    assert "in their quick form" in mf.ran_on and "PySCF" not in mf.ran_on


@pytest.mark.parametrize("cycle", [2, 4])
def test_a_change_in_the_middle_of_an_scf_is_harmless(directory, cycle):
    mol = small()
    expected = direct(mol).kernel()
    quick_forms(mol)
    mf = trnqc.accelerate(direct(mol), kernels="cached")
    seen = []

    def callback(variables):
        seen.append(mf.ran_on)
        if len(seen) == cycle:
            for program in needs.for_jk(mol, 0.0, True, True):
                library.store(program)

    mf.callback = callback
    assert mf.kernel() == pytest.approx(expected, abs=1e-10)
    assert "in their quick form" in seen[0]
    # J and K of the initial guess come before the first cycle.
    assert mf.ran_on.endswith(f"(the first {cycle + 1} with quick kernels)")


def test_a_job_compiles_quick_forms_where_that_saves_time(directory, monkeypatch):
    """They serve from the first J and K on, and the builder of the kernels themselves starts after them."""
    started = []
    monkeypatch.setattr(background, "_start", started.append)
    monkeypatch.setattr("trnqc.pyscf.coulomb_exchange.seconds_of_jk", lambda mol: 1e9)
    monkeypatch.setattr(background, "_builders", Discarding())
    mf = trnqc.accelerate(direct(small()), kernels="background")
    dm = mf.get_init_guess()
    for a, b in zip(mf.get_jk(dm=dm), direct(small()).get_jk(dm=dm)):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)
    programs = needs.for_jk(small(), 0.0, True, True)
    assert f"{len(programs)} of {len(programs)} kernels in their quick form" in mf.ran_on and "PySCF" not in mf.ran_on
    assert started == [list(programs)]
    assert not any(map(library.is_compiled, programs))


class Discarding(list):
    """No builder is looked after."""

    def append(self, builder):
        pass


def test_a_job_compiles_nothing_where_pyscf_is_soon_done(directory, monkeypatch):
    monkeypatch.setattr(background, "_ask_for", lambda *_: None)
    monkeypatch.setattr(Compiler, "build", lambda *_, **__: pytest.fail("the job compiles"))
    mf = trnqc.accelerate(direct(small()), kernels="background")
    mf.get_jk(dm=mf.get_init_guess())
    assert mf.ran_on == "PySCF (kernels are being compiled)"


def test_quick_forms_that_cannot_be_compiled_leave_j_and_k_to_pyscf(directory, monkeypatch, no_builder):
    def fails(*_, **__):
        raise CompilerError("the disk is full")

    monkeypatch.setattr(background, "_ask_for", lambda *_: None)
    monkeypatch.setattr(background, "_warned", None)
    monkeypatch.setattr(Compiler, "build", fails)
    needed = background.Needed(lambda: needs.for_jk(small(), 0.0, True, True), "background")
    with pytest.warns(RuntimeWarning, match="the disk is full"):
        assert not needed.ready(lambda: 1e9)
    assert not needed.ready(lambda: 1e9) and needed.reason == "kernels could not be compiled"


def test_every_driver_is_in_the_one_quick_form_of_its_program():
    """Large classes have programs of their own, small ones share them; the order of the classes does not matter."""
    classes = JKBuilder(gto.M(atom="C 0 0 0; H 0 0 1", basis="cc-pvdz", spin=1, verbose=0)).classes()
    programs = quick.programs(classes)
    assert set(programs) == set(classes) and programs == quick.programs(reversed(classes))
    forms = {program.quick for program in programs.values()}
    assert all(form in {p.quick for p in quick.programs(reversed(classes)).values()} for form in forms)
    names = [signature.name for form in forms for signature in form.signatures]
    assert sorted(names) == sorted(s.name for program in programs.values() for s in program.signatures)
    for cls, program in programs.items():
        assert Batch(cls).name in {signature.name for signature in program.quick.signatures}
    assert len(programs[QuartetClass(2, 2, 2, 2)].quick.signatures) == 2
    assert len(classes) / 8 < len(forms) < len(classes) / 3


def test_quick_kernels_are_smaller():
    """The recurrence is there once, and in loops from fewer nodes on."""
    for cls in JKBuilder(molecule(WITH_D)).classes():
        assert form_of(cls, QUICK) in (form_of(cls), "columns")
    assert not QUICK.peeled
