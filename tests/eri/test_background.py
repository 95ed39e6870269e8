"""Kernels compiled beside a job: PySCF serves until they are there, and what compiles them is bounded and silent."""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from pyscf import df, gto, scf

import trnqc
from trnqc.eri.arrays import filling
from trnqc.eri.arrays.sides import fitting_side, triangle
from trnqc.eri.arrays.writer import Writer
from trnqc.eri.classes import QuartetClass
from trnqc.eri.compiled import background, builder
from trnqc.eri.compiled import programs as library
from trnqc.eri.gradient.derivative_basis import derivative_basis
from trnqc.eri.gradient.mixed_basis import MixedJK
from trnqc.eri.jk.builder import JKBuilder
from trnqc.eri.prepare import needs
from trnqc.eri.shells.pairs import pairs_between, pairs_of
from trnqc.errors import InputError
from trnqc.jit import Compiler, Recipe, find_compiler
from trnqc.jit.cache import library_cache

ROOT = Path(__file__).resolve().parents[2]
# s functions alone: a class or two for each purpose.
ATOMS = "H 0 0 0; H 0.1 0 0.74; He 0.2 1.5 0.3"
# Seconds that a small class may take on a machine that is busy with other things.
PATIENCE = 240


@pytest.fixture
def no_waiting(monkeypatch):
    """Compiling in this process is an error."""

    def unwanted(*_: object, **__: object) -> None:
        raise AssertionError("this process compiles")

    monkeypatch.setattr(Compiler, "build", unwanted)


def wait_until(condition, what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {PATIENCE} s"
        time.sleep(0.05)


def built() -> None:
    wait_until(lambda: all(one.process.poll() is not None for one in background._builders), "the end of the builders")


def molecule(**options) -> gto.Mole:
    return gto.M(atom=ATOMS, basis="6-31g", verbose=0, **options)


def direct(mf):
    return mf.set(max_memory=1, conv_tol=1e-11)


def test_all_integrals_in_memory(directory, no_waiting):
    expected = scf.RHF(molecule()).kernel()
    first = trnqc.accelerate(scf.RHF(molecule()), kernels="background")
    assert first.kernel() == pytest.approx(expected, abs=1e-9)
    assert first.ran_on == "all integrals in memory, by PySCF (kernels are being compiled)"
    built()
    second = trnqc.accelerate(scf.RHF(molecule()), kernels="background")
    assert second.kernel() == pytest.approx(expected, abs=1e-9)
    assert second.ran_on == "all integrals in memory, by generated kernels"


def test_direct_matrices_change_over_when_all_is_there(directory, no_waiting):
    theirs, ours = direct(scf.RHF(molecule())), trnqc.accelerate(direct(scf.RHF(molecule())), kernels="background")
    dm = theirs.get_init_guess()
    expected = theirs.get_jk(dm=dm)
    for _ in range(2):
        np.testing.assert_allclose(ours.get_jk(dm=dm), expected, rtol=0, atol=1e-9)
        assert ours.ran_on == "PySCF (kernels are being compiled)"
    built()
    np.testing.assert_allclose(ours.get_jk(dm=dm), expected, rtol=0, atol=1e-9)
    assert ours.ran_on.startswith("generated C")
    assert ours.ran_on.endswith("(the first 2 J and K by PySCF)")


@pytest.mark.parametrize("omega, with_j", [(0.3, False), (-0.3, False), (0.0, True)])
def test_each_purpose_asks_for_its_own_programs(directory, no_waiting, omega, with_j):
    ours = trnqc.accelerate(direct(scf.RHF(molecule())), kernels="background")
    dm = ours.get_init_guess()
    expected = ours.get_jk(dm=dm, with_j=with_j, with_k=not with_j, omega=omega)
    built()
    results = ours.get_jk(dm=dm, with_j=with_j, with_k=not with_j, omega=omega)
    assert ours.ran_on.startswith("generated C")
    for a, b in zip(results, expected):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)


def test_density_fitting(directory, no_waiting):
    def fitted():
        return scf.RHF(molecule()).density_fit(auxbasis={"H": [[0, [1.1, 1.0]]], "He": [[0, [1.9, 1.0]]]})

    expected = fitted().kernel()
    for words in ("kernels are being compiled", "generated C"):
        ours = trnqc.accelerate(fitted(), kernels="background")
        assert ours.kernel() == pytest.approx(expected, abs=1e-9)
        assert words in ours.ran_on
        built()


