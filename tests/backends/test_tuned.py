"""Launches use tuning records, report them, and compute the same energies with them."""

import numpy as np
import pytest

from nki_kernels.descriptors import kernels
from trnqc import backends
from trnqc.tuning import records
from trnqc.tuning.records import Record
from trnqc.tuning.sources import source_hash

SHAPE = {"nocc": 6, "nvir": 140, "naux": 260}
POINTS = [
    {"blocks": 1, "chunks": 1, "group": 3},
    {"blocks": 2, "chunks": 1, "group": 2},
    {"blocks": 2, "chunks": 3, "group": 1},
]


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    monkeypatch.setattr(records, "shipped_directory", lambda: records.user_directory() / "none")


def pairs():
    rng = np.random.default_rng(5)
    B = rng.normal(size=tuple(SHAPE.values())) / 10
    eps_occ, eps_vir = np.linspace(-2.0, -0.5, SHAPE["nocc"]), np.linspace(0.2, 3.0, SHAPE["nvir"])
    return backends.get("simulator").pair_step("fp32").triangle(B, eps_occ, eps_vir)


@pytest.mark.parametrize("point", POINTS)
def test_records_change_tiles_and_not_energies(shelf, point):
    before = pairs()
    assert before.ran_on.endswith("; default tiles (no tuning record)")
    known = kernels()["mp2_energy"]
    constants = known.realise(point, SHAPE, "fp32", "trn2")
    path = records.store(
        Record(
            "mp2_energy",
            source_hash(known.module, known.name),
            "trn2",
            "fp32",
            SHAPE,
            "modelled",
            {},
            point,
            constants,
            1.0,
            2.0,
            known.workload,
            {},
        )
    )
    after = pairs()
    tiles = ", ".join(f"{name} {value}" for name, value in constants.items())
    assert after.ran_on.endswith(f"; tiles {tiles} (modelled tuning, user record {path.name})")
    assert after.os == pytest.approx(before.os, rel=1e-5, abs=1e-12)
    assert after.ss == pytest.approx(before.ss, rel=1e-4, abs=1e-7)
