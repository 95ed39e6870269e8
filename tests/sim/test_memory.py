"""Poisoned memory, capacity over lifetimes, addresses, and tiles in device loops."""

import numpy as np
import pytest

from tests.sim.running import counted, dry, run
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

X = np.ones((128, 8), np.float32)
KIB = 1024


def test_fresh_memory_reads_as_nan_and_four():
    def body(x):
        outs = []
        for dtype in (nl.float32, nl.bfloat16, nl.int32, nl.uint8):
            tile, out = nl.ndarray((3, 5), dtype), nl.ndarray((3, 5), dtype, nl.shared_hbm)
            nisa.dma_copy(out, tile)
            outs.append(out)
        outs.append(nl.ndarray((2,), nl.float32, nl.shared_hbm))
        return tuple(outs)

    *floats, whole, byte, untouched = run(body, X)
    for array in (*floats, untouched):
        assert np.isnan(array.astype(np.float32)).all()
    assert (whole == 4).all()
    assert (byte == 4).all()


def test_nan_spreads_from_what_was_never_written():
    def body(x):
        tile, out = nl.ndarray((4, 8), nl.float32), nl.ndarray((4, 1), nl.float32, nl.shared_hbm)
        nisa.dma_copy(tile[:, 0:7], x[0:4, 0:7])
        total = nl.ndarray((4, 1), nl.float32)
        nisa.tensor_reduce(total, nl.add, tile, axis=1)
        nisa.dma_copy(out, total)
        return out

    assert np.isnan(run(body, X)).all()