def test_gradients(directory, no_waiting):
    mf = trnqc.accelerate(scf.RHF(molecule()), kernels="background").run(conv_tol=1e-11)
    expected = scf.RHF(molecule()).run(conv_tol=1e-11).nuc_grad_method().kernel()
    for words in ("PySCF (kernels are being compiled)", "generated C"):
        gradients = mf.nuc_grad_method()
        np.testing.assert_allclose(gradients.kernel(), expected, rtol=0, atol=1e-7)
        assert gradients.ran_on.startswith(words)
        built()


def test_nothing_is_started_where_only_what_is_there_is_wanted(directory, no_waiting):
    mf = trnqc.accelerate(scf.RHF(molecule()), kernels="cached")
    mf.kernel()
    assert mf.ran_on == "all integrals in memory, by PySCF (kernels='cached', and not all that are needed are compiled)"
    assert not background._builders


def test_the_environment_sets_the_default(monkeypatch):
    for word, expected in (("cached", "cached"), ("", "background")):
        monkeypatch.setenv("TRNQC_KERNELS", word)
        assert trnqc.accelerate(scf.RHF(molecule())).kernels == expected
    assert trnqc.accelerate(scf.RHF(molecule()), kernels="wait").to_ks("pbe").kernels == "wait"
    monkeypatch.setenv("TRNQC_KERNELS", "soon")
    with pytest.raises(InputError, match="TRNQC_KERNELS is one of background, wait, cached, found 'soon'"):
        trnqc.accelerate(scf.RHF(molecule()))
    with pytest.raises(InputError, match="kernels is one of"):
        trnqc.accelerate(scf.RHF(molecule()), kernels="later")
    monkeypatch.setenv("TRNQC_BUILD_LINGER", "-1")
    with pytest.raises(InputError, match="TRNQC_BUILD_LINGER is a number of seconds"):
        background.linger()


def test_a_failure_is_said_once_and_pyscf_goes_on(directory, monkeypatch, tmp_path):
    broken = tmp_path / "broken-cc"
    broken.write_text(
        '#!/bin/sh\nfor word in "$@"; do case "$word" in *source.c) echo "out of registers" >&2; exit 3;; esac; done\n'
        f'exec {shlex.join(find_compiler().command)} "$@"\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    mf = trnqc.accelerate(direct(scf.RHF(molecule())), kernels="background")
    dm = mf.get_init_guess()
    mf.get_jk(dm=dm)
    built()
    with pytest.warns(RuntimeWarning, match=r"(?s)cannot be compiled in the background.*out of registers"):
        mf.get_jk(dm=dm)
    mf.get_jk(dm=dm)
    assert mf.ran_on == "PySCF (kernels could not be compiled)"


MOLECULES = {
    "segmented": {"atom": ATOMS, "basis": "6-31g"},
    "general": {"atom": "O 0 0 0; H 0 0 1; H 0 1 0", "basis": "cc-pvdz"},
    "Cartesian": {"atom": "O 0 0 0; H 0 0 1; H 0 1 0", "basis": "6-31g*", "cart": True},
    "mixed": {"atom": "C 0 0 0; O 0 0 1.1", "basis": {"C": "sto-3g", "O": "def2-tzvp"}},
}


@pytest.mark.parametrize("kind", MOLECULES)
def test_the_programs_are_those_that_run(kind, monkeypatch):
    mol = gto.M(**MOLECULES[kind], verbose=0)
    aux = df.addons.make_auxmol(mol, "weigend")
    assert {p.name.split("_", 1)[1] for p in needs.for_jk(mol, 0.3, False, True)} == {
        f"{cls.name}" for cls in JKBuilder(mol, omega=0.3).classes()
    }

    def names(*sides, **options) -> set[str]:
        results = filling._writers(*sides, filling.Operator("coulomb", 0.0), **options)
        return {writer.name for writer in results.values()}

    side, fitting = triangle(mol), fitting_side(aux)
    memory = names(side, side, fitted=False, same=True, triangular=True)
    assert {p.name for p in needs.for_memory(mol)} == memory
    fitted = names(side, fitting, fitted=True, same=False, triangular=False)
    fitted |= names(fitting, fitting, fitted=True, same=True, triangular=False)
    fitted |= {"half_transform_f64", "half_transform_f32"}
    assert {p.name for p in needs.for_fitting(mol, aux)} == fitted
    asked: list[Recipe] = []
    monkeypatch.setattr(library, "build", lambda programs, what: asked.extend(programs) or 1 / 0)
    basis = derivative_basis(mol)
    with pytest.raises(ZeroDivisionError):
        MixedJK(pairs_between(basis.mol, basis.cartesian), pairs_of(basis.cartesian), (1, 1))
    assert {p.name for p in needs.for_gradients(mol, 0.0)} == {p.name for p in asked}


def job(directory: Path, linger: str, then: str) -> list[str]:
    """A process that asks for a large kernel and goes on with `then`."""
    program = f"""
        import os, signal, sys
        sys.path.insert(0, {str(ROOT)!r})
        from trnqc.eri.compiled import background
        from trnqc.eri.classes import QuartetClass
        from trnqc.eri.arrays.writer import Writer
        wanted = [Writer(QuartetClass(*digits)).program for digits in ((2, 2, 2, 1), (2, 2, 2, 0))]
        assert not background.Needed(lambda: wanted, "background").ready()
        print(background._builders[0].process.pid, flush=True)
        {then}
    """
    environment = os.environ | {"TRNQC_CACHE_DIR": str(directory), "TRNQC_BUILD_LINGER": linger}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        start_new_session=True,
    )
    assert not done.stderr
    return done.stdout.split()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def left_behind(directory: Path) -> list[str]:
    return [p.name for p in directory.glob(".build-*")] + [
        p.name for p in directory.glob("write_*.so") if not p.with_suffix(".sha256").exists()
    ]


