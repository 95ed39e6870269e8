"""The times of single instructions are those of the table."""

import pytest

from tests.sim.timing import P, bars, cycles, psum, sbuf, timed
from trnqc.sim import NkiValidationError, Spec
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl
from trnqc.sim.timeline.costs import ASSUMED, TABLE, constants_for, listing


def one(issue, engine, target="trn2"):
    """Cycles of the only instruction of ``issue`` on ``engine``."""
    timeline = timed(issue, target=target)
    (event,) = [e for e in bars(timeline, engine) if e.queue != "weights"]
    return cycles(timeline, event)


def matmul(columns, dtype, rows=P, depth=P):
    def issue():
        left, right = sbuf(rows, depth, dtype), sbuf(columns, depth, dtype)
        nisa.nc_matmul(dst=psum(columns, rows), stationary=left, moving=right)

    return issue


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize(
    ("columns", "dtype", "expected"),
    [
        (512, nl.bfloat16, 512),
        (512, nl.float32, 4 * 512),
        (129, nl.float32, 4 * 129),
        (1, nl.bfloat16, 64),
        (65, nl.bfloat16, 65),
        (512, nl.tfloat32, 512),
    ],
)
def test_matmul(columns, dtype, expected, target):
    assert one(matmul(columns, dtype), "tensor", target) == pytest.approx(expected)


def test_double_row_takes_two_contraction_rows_a_cycle():
    def issue():
        left = nl.ndarray((P, 2, P), dtype=nl.float8_e4m3, buffer=nl.sbuf)
        right = nl.ndarray((P, 2, 512), dtype=nl.float8_e4m3, buffer=nl.sbuf)
        mode = nisa.matmul_perf_mode.double_row
        nisa.nc_matmul(dst=psum(512), stationary=left, moving=right, perf_mode=mode)

    assert one(issue, "tensor") == pytest.approx(512)
    assert timed(issue).summary()["model_flops"] == 2 * 256 * 128 * 512


def vector(columns, op, dtype=nl.float32, source=sbuf):
    def issue():
        dst, data = sbuf(columns, dtype=dtype), source(columns) if source is psum else sbuf(columns, dtype=dtype)
        if op == "tensor_tensor":
            nisa.tensor_tensor(dst=dst, data1=data, data2=sbuf(columns, dtype=dtype), op=nl.multiply)
        elif op == "reciprocal":
            nisa.reciprocal(dst=dst, data=data)
        elif op == "tensor_copy":
            nisa.tensor_copy(dst=dst, src=data)
        elif op == "tensor_reduce":
            nisa.tensor_reduce(dst=dst[0:P, 0:1], op=nl.add, data=data, axis=1)
        else:
            nisa.tensor_scalar(dst=dst, data=data, op0=nl.add, operand0=1.0)

    return issue


@pytest.mark.parametrize(
    ("op", "columns", "dtype", "source", "expected"),
    [
        ("tensor_tensor", 512, nl.float32, sbuf, 1024),
        ("tensor_tensor", 512, nl.float32, psum, 512),
        ("tensor_tensor", 512, nl.bfloat16, sbuf, 512),
        ("tensor_scalar", 512, nl.float32, sbuf, 512),
        ("tensor_scalar", 1000, nl.bfloat16, sbuf, 250),
        ("tensor_copy", 512, nl.float32, psum, 512),
        ("reciprocal", 131, nl.float32, sbuf, 8 * 131),
        ("tensor_reduce", 640, nl.float32, sbuf, 640),
        ("tensor_scalar", 1, nl.float32, sbuf, 64 + 100),
        ("tensor_scalar", 127, nl.float32, sbuf, 127 + 100),
    ],
)
def test_vector(op, columns, dtype, source, expected):
    assert one(vector(columns, op, dtype, source), "vector") == pytest.approx(expected)


def test_first_generation_has_no_fast_modes():
    assert one(vector(1000, "tensor_scalar", nl.bfloat16), "vector", "trn1") == pytest.approx(1000)


def test_a_far_stride_halves_the_rate():
    def issue():
        nisa.tensor_copy(dst=sbuf(512), src=sbuf(4096)[0:P, 0:4096:8])

    assert one(issue, "vector") == pytest.approx(2 * 512)


@pytest.mark.parametrize("read_out", [False, True])
def test_activation(read_out):
    def issue():
        tile = sbuf(512)
        more = (
            {"reduce_op": nl.add, "reduce_res": sbuf(1), "reduce_cmd": nisa.reduce_cmd.reset_reduce} if read_out else {}
        )
        nisa.activation(dst=tile, op=nl.exp, data=tile, **more)

    assert one(issue, "scalar") == pytest.approx(512 + 64 * read_out)


def test_gpsimd_starts_slowly():
    def issue():
        nisa.iota(dst=sbuf(300, dtype=nl.int32), pattern=[[1, 300]])

    assert one(issue, "gpsimd") == pytest.approx(150 + 300)


def test_dependent_elements_of_scalar_engine_take_264_cycles():
    """The one published interval: 189 ns on NeuronCore-v2."""

    def issue():
        tile = sbuf(1)
        for _ in range(5):
            nisa.activation(dst=tile, op=nl.copy, data=tile)

    starts = [e.start_ns for e in bars(timed(issue, target="trn1"), "scalar")]
    assert starts[-1] - starts[-2] == pytest.approx(264 / 1.4)


def test_every_constant_says_where_it_is_from():
    names = [c.name for c in TABLE]
    assert len(names) == len(set(names))
    for c in TABLE:
        assert c.meaning and c.source and min(c.values) >= 0
        assert f"{c.name} " in listing("trn1")
    assert any(c.assumed and c.source == ASSUMED for c in TABLE)


def test_constants_can_be_overridden_by_name_only():
    assert constants_for("trn2", {"launch_ns": 7})["launch_ns"] == 7
    with pytest.raises(NkiValidationError, match="must be one of"):
        constants_for("trn2", {"lunch_ns": 7})
    with pytest.raises(NkiValidationError, match="not be negative"):
        constants_for("trn2", {"launch_ns": -1})


def test_launching_is_extra_and_adjustable():
    body, x = (lambda x: nisa.dma_copy(dst=sbuf(4), src=x)), Spec((P, 4), "float32")
    free = timed(body, x, constants={"launch_ns": 0, "program_start_ns": 0, "program_stop_ns": 0}).summary()
    assert free["total_time_with_launch"] == free["total_time"]
    paid = timed(body, x, constants={"launch_ns": 1e6, "program_start_ns": 0, "program_stop_ns": 0}).summary()
    assert paid["total_time_with_launch"] - paid["total_time"] == pytest.approx(1e-3)
    assert paid["total_time"] == free["total_time"]
