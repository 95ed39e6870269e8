"""Lenient runs: what TRNQC_SIM_RULES=warn lets pass, what it reports, and what stays an error."""

import numpy as np
import pytest

from tests.sim.running import run
from trnqc.errors import SimulationError
from trnqc.sim import RuleWarning, forget, reported
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

A = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def clean():
    forget()
    yield
    forget()


def accumulating(x):
    """x.T @ x, added to a PSUM tile that was set to 2."""
    tile, total = nl.load(x), nl.full((4, 4), 2.0, nl.float32, nl.psum)
    nisa.nc_matmul(total, tile, tile, accumulate=True)
    out, sbuf = nl.ndarray((4, 4), nl.float32, nl.shared_hbm), nl.ndarray((4, 4), nl.float32)
    nisa.tensor_copy(sbuf, total)
    nisa.dma_copy(out, sbuf)
    return out


def assigning(x):
    tile, out = nl.ndarray((3, 4), nl.float32), nl.ndarray((3, 4), nl.float32, nl.shared_hbm)
    loaded = nl.load(x)
    tile[0:3, 0:2] = loaded[0:3, 2:4]
    tile[0:3, 2:4] = loaded[0:3, 0:2]
    out[0:3, 0:4] = tile
    return out


def misplaced(x):
    tile, out = nl.zeros((8, 4), nl.float32), nl.ndarray((8, 4), nl.float32, nl.shared_hbm)
    nisa.memset(tile[5:8], 3.0)
    nisa.dma_copy(out, tile)
    return out


def read_groups(x):
    """Adds x.T @ x twice to one tile, which is read in between, without saying whether to accumulate."""
    tile, total = nl.load(x), nl.ndarray((4, 4), nl.float32, nl.psum)
    out, sbuf = nl.ndarray((4, 4), nl.float32, nl.shared_hbm), nl.ndarray((4, 4), nl.float32)
    for _ in range(2):
        nisa.nc_matmul(total, tile, tile)
        nisa.tensor_copy(sbuf, total)
    nisa.dma_copy(out, sbuf)
    return out


def numbered(x):
    tile, out = nl.ndarray((3, 4), nl.float32), nl.ndarray((3, 4), nl.float32, nl.shared_hbm)
    nisa.dma_copy(tile, x, dge_mode=nisa.dge_mode.hwdge.value)
    nisa.dma_copy(out, tile, dge_mode=nisa.dge_mode.swdge.value)
    return out


def large(x):
    out = nl.ndarray((3, 4), nl.float32, nl.shared_hbm)
    first, second = (nl.zeros((128, 40_000), nl.float32) for _ in range(2))
    nisa.tensor_copy(first[0:3, 0:4], second[0:3, 0:4])
    nisa.dma_copy(out, first[0:3, 0:4])
    return out


def old_loop(x):
    out = nl.ndarray(x.shape, nl.float32, nl.shared_hbm)
    for i in nl.dynamic_range(3):
        nisa.dma_copy(out.ap([[4, 1], [1, 4]], scalar_offset=i), x.ap([[4, 1], [1, 4]], scalar_offset=i))
    return out


SHIFTED = np.concatenate([A[:, 2:], A[:, :2]], axis=1)
CASES = {
    "accumulating": (accumulating, A.T @ A + 2, "undefined", "written by something else than a matmul"),
    "assigning": (assigning, SHIFTED, "rejected", "tensors cannot be assigned to"),
    "misplaced": (
        misplaced,
        np.repeat([0.0, 3.0], [5, 3])[:, None] * np.ones(4),
        "rejected",
        "must start at partition",
    ),
    "read_groups": (read_groups, 2 * A.T @ A, "undefined", "whose last group was read already"),
    "numbered": (numbered, A, "rejected", "dge_mode must be nisa.dge_mode.[a-z]+, got the integer [12]"),
    "large": (large, np.zeros((3, 4)), "rejected", "sbuf holds"),
    "old_loop": (old_loop, A, "rejected", "dynamic_range does not exist in NKI 0.7"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:nl.dynamic_range is removed:DeprecationWarning")
def test_a_lenient_run_computes_and_reports(name, monkeypatch):
    body, want, effect, message = CASES[name]
    monkeypatch.setenv("TRNQC_NKI", "0.7" if name == "old_loop" else "")
    monkeypatch.setenv("TRNQC_SIM_RULES", "warn")
    with pytest.warns(RuleWarning, match=message):
        np.testing.assert_array_equal(run(body, A), want)
    assert {finding.effect for finding in reported()} == {effect}
    # The capacity is checked when the kernel has ended.
    assert name == "large" or all(f.file == __file__ and f.function == body.__name__ for f in reported())


@pytest.mark.parametrize("name", CASES)
def test_a_strict_run_raises(name, monkeypatch):
    body, _, _, message = CASES[name]
    monkeypatch.setenv("TRNQC_NKI", "0.7" if name == "old_loop" else "")
    with pytest.raises((SimulationError, TypeError), match=message):
        run(body, A)
    assert reported() == ()


def test_a_finding_is_kept_once(monkeypatch):
    monkeypatch.setenv("TRNQC_SIM_RULES", "warn")
    with pytest.warns(RuleWarning):
        run(accumulating, A)
        run(accumulating, A)
    assert len(reported()) == 1
    forget()
    assert reported() == ()


def test_what_has_no_result_stays_an_error(monkeypatch):
    def unwritten(x):
        tile, total = nl.load(x), nl.ndarray((4, 4), nl.float32, nl.psum)
        nisa.nc_matmul(total, tile, tile, accumulate=True)

    monkeypatch.setenv("TRNQC_SIM_RULES", "warn")
    with pytest.raises(SimulationError, match="where no matmul wrote yet"):
        run(unwritten, A)


@pytest.mark.parametrize("mode", [4, -1, True, "hwdge"])
def test_an_integer_that_is_no_mode_stays_an_error(mode, monkeypatch):
    def unknown(x):
        nisa.dma_copy(nl.ndarray((3, 4), nl.float32), x, dge_mode=mode)

    monkeypatch.setenv("TRNQC_SIM_RULES", "warn")
    with pytest.raises(SimulationError, match=r"dma_copy dge_mode must be one of nisa.dge_mode.unknown"):
        run(unknown, A)


def test_a_mode_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("TRNQC_SIM_RULES", "lax")
    with pytest.raises(SimulationError, match="TRNQC_SIM_RULES must be one of strict, warn, got 'lax'"):
        run(accumulating, A)
