"""Registers and device loops, executed and traced."""

import numpy as np
import pytest

from tests.sim.running import counted, dry, run
from trnqc.errors import SimulationError
from trnqc.sim import RuleWarning, Spec, forget, jit, reported, trace
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

TABLE = np.arange(40, dtype=np.float32).reshape(20, 2)


def doubled_rows(lower, upper, step=1):
    """Rows lower, lower + step, ... of a table, times two; bounds are numbers or come from a (1, 2) tensor."""

    def body(x, bounds):
        out, tile = nl.ndarray(x.shape, nl.float32, nl.shared_hbm), nl.load(bounds)
        ends = [lower, upper]
        for k in range(2):
            if ends[k] is None:
                ends[k] = nisa.register_alloc()
                nisa.register_load(ends[k], tile[:, k])

        def double(i):
            row = nl.ndarray((1, 2), nl.float32)
            nisa.dma_copy(row, x.ap([[2, 1], [1, 2]], scalar_offset=i))
            nisa.tensor_scalar(row, row, nl.multiply, 2.0)
            nisa.dma_copy(out.ap([[2, 1], [1, 2]], scalar_offset=i), row)

        nl.fori_loop(ends[0], ends[1], double, step)
        return out

    return body


LOOPS = [(0, 20, 1), (3, 17, 4), (5, 6, 1), (7, 7, 1), (9, 2, 1)]


@pytest.mark.parametrize("version", ["0.6", "0.7"])
@pytest.mark.parametrize("from_memory", [False, True])
@pytest.mark.parametrize(("lower", "upper", "step"), LOOPS)
def test_fori_loop(lower, upper, step, from_memory, version, monkeypatch):
    monkeypatch.setenv("TRNQC_NKI", version)
    bounds = np.array([[lower, upper]], np.int32)
    body = doubled_rows(*((None, None) if from_memory else (lower, upper)), step)
    want = np.full_like(TABLE, np.nan)
    want[lower:upper:step] = 2 * TABLE[lower:upper:step]
    np.testing.assert_array_equal(run(body, TABLE, bounds), want)


@pytest.mark.parametrize(("lower", "upper", "step"), LOOPS)
def test_a_trace_counts_what_a_run_executes(lower, upper, step):
    bounds = np.array([[lower, upper]], np.int32)
    body = doubled_rows(None, None, step)
    real = counted(body, TABLE, bounds)
    traced = dry(body, Spec(TABLE.shape, nl.float32), bounds)
    assert traced.executed == real.executed
    passes = len(range(lower, upper, step))
    assert real.executed["tensor_scalar"] == passes
    assert traced.static["tensor_scalar"] == 1  # in the program, passes or not
    assert traced.static == real.static or not passes
    assert traced.sbuf_high_water == real.sbuf_high_water


def test_the_last_pass_of_a_traced_loop_is_checked_too():
    with pytest.raises(SimulationError, match="runtime index 20"):
        dry(doubled_rows(0, 21), Spec(TABLE.shape, nl.float32), np.zeros((1, 2), np.int32))


def countdown(x, start):
    """Adds ``x`` to itself while a counter in memory runs down to zero."""
    total, value, left = nl.zeros((1, 2), nl.float32), nl.load(x[0:1]), nl.load(start)
    out = nl.ndarray((1, 2), nl.float32, nl.shared_hbm)

    def body(r):
        nisa.tensor_tensor(total, total, value, nl.add)
        nisa.tensor_scalar(left, left, nl.subtract, 1.0)
        nisa.register_load(r, left)
        return r

    condition = nisa.register_alloc()
    nisa.register_load(condition, left)
    nl.while_loop(condition, body)
    nisa.dma_copy(out, total)
    return out


@pytest.mark.parametrize("passes", [0, 1, 5])
def test_while_loop(passes):
    x, start = TABLE[3:5], np.array([[passes]], np.int32)
    np.testing.assert_array_equal(run(countdown, x, start), passes * x[0:1])
    real, traced = counted(countdown, x, start), dry(countdown, Spec(x.shape, nl.float32), start)
    assert traced.executed == real.executed
    assert real.executed["tensor_tensor"] == passes


