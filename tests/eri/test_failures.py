"""What goes wrong: compilers, caches, CPUs, basis sets and densities. Wrong is said once, and right stays right."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from pyscf import gto, scf

import trnqc
from trnqc.eri.api import get_jk
from trnqc.eri.compiled import programs
from trnqc.eri.jk.builder import JKBuilder
from trnqc.errors import CompilerError, InputError, MoleculeError, UnsupportedClass, UnsupportedError
from trnqc.jit import compiler, find_compiler

PLAIN = "H 0 0 0; H 0.1 0 0.74"


def molecule(atom: str = PLAIN, basis="6-31g", **options) -> gto.Mole:
    return gto.M(atom=atom, basis=basis, verbose=0, **options)


def density(mol: gto.Mole) -> np.ndarray:
    dm = np.random.default_rng(11).standard_normal((mol.nao, mol.nao))
    return dm + dm.T


def check(mol: gto.Mole, rtol: float = 1e-11) -> None:
    """J and K are PySCF's, relative to the largest element."""
    dm = density(mol)
    for ours, theirs in zip(get_jk(mol, dm), scf.hf.get_jk(mol, dm)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=rtol * max(1, abs(theirs).max()))


def check_s_and_p() -> None:
    """One class of s and one of p functions: their kernels are compiled for this test alone."""
    check(molecule())
    check(molecule(basis={"H": [[1, [1.2, 0.4], [0.8, 1.0]]]}))


@pytest.fixture
def nothing_compiled(tmp_path, monkeypatch) -> Path:
    """An empty cache of this test's own; what this process has loaded is forgotten, before and after."""
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("trnqc.jit.compile._loaded", {})
    return tmp_path / "cache"


@pytest.fixture
def other_compiler(monkeypatch):
    """The same compiler with more options in front; kernels for it are cached apart."""

    def choose(*options: str) -> None:
        monkeypatch.setenv("CC", shlex.join((*real, *options)))

    real = find_compiler().command
    return choose


