"""Scalars of NKI 0.7: loading, storing, arithmetic, addressing and loop bounds."""

import numpy as np
import pytest

from tests.sim.running import counted, dry, run
from trnqc.errors import SimulationError
from trnqc.sim import Spec
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

TABLE = np.arange(40, dtype=np.float32).reshape(20, 2)


@pytest.fixture(autouse=True)
def nki_07(monkeypatch):
    monkeypatch.setenv("TRNQC_NKI", "0.7")


def stored(expression):
    """A kernel that evaluates ``expression(i, j)`` for the scalars i, j in a (1, 2) tensor."""

    def body(values):
        tile, out = nl.load(values), nl.ndarray((1, 1), nl.int32, nl.shared_hbm)
        nisa.scalar_store(out, expression(nisa.scalar_load(tile[:, 0]), nisa.scalar_load(tile[:, 1])))
        return out

    return body


@pytest.mark.parametrize(
    "expression",
    [
        lambda i, j: i + j,
        lambda i, j: i - j,
        lambda i, j: i * j,
        lambda i, j: 7 - i * 4 + 1,
        lambda i, j: 3 * i + (-j),
        lambda i, j: +j,
    ],
)
def test_arithmetic(expression):
    values = np.array([[100, -3]], np.int32)
    assert run(stored(expression), values)[0, 0] == expression(100, -3)


def test_32_bits_wrap():
    """The example of the vendor's page `nki.isa.NkiScalar`."""
    assert run(stored(lambda i, j: i * i), np.array([[100000, 0]], np.int32))[0, 0] == 1410065408
    assert run(stored(lambda i, j: i + 1), np.array([[2**31 - 1, 0]], np.int32))[0, 0] == -(2**31)


def test_loop_indices_and_bounds_are_scalars():
    def body(x, bounds):
        tile, out = nl.load(bounds), nl.ndarray(x.shape, nl.float32, nl.shared_hbm)

        def copy(i):
            assert isinstance(i, nisa.NkiScalar)
            nisa.dma_copy(out.ap([[2, 1], [1, 2]], scalar_offset=i + 1), x.ap([[2, 1], [1, 2]], scalar_offset=i))

        nl.fori_loop(nisa.scalar_load(tile[:, 0]), nisa.scalar_load(tile[:, 1]) - 1, copy)
        return out

    bounds = np.array([[2, 9]], np.int32)
    np.testing.assert_array_equal(run(body, TABLE, bounds)[3:9], TABLE[2:8])
    assert dry(body, Spec(TABLE.shape, nl.float32), bounds).executed == counted(body, TABLE, bounds).executed


def test_a_register_as_bound_makes_the_index_a_register():
    kinds = []

    def body(x):
        register = nisa.register_alloc(3)
        nl.fori_loop(0, register, lambda i: kinds.append(type(i)))
        nl.fori_loop(0, 3, lambda i: kinds.append(type(i)))

    run(body, TABLE)
    assert kinds == [nisa.VirtualRegister] * 3 + [nisa.NkiScalar] * 3


@pytest.mark.parametrize(
    "expression, message",
    [
        (lambda i, j: i == j, "scalar_store value is the result of a comparison"),
        (lambda i, j: (i < j) + 1, "add operand is the result of a comparison"),
        (lambda i, j: 3, "scalar_store value must be an NkiScalar, got 3; write numbers with memset"),
    ],
)
def test_what_nothing_accepts(expression, message):
    with pytest.raises(SimulationError, match=message):
        run(stored(expression), np.ones((1, 2), np.int32))


@pytest.mark.parametrize(
    "expression", [lambda i, j: i if i < j else j, lambda i, j: i // 2, lambda i, j: i + 1.5, lambda i, j: range(i)]
)
def test_scalars_have_no_python_value(expression):
    with pytest.raises(TypeError, match=r"NkiScalar"):
        run(stored(expression), np.ones((1, 2), np.int32))


def test_comparisons_neither_move_views_nor_bound_loops():
    def offset(x):
        nl.fori_loop(0, 3, lambda i: x.ap([[2, 1], [1, 2]], scalar_offset=i > 0))

    def bound(x):
        nl.fori_loop(0, 3, lambda i: nl.fori_loop(0, i != 1, lambda j: None))

    with pytest.raises(SimulationError, match="scalar that is not the result"):
        run(offset, TABLE)
    with pytest.raises(SimulationError, match="fori_loop upper is the result of a comparison"):
        run(bound, TABLE)


def test_tiles_of_other_dtypes_are_refused():
    with pytest.raises(SimulationError, match="scalar_load src must be an int32 tensor, got uint32"):
        run(stored(lambda i, j: i), np.ones((1, 2), np.uint32))


@pytest.mark.parametrize("name, instead", [("scalar_load", "register_load"), ("scalar_store", "register_store")])
def test_nki_06_has_no_scalars(monkeypatch, name, instead):
    def body(x):
        getattr(nisa, name)(*(x,) * (1 + (name == "scalar_store")))

    monkeypatch.delenv("TRNQC_NKI")
    with pytest.raises(SimulationError, match=rf"nisa\.{name} does not exist in NKI 0\.6; use nisa\.{instead}"):
        run(body, TABLE)