def test_a_loop_without_passes_leaves_psum_as_it_was():
    """Its body counts as program only: what follows may start its accumulation on the same tile."""

    def body(x, count):
        tile, psum = nl.load(x), nl.ndarray((2, 2), nl.float32, nl.psum)
        passes, out = nisa.register_alloc(), nl.ndarray((2, 2), nl.float32)
        nisa.register_load(passes, nl.load(count))

        def step(i):
            nisa.nc_matmul(psum, tile, tile)
            nisa.tensor_copy(out, psum)

        nl.fori_loop(0, passes, step)
        nisa.nc_matmul(psum, tile, tile)

    trace = dry(body, Spec((20, 2), nl.float32), np.zeros((1, 1), np.int32))
    assert (trace.static["nc_matmul"], trace.executed["nc_matmul"]) == (2, 1)
    with pytest.raises(SimulationError, match="whose last group was read already"):
        dry(body, Spec((20, 2), nl.float32), np.ones((1, 1), np.int32))


def test_while_loop_body_returns_the_condition():
    with pytest.raises(SimulationError, match="must return the register"):
        run(lambda x: nl.while_loop(nisa.register_alloc(1), lambda r: None), TABLE)


def test_dynamic_range_warns_and_works(monkeypatch):
    monkeypatch.setenv("TRNQC_NKI", "0.6")

    def body(x):
        out = nl.ndarray(x.shape, nl.float32, nl.shared_hbm)
        for i in nl.dynamic_range(0, 20, 3):
            nisa.dma_copy(out.ap([[2, 1], [1, 2]], scalar_offset=i), x[0:1])
        return out

    with pytest.warns(DeprecationWarning, match="use nl.fori_loop"):
        got = run(body, TABLE)
    np.testing.assert_array_equal(got[::3], np.tile(TABLE[0], (7, 1)))


def test_dynamic_range_does_not_exist_in_nki_07(monkeypatch):
    def body(x):
        for _ in nl.dynamic_range(3):
            pass

    monkeypatch.setenv("TRNQC_NKI", "0.7")
    with pytest.raises(SimulationError, match=r"does not exist in NKI 0\.7; use nl\.fori_loop"):
        run(body, TABLE)
    monkeypatch.setenv("TRNQC_NKI", "0.8")
    with pytest.raises(SimulationError, match=r"TRNQC_NKI must be one of 0\.6, 0\.7, got '0\.8'"):
        run(body, TABLE)


def test_bodies_that_change_from_pass_to_pass_are_refused():
    def body(x):
        sizes = [1]

        def step(i):
            for _ in sizes:
                nisa.memset(nl.ndarray((1, 1), nl.float32), 0)
            sizes.append(1)

        nl.fori_loop(0, 3, step)

    for start in (run, dry):
        with pytest.raises(SimulationError, match="issued 1 instructions in its first pass and 2 in a later one"):
            start(body, TABLE)


def test_nested_loops_multiply():
    def body(x):
        def outer(i):
            nl.fori_loop(0, 3, lambda j: nisa.memset(nl.ndarray((1, 1), nl.float32), 0))

        nl.fori_loop(0, 5, outer)

    for counts in (counted(body, TABLE), dry(body, TABLE)):
        assert (counts.static["memset"], counts.executed["memset"]) == (1, 15)


def test_a_trace_refuses_trip_counts_that_may_vary():
    def body(x, counts):
        tile = nl.load(counts)

        def outer(i):
            inner = nisa.register_alloc()
            nisa.register_load(inner, tile.ap([[4, 1], [1, 1]], scalar_offset=i, indirect_dim=1))
            nl.fori_loop(0, inner, lambda j: nisa.memset(nl.ndarray((1, 1), nl.float32), 0))

        nl.fori_loop(0, 4, outer)

    counts = np.array([[1, 2, 3, 4]], np.int32)
    assert counted(body, TABLE, counts).executed["memset"] == 10
    with pytest.raises(SimulationError, match="the trip count may differ from pass to pass"):
        dry(body, TABLE, counts)


def test_the_loop_index_belongs_to_the_loop(monkeypatch):
    monkeypatch.delenv("TRNQC_NKI", raising=False)
    with pytest.raises(SimulationError, match="is a loop index, which the loop alone may change"):
        run(lambda x: nl.fori_loop(0, 2, lambda i: nisa.register_move(i, 0)), TABLE)


@pytest.mark.parametrize("step", [0, -1, 1.5, True])
def test_steps_are_positive_constants(step):
    with pytest.raises(SimulationError, match="step must be a positive compile-time integer"):
        run(lambda x: nl.fori_loop(0, 2, lambda i: None, step), TABLE)


def test_no_device_loops_where_order_is_kept():
    def body(x):
        with nl.no_reorder():
            nl.fori_loop(0, 2, lambda i: None)

    with pytest.raises(SimulationError, match=r"not allowed inside nl\.no_reorder"):
        run(body, TABLE)


