"""The BLAS libraries of this process are named, and old kernels on a new CPU are pointed out."""

from __future__ import annotations

import pytest
from pyscf import lib
from threadpoolctl import threadpool_info

from trnqc.cli import main
from trnqc.host import blas


class Libraries:
    """Stands for threadpoolctl, with libraries of a PySCF and a NumPy of wheels, and of a distribution."""

    def __init__(self, core: str) -> None:
        common = {"user_api": "blas", "internal_api": "openblas", "version": "0.3.30", "num_threads": 1}
        self._info = [
            common | {"filepath": "/x/site-packages/pyscf.libs/libopenblas.so", "architecture": core, "version": None},
            common | {"filepath": "/x/site-packages/numpy.libs/libopenblas.so", "architecture": "SkylakeX"},
            common | {"filepath": "/usr/lib/libblis.so", "internal_api": "blis", "architecture": "penryn"},
            {"filepath": "/usr/lib/libgomp.so", "user_api": "openmp", "internal_api": "openmp"},
        ]

    def info(self):
        return self._info


@pytest.mark.parametrize(
    ("core", "fastest", "words"),
    [
        (
            "Prescott",
            "SkylakeX",
            "OpenBLAS Prescott, kernels of an old CPU -> set OPENBLAS_CORETYPE=SkylakeX before Python starts",
        ),
        ("Haswell", "SkylakeX", "OpenBLAS Haswell"),
        ("Nehalem", None, "OpenBLAS Nehalem"),
    ],
)
def test_old_kernels_on_a_new_cpu_are_pointed_out(monkeypatch, core, fastest, words):
    monkeypatch.setattr(blas, "ThreadpoolController", lambda: Libraries(core))
    monkeypatch.setattr(blas, "fastest_core", lambda: fastest)
    assert blas.loaded() == {
        "pyscf": words,
        "numpy": "OpenBLAS 0.3.30 SkylakeX",
        "/usr/lib/libblis.so": "BLIS 0.3.30 penryn",
    }


def test_the_library_of_numpy_is_among_those_loaded():
    assert any(str(blas.numpy_blas()) in text for text in blas.loaded().values())


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("threads", [None, 1])
def test_limited_to_the_threads_that_the_user_asks_for(threads):
    before = blas_threads()
    with blas.limited(threads):
        assert blas_threads() == (before if threads is None else [threads] * len(before))
    assert blas_threads() == before and before


@pytest.mark.parametrize(
    ("command", "step"), [("scf", "trnqc.cli.scf._run_frames"), ("mp2", "trnqc.cli.mp2._outcomes")], ids=["scf", "mp2"]
)
def test_commands_limit_blas_too(command, step, monkeypatch):
    seen = []
    monkeypatch.setattr(step, lambda *_: seen.append((set(blas_threads()), lib.num_threads())) or [])
    with blas.blas_threads(2):
        assert main([command, "water", "--threads", "1", "--quiet"]) == 0
    assert seen == [({1}, 1)]
