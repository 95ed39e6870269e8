"""The identities that the parser's front end of NKI 0.6 makes for transposes, in the timeline."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.timing import bars, timed
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

X = np.ones((128, 128), np.float32)


def transposes(x):
    tile = nl.load(x)
    for _ in range(2):
        bank = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=bank, data=tile, engine=nisa.engine.tensor)
        nisa.tensor_copy(dst=tile, src=bank)


def on_vector(x):
    tile = nl.load(x)
    turned = nl.ndarray((32, 32), dtype=nl.float32, buffer=nl.sbuf)
    nisa.nc_transpose(dst=turned, data=tile[0:32, 0:32], engine=nisa.engine.vector)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_each_transpose_makes_an_identity_on_gpsimd(target):
    plain = timed(transposes, X, target=target)
    identities = timed(transposes, X, target=target, constants={"transpose_identity": 1})
    assert bars(plain, "gpsimd") == []
    assert [e.op for e in bars(identities, "gpsimd")] == ["memset", "affine_select"] * 2
    # Both instructions pass over 128 columns, and each starts late.
    cycles = 2 * 2 * (128 + 150)
    busy = sum(e.end_ns - e.start_ns for e in bars(identities, "gpsimd"))
    assert busy == pytest.approx(cycles / {"trn1": 1.4, "trn2": 1.2}[target])
    for select, transpose in zip(bars(identities, "gpsimd")[1::2], bars(identities, "tensor", "weights"), strict=True):
        assert transpose.start_ns >= select.end_ns
    assert identities.high_water["sbuf"] == plain.high_water["sbuf"] + 128 * 4


def test_the_parser_of_06_makes_them_and_the_tracer_does_not(monkeypatch):
    for version, count in (("0.6", 4), ("0.7", 0), ("", 0)):
        monkeypatch.setenv("TRNQC_NKI", version)
        assert len(bars(timed(transposes, X), "gpsimd")) == count


def test_transposes_on_vectore_need_none():
    assert bars(timed(on_vector, X, constants={"transpose_identity": 1}), "gpsimd") == []