# What a terminal does when a user presses ctrl-C: every process of the group gets the signal.
INTERRUPT = "signal.signal(signal.SIGINT, lambda *_: sys.exit(130)); os.killpg(0, signal.SIGINT)"


@pytest.mark.parametrize(
    "then", ["", "os.kill(os.getpid(), signal.SIGKILL)", INTERRUPT], ids=["ends", "killed", "interrupted"]
)
def test_a_builder_ends_with_its_job_where_that_is_wanted(tmp_path, then):
    (pid,) = job(tmp_path, "0", then)
    wait_until(lambda: not alive(int(pid)), "the end of the builder")
    assert not left_behind(tmp_path)


def test_a_builder_holds_nothing_of_a_job_that_has_ended(tmp_path):
    """Neither its pipes nor its terminal; it goes on, and ends when it is told to."""
    (pid,) = job(tmp_path, "600", "")
    assert alive(int(pid))
    wait_until(lambda: list(tmp_path.glob(".build-*")), "a compiler's start")
    os.kill(int(pid), signal.SIGTERM)
    wait_until(lambda: not alive(int(pid)), "the end of the builder")
    assert not left_behind(tmp_path)


def test_two_builders_take_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(builder, "lowest_priority", lambda: None)
    end = builder.BuilderEnd(os.getppid(), 0.0)
    with builder.turn(tmp_path, end) as first, builder.turn(tmp_path, builder.BuilderEnd(-1, 0.0)) as second:
        assert first
        assert not second


def test_the_end():
    assert not builder.BuilderEnd(os.getppid(), 0.0)
    told = builder.BuilderEnd(os.getppid(), 0.0)
    told.now(signal.SIGTERM, None)
    assert told


@pytest.mark.parametrize(
    "text, expected", [("max 100000\n", False), ("200000 100000\n", True), ("-1\n", False), (None, False)]
)
def test_rationed_processor_time(tmp_path, monkeypatch, text, expected):
    path = tmp_path / "cpu.max"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(builder, "QUOTAS", (tmp_path / "missing", path))
    assert builder.has_quota() == expected


def test_what_killed_compilers_left_is_removed(tmp_path):
    old, new = tmp_path / ".build-old", tmp_path / ".build-new"
    for path in (old, new):
        path.mkdir()
    os.utime(old, (1, 1))
    builder.clear_up(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [".build-new"]


def test_a_kernel_that_a_job_waits_for_is_left_to_it(directory):
    """The job compiles at full speed; the builder looks again when that is over."""
    program = Writer(QuartetClass(0, 0, 0, 0)).program
    cache, name = library_cache(), library.entry(program)
    with cache._turn(name):
        assert cache.is_being_built(name)
        assert not background.Needed(lambda: [program], "background").ready()
        time.sleep(3)
        assert not cache.has(name)
    assert not cache.is_being_built(name)
    built()
    assert cache.has(name)


def test_a_user_is_told_what_happens_and_what_the_next_run_gains(directory, monkeypatch):
    said: list[str] = []
    # A builder that builds nothing and is still at work.
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setattr(background, "announce", said.append)
    monkeypatch.setattr(background, "_start", lambda programs: background._Builder(process, io.BytesIO()))
    monkeypatch.setenv("TRNQC_KERNELS", "background")
    trnqc.accelerate(direct(scf.RHF(molecule()))).kernel()
    assert len(said) == 1 and "compiled in the background" in said[0]
    assert "until then PySCF computes in their place" in said[0] and "trnqc eri build" in said[0]
    background._leave()
    assert len(said) == 2 and said[1].startswith("0 of the ") and "the next run computes with them" in said[1]
    process.returncode = None
