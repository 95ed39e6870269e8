"""The estimate of PySCF's time for J and K counts all quartets of shells, whatever a sample of them takes."""

from __future__ import annotations

import pytest
from pyscf import gto, lib

from trnqc.pyscf import jk_time


@pytest.mark.parametrize(("atoms", "basis"), [("He 0 0 0", "sto-3g"), ("O 0 0 0; H 0 0 1; H 0 1 0", "6-31g*")])
@pytest.mark.parametrize("threads", [1, 2])
def test_all_quartets_are_counted(monkeypatch, atoms, basis, threads):
    """One second a quartet of shells: a clock that advances by the quartets whose integrals were computed."""
    mol = gto.M(atom=atoms, basis=basis, verbose=0)
    clock = 0.0
    compute = jk_time.getints

    def getints(*arguments, shls_slice, **options):
        nonlocal clock
        i, _, j, _, k, _, l, _ = shls_slice
        shells = shls_slice[1] - i
        assert all(begin >= 0 and begin + shells <= mol.nbas for begin in (i, j, k, l))
        clock += shells**4
        return compute(*arguments, shls_slice=shls_slice, **options)

    monkeypatch.setattr(jk_time, "getints", getints)
    monkeypatch.setattr(jk_time.time, "thread_time", lambda: clock)
    with lib.with_omp_threads(threads):
        assert jk_time.seconds_of_jk(mol) == pytest.approx(mol.nbas**4 / 8 / threads)
        assert lib.num_threads() == threads