def test_registers_move_load_and_store():
    def body(x, n):
        tile, out = nl.load(n), nl.ndarray((1, 3), nl.int32, nl.shared_hbm)
        a, b = nisa.register_alloc(2**31 + 5), nisa.register_alloc()
        nisa.register_load(b, tile)
        nisa.register_store(out[:, 0], a)
        nisa.register_store(out[:, 1], b)
        nisa.register_move(a, b)
        nisa.register_store(out[:, 2], a)
        return out

    got = run(body, TABLE, np.array([[-7]], np.int32))
    np.testing.assert_array_equal(got, [[5 - 2**31, -7, -7]])


def test_traces_do_not_guess_values_that_come_from_floats():
    def body(x):
        whole, register = nl.ndarray((1, 1), nl.int32), nisa.register_alloc()
        nisa.dma_copy(whole, x[0:1, 0:1])
        nisa.register_load(register, whole)
        nl.fori_loop(0, register, lambda i: None)

    run(body, TABLE)
    with pytest.raises(SimulationError, match="depends on floating-point data, which a trace does not compute"):
        dry(body, TABLE)


def test_integers_are_computed_in_traces():
    def body(x):
        one, register = nl.full((1, 1), 3, nl.int32), nisa.register_alloc()
        nisa.tensor_tensor(one, one, one, nl.multiply)
        nisa.register_load(register, one)
        nl.fori_loop(0, register, lambda i: nisa.memset(nl.ndarray((1, 1), nl.float32), 0))

    assert dry(body, Spec((2, 2), nl.float32)).executed["memset"] == 10


def of_core(*lowest, nested=False):
    """Rows of a table copied by each core, from ``lowest[core]`` to row 5 in a device loop; None for no loop."""

    def body(x):
        out, tile = nl.ndarray(x.shape, nl.float32, nl.shared_hbm), nl.ndarray((1, 2), nl.float32)
        lower = lowest[nl.program_id(0)]

        def copy(i):
            nisa.dma_copy(tile, x.ap([[2, 1], [1, 2]], scalar_offset=i))
            nisa.dma_copy(out.ap([[2, 1], [1, 2]], scalar_offset=i), tile)

        def outer(i):
            nl.fori_loop(lower, 5, copy)

        if lower is not None:
            nl.fori_loop(0, 2, outer) if nested else nl.fori_loop(lower, 5, copy)
        return out

    return body


def line_of(text):
    """The number of the first line of this file that holds a text."""
    with open(__file__) as file:
        return next(n for n, line in enumerate(file, 1) if text in line)


@pytest.mark.parametrize(
    ("lowest", "counts"),
    [
        ((0, 2), "makes 5 passes on core 0 and 3 on core 1"),
        ((5, 4), "makes 0 passes on core 0 and 1 on core 1"),
        ((0, None), "makes 5 passes on core 0, and core 1 does not reach it"),
        ((None, 0), "makes 5 passes on core 1, and core 0 does not reach it"),
    ],
)
def test_cores_must_run_device_loops_equally_often(lowest, counts):
    place = f"{__file__}:{line_of('if nested else nl.fori_loop(lower')}"
    with pytest.raises(SimulationError, match=f"the device loop at {place} {counts}"):
        run(of_core(*lowest), TABLE, cores=2)
    with pytest.raises(SimulationError, match=counts):
        trace(jit(of_core(*lowest))[2])(Spec(TABLE.shape, nl.float32))


def test_inner_device_loops_are_counted_too():
    with pytest.raises(SimulationError, match="makes 4 passes on core 0 and 3 on core 1"):
        run(of_core(1, 2, nested=True), TABLE, cores=2)


def test_cores_may_have_different_items():
    def body(x):
        out, tile = nl.ndarray(x.shape, nl.float32, nl.shared_hbm), nl.ndarray((1, 2), nl.float32)

        def copy(i):
            nisa.dma_copy(tile, x.ap([[2, 1], [1, 2]], scalar_offset=i))
            nisa.dma_copy(out.ap([[2, 1], [1, 2]], scalar_offset=i), tile)

        first = 10 * nl.program_id(0)
        nl.fori_loop(first, first + 10, copy)
        return out

    np.testing.assert_array_equal(run(body, TABLE, cores=2), TABLE)


def test_a_lenient_run_reports_unequal_loops_at_their_line(monkeypatch):
    monkeypatch.setenv("TRNQC_SIM_RULES", "warn")
    forget()
    with pytest.warns(RuleWarning, match="makes 5 passes on core 0 and 3 on core 1"):
        run(of_core(0, 2), TABLE, cores=2)
    (finding,) = reported()
    assert finding.effect == "undefined" and finding.line == line_of("if nested else nl.fori_loop(lower")
    forget()
