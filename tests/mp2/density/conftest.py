"""Settings of the tests of densities."""

from __future__ import annotations

import pytest
from pyscf import lib


@pytest.fixture
def tight_krylov(monkeypatch):
    """Let PySCF's Krylov solver converge to 1e-12; by default it stops at vectors of 1e-7."""
    krylov = lib.krylov
    monkeypatch.setattr(lib, "krylov", lambda *args, **options: krylov(*args, **options | {"lindep": 1e-28}))