def test_no_compiler(nothing_compiled, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    mf = trnqc.accelerate(scf.RHF(molecule()))
    with pytest.raises(CompilerError, match="install"):
        mf.kernel()
    assert mf.undo().kernel() < -1


def test_a_compiler_that_fails_on_kernels(nothing_compiled, monkeypatch, tmp_path):
    """It takes the small texts it is probed with."""
    broken = tmp_path / "broken-cc"
    broken.write_text(
        '#!/bin/sh\nfor word in "$@"; do case "$word" in *source.c) echo "out of registers" >&2; exit 3;; esac; done\n'
        f'exec {shlex.join(find_compiler().command)} "$@"\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    mol = molecule()
    with pytest.raises(CompilerError, match=r"(?s)eri_0000.*exit status 3.*out of registers"):
        get_jk(mol, density(mol))
    assert not list(nothing_compiled.glob("*.so"))


def test_a_cache_that_cannot_be_written(nothing_compiled, monkeypatch, tmp_path):
    occupied = tmp_path / "a-file"
    occupied.write_text("mine")
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(occupied / "cache"))
    with pytest.warns(RuntimeWarning, match="TRNQC_CACHE_DIR"):
        check(molecule())
    assert occupied.read_text() == "mine"


def test_a_harmed_cache_is_built_again(nothing_compiled):
    """In processes of their own, which have nothing loaded; other harms are met in tests/jit/test_jit.py."""
    program = textwrap.dedent(
        """
        import numpy as np
        from pyscf import gto
        from trnqc.eri.api import get_jk
        mol = gto.M(atom="H 0 0 0; H 0 0 0.74", basis="sto-3g", verbose=0)
        print(get_jk(mol, np.eye(2))[0][0, 0])
        """
    )

    def run() -> float:
        return float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)

    value = run()
    for path in nothing_compiled.glob("*.so"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert run() == pytest.approx(value, abs=1e-14)


@pytest.mark.parametrize(("option", "macro", "lanes"), [("-mno-avx512f", "__AVX512F__", 4), ("-mno-avx", "__AVX__", 2)])
def test_cpus_with_shorter_vectors(other_compiler, option, macro, lanes):
    if macro not in find_compiler().target:
        pytest.skip(f"this CPU has no vectors that {option} leaves out")
    other_compiler(option)
    assert programs.lanes() == lanes
    assert f"{lanes} lanes" in JKBuilder(molecule()).ran_on
    check_s_and_p()


def test_cpus_without_vectors(other_compiler, monkeypatch):
    other_compiler("-DNO_VECTORS")
    monkeypatch.setattr(compiler, "VECTORS", ())
    assert programs.lanes() == 1
    check_s_and_p()


def test_shells_beyond_the_limit():
    mol = molecule(basis={"H": [[0, [1.0, 1.0]], [6, [1.0, 1.0]]]})
    with pytest.raises(UnsupportedClass, match="angular momentum 6 is beyond 5"):
        JKBuilder(mol).get_jk(np.eye(mol.nao))
    assert issubclass(UnsupportedClass, UnsupportedError)


@pytest.mark.parametrize("exponent", [0.0, -0.5, np.nan, np.inf])
def test_impossible_exponents(exponent):
    mol = molecule("H 0 0 0; H 0 0 0.74; He 0 1 0")
    mol._env[mol._bas[-1, gto.PTR_EXP]] = exponent
    with pytest.raises(MoleculeError, match=r"(?s)positive.*shell \d.*He"):
        JKBuilder(mol)


@pytest.mark.parametrize("memory", [4000, 1], ids=["in memory", "direct"])
def test_linear_dependence(memory):
    """The same functions nearly twice: integrals do not mind, and PySCF leaves the combination out."""
    mol = molecule("H 0 0 0; H 0 0 0.74; GHOST-H 0 0 1e-5")
    check(mol)
    theirs, ours = scf.RHF(mol), trnqc.accelerate(scf.RHF(mol))
    theirs.max_memory = ours.max_memory = memory
    assert ours.kernel() == pytest.approx(theirs.kernel(), abs=1e-8)
    assert ours.mo_coeff.shape == (6, 4)


def test_coincident_centres():
    check(molecule("He 0 0 0; GHOST-H 0 0 0; H 0 0 0", basis="6-31g", spin=1))
    check(molecule("He 1 2 3", basis={"He": [[0, [1.0, 1.0]], [0, [0.3, 1.0]], [1, [0.7, 1.0]]]}))


def test_far_centres():
    check(molecule("H 0 0 0; He 0 0 500; H 1e4 0 0.3"))


def test_exponents_from_small_to_enormous():
    shells = [[l, [exponent, 1.0]] for l in (0, 1) for exponent in (1e9, 1e5, 30.0, 0.5, 1e-3)]
    check(molecule("H 0 0 0; H 0 0.3 0.7", basis={"H": shells}))
    contracted = [[0, [1e9, 1e-4], [1e6, 2e-3], [1e3, 0.1], [1.0, 0.6], [1e-3, 0.4]]]
    check(molecule("H 0 0 0; H 0 0.3 0.7", basis={"H": contracted}))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_densities_that_are_no_numbers(value):
    mol = molecule()
    dm = density(mol)
    dm[0, 1] = value
    with pytest.raises(InputError, match="finite"):
        get_jk(mol, dm)


@pytest.mark.parametrize("shape", [(3, 3), (4,), (4, 5), (2, 3, 3)], ids=str)
def test_densities_of_another_shape(shape):
    with pytest.raises(InputError, match=r"\[4, 4\].*found"):
        get_jk(molecule(), np.zeros(shape))


def test_a_density_of_nothing():
    mol = molecule()
    for dm in (np.zeros((mol.nao, mol.nao)), np.zeros((0, mol.nao, mol.nao))):
        vj, vk = get_jk(mol, dm)
        assert vj.shape == vk.shape == dm.shape
        assert not vj.any()
        assert not vk.any()
