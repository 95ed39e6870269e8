"""The kernels that the timeline is calibrated and compared with compute what they say."""

import ml_dtypes
import numpy as np
import pytest

from scripts.model.kernels import mamba, matmul
from scripts.model.kernels.rfc_pair import pack_pair, rfc_pair
from trnqc.sim import Spec, simulate, timeline

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (matmul.tiled, {}),
        (matmul.hoisted, {}),
        (matmul.blocked, {}),
        (matmul.blocked, {"kept": 1}),
        (matmul.blocked, {"rows": 1, "cols": 1, "kept": 3}),
        (matmul.k_blocked, {"rows": 1, "cols": 2, "depth": 2}),
        (matmul.k_blocked, {"rows": 2, "cols": 1, "depth": 1}),
        (matmul.k_blocked, {"rows": 1, "cols": 2, "depth": 2, "room": 16_000}),
        (matmul.k_blocked, {"rows": 2, "cols": 1, "depth": 1, "room": 1}),
    ],
)
def test_matmul(kernel, options):
    a_t, b = normal(256, 256), normal(256, 1024)
    np.testing.assert_allclose(simulate(kernel)(a_t, b, **options), a_t.T @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("room", "away"), [(16_896, 0), (16_895, 1), (12_000, 3), (1, 4)])
def test_sums_beyond_the_room_travel(room, away):
    """Two contraction blocks: a sum in HBM is written twice, and read for the second addition and for the result."""
    run = timeline(matmul.k_blocked, target="trn2")
    result = run(Spec((256, 256), "float32"), Spec((256, 1024), "float32"), rows=1, cols=2, depth=1, room=room)
    s, total = result.summary(), 128 * 512 * 4
    assert s["hbm_write_bytes"] == (4 + 2 * away) * total
    assert s["hbm_read_bytes"] == 256 * 1024 * 4 + 256 * 256 * 4 + 2 * away * total


def test_kept_columns_are_not_loaded_again():
    def read(kept):
        run = timeline(matmul.blocked, target="trn2")
        result = run(Spec((256, 512), "float32"), Spec((256, 2048), "float32"), kept=kept)
        return result.summary()["hbm_read_bytes"]

    column = 256 * 512 * 4
    assert [read(0) - read(n) for n in (1, 2, 4)] == [column, 2 * column, 4 * column]


def test_double_row():
    a_t, b = (normal(2, 128, n).astype(ml_dtypes.float8_e4m3) for n in (128, 512))
    expected = np.einsum("rkm,rkn->mn", a_t.astype(np.float32), b.astype(np.float32))
    np.testing.assert_allclose(simulate(matmul.double_row)(a_t, b), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("steps", "options"), [(96, {"reload": True}), (600, {}), (96, {"length": 32})])
def test_scan(steps, options):
    channels, states = 128, 3
    delta, u = 0.1 * normal(channels, steps) ** 2, normal(channels, steps)
    A, B, C = -(normal(channels, states) ** 2), normal(states, steps), normal(states, steps)
    h, expected = np.zeros((channels, states)), np.zeros((channels, steps))
    for t in range(steps):
        h = np.exp(delta[:, t, None] * A) * h + (delta[:, t] * u[:, t])[:, None] * B[:, t]
        expected[:, t] = h @ C[:, t]
    result = simulate(mamba.scan)(delta, u, A, B, C, **options)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("nvir", "naux"), [(1, 1), (131, 257)])
def test_rfc_pair(nvir, naux):
    B_i, B_j = 0.1 * normal(nvir, naux), 0.1 * normal(nvir, naux)
    e_vir, e_ij = np.linspace(0.1, 2.0, nvir), -1.3
    T = B_i.astype(float) @ B_j.T.astype(float)
    expected = (T * (2 * T - T.T) / (e_ij - e_vir[:, None] - e_vir)).sum()
    result = simulate(rfc_pair)(*pack_pair(B_i, B_j, e_ij, e_vir)).astype(float).sum()
    assert result == pytest.approx(expected, rel=1e-5)