def one_after_another(count, nbytes):
    """Tiles that die before the next is made."""

    def body(x):
        out = nl.ndarray((128, 1), nl.float32, nl.shared_hbm)
        for _ in range(count):
            tile = nl.zeros((128, nbytes // 4), nl.float32)
            nisa.dma_copy(out, tile[:, 0:1])
        return out

    return body


def all_at_once(count, nbytes, buffer=nl.sbuf):
    """Tiles that are all used after the last is made."""

    def body(x):
        tiles = []
        for _ in range(count):
            tiles.append(nl.zeros((128, nbytes // 4), nl.float32, buffer))
        total = nl.ndarray((128, 1), nl.float32)
        for tile in tiles:
            nisa.tensor_copy(total, tile[:, 0:1])

    return body


def test_dead_tiles_take_no_room():
    trace = counted(one_after_another(10, 100 * KIB), X)
    assert trace.sbuf_high_water == 100 * KIB


@pytest.mark.parametrize(("target", "limit"), [("trn1", 176), ("trn2", 208), ("trn3", 240)])
def test_sbuf_is_full_when_live_tiles_fill_it(target, limit):
    full = (limit // 8) - 1
    assert counted(all_at_once(full, 8 * KIB), X, target=target).sbuf_high_water == full * 8 * KIB + 4
    message = rf"sbuf holds {limit * KIB} bytes per partition on {target}; {full + 2} tiles live at once take"
    with pytest.raises(SimulationError, match=message):
        run(all_at_once(full + 1, 8 * KIB), X, target=target)
    with pytest.raises(SimulationError, match=message):
        dry(all_at_once(full + 1, 8 * KIB), X, target=target)


def test_psum_is_handed_out_in_banks():
    assert counted(all_at_once(8, 4, nl.psum), X).psum_high_water == 16 * KIB
    with pytest.raises(SimulationError, match="psum holds 16384 bytes per partition on trn2; 9 tiles live at once"):
        run(all_at_once(9, 4, nl.psum), X)
    assert counted(all_at_once(2, 3 * KIB, nl.psum), X).psum_high_water == 8 * KIB


def test_tiles_of_a_loop_body_count_once():
    def body(x):
        out = nl.ndarray((128, 1), nl.float32, nl.shared_hbm)

        def step(i):
            tile = nl.zeros((128, 25 * KIB), nl.float32)
            nisa.dma_copy(out, tile[:, 0:1])

        nl.fori_loop(0, 9, step)
        return out

    assert counted(body, X).sbuf_high_water == dry(body, X).sbuf_high_water == 100 * KIB


def test_tiles_used_in_a_loop_live_to_its_end():
    """``outer`` is read first thing in the body, but the next pass needs it again."""

    def body(x):
        out = nl.ndarray((128, 1), nl.float32, nl.shared_hbm)
        outer = nl.zeros((128, 25 * KIB), nl.float32)

        def step(i):
            nisa.dma_copy(out, outer[:, 0:1])
            inner = nl.zeros((128, 20 * KIB), nl.float32)
            nisa.dma_copy(out, inner[:, 0:1])

        nl.fori_loop(0, 3, step)
        return out

    assert counted(body, X).sbuf_high_water == 180 * KIB


def test_tiles_made_before_a_loop_may_carry_state_through_it():
    """``outer`` is written late in the body and may be read early in the next pass."""

    def body(x):
        out = nl.ndarray((128, 1), nl.float32, nl.shared_hbm)
        outer = nl.ndarray((128, 25 * KIB), nl.float32)

        def step(i):
            inner = nl.zeros((128, 20 * KIB), nl.float32)
            nisa.dma_copy(out, inner[:, 0:1])
            nisa.memset(outer, 0)

        nl.fori_loop(0, 3, step)
        return out

    assert counted(body, X).sbuf_high_water == dry(body, X).sbuf_high_water == 180 * KIB


def test_tiles_of_a_loop_body_stay_in_it():
    def body(x):
        collected = []

        def step(i):
            collected.append(nl.zeros((4, 4), nl.float32))

        nl.fori_loop(0, 2, step)
        nisa.tensor_copy(nl.ndarray((4, 4), nl.float32), collected[0])

    with pytest.raises(SimulationError, match="was made in one pass of a device loop and is used outside of it"):
        run(body, X)


def placed(first, second, keep):
    def body(x):
        a = nl.ndarray((64, 16), nl.float32, address=first)
        nisa.memset(a, 1)
        b = nl.ndarray((64, 16), nl.float32, address=second)
        nisa.memset(b, 2)
        if keep:
            nisa.tensor_copy(b, a)

    return body


def test_tiles_placed_over_each_other():
    run(placed((0, 0), (0, 64), keep=True), X)
    run(placed((0, 0), (64, 0), keep=True), X)
    run(placed((0, 0), (0, 60), keep=False), X)
    with pytest.raises(SimulationError, match="are live at once and share sbuf addresses"):
        run(placed((0, 0), (0, 60), keep=True), X)


@pytest.mark.parametrize("address", [(96, 0), (0, 208 * KIB - 60), (-1, 0), 5])
def test_addresses_outside_are_refused(address):
    with pytest.raises(SimulationError, match="address"):
        run(placed(address, (0, 0), keep=False), X)


def test_placed_tiles_start_where_they_are_put():
    def body(x):
        tile = nl.ndarray((32, 4), nl.float32, address=(16, 0))
        nisa.memset(tile, 0)

    with pytest.raises(SimulationError, match="must start at partition 0, 32, 64, 96, got 16"):
        run(body, X)


def test_identity_and_constants():
    table = np.arange(6, dtype=np.float32).reshape(2, 3)

    def body(x):
        constant, out = nl.shared_constant(table), nl.ndarray((7, 7), nl.bfloat16, nl.shared_hbm)
        nisa.dma_copy(out, nl.shared_identity_matrix(7, nl.bfloat16))
        return constant, out

    constant, identity = run(body, X)
    np.testing.assert_array_equal(constant, table)
    np.testing.assert_array_equal(identity.astype(np.float32), np.eye(7))


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum, nl.hbm, nl.shared_hbm])
def test_filled_tensors(buffer):
    def body(x):
        built = [nl.full((3, 5), 2.5, nl.float32, buffer), nl.ones((3, 5), nl.float32, buffer)]
        built.append(nl.zeros_like(built[0]))
        outs = []
        for tensor in built:
            on_sbuf, out = nl.ndarray((3, 5), nl.float32), nl.ndarray((3, 5), nl.float32, nl.shared_hbm)
            (nisa.tensor_copy if nl.is_on_chip(tensor.buffer) else nisa.dma_copy)(on_sbuf, tensor)
            nisa.dma_copy(out, on_sbuf)
            outs.append(out)
        return tuple(outs)

    for got, want in zip(run(body, X), (2.5, 1.0, 0.0)):
        assert (got == want).all()
