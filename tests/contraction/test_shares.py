"""Programs that ranks compute together, with threads as ranks: numbers, bits, predicted messages, limits, refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contraction.thread_ranks import on_ranks
from trnqc.contraction import einsum_plan, parse
from trnqc.contraction.cost.rates import RELATIVE_RATES
from trnqc.contraction.ranks import program as shared_programs
from trnqc.contraction.ranks.agreement import require_same_program
from trnqc.contraction.ranks.exchange import RankExchange
from trnqc.contraction.ranks.program import over_ranks
from trnqc.contraction.shares import search
from trnqc.contraction.shares.local_parts import cut
from trnqc.contraction.shares.options import Link
from trnqc.contraction.shares.search import divide
from trnqc.errors import InputError, MemoryLimit, UnsupportedError
from trnqc.ranks import ALONE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OUTPUTS = ("n1", "n2", "energy")


def symmetric_array(rng, tensor, shape):
    """Random numbers with the declared symmetry of a tensor."""
    x = rng.standard_normal(shape)
    for exchange in tensor.every_exchange:
        x = x + exchange.sign * x.transpose(exchange.order(x.ndim))
    # Exchanges that do not commute need a second turn.
    for exchange in tensor.every_exchange:
        x = x + exchange.sign * x.transpose(exchange.order(x.ndim))
    return x


def closed_shells(nocc=5, nvir=7):
    """(program of an iteration of coupled cluster, its operands)."""
    program = parse((EXAMPLES / "rccsd.txt").read_text(encoding="utf-8")).sized(o=nocc, v=nvir)
    rng = np.random.default_rng(3)
    arrays = {
        t.name: symmetric_array(rng, t, tuple(space.extent for space in t.spaces))
        for t in program.tensors
        if t.name in program.inputs
    }
    return program, arrays


@pytest.fixture(autouse=True)
def no_measured_rates(monkeypatch):
    """Rates of arithmetic are those of no machine; measuring them takes long."""
    monkeypatch.setattr(shared_programs, "machine_rates", lambda: RELATIVE_RATES)


@pytest.fixture
def random_times(monkeypatch):
    """Random times of all ways to compute a part, so that each of them is the fastest sometimes."""
    real = search.options

    def use(seed):
        rng = np.random.default_rng(seed)

        def options(*arguments):
            return [replace(option, seconds=10 ** rng.uniform(-4, 0)) for option in real(*arguments)]

        monkeypatch.setattr(search, "options", options)

    return use


def compare(found, expected):
    for name, x in expected.items():
        assert abs(found[name] - x).max() <= 1e-12 * abs(x).max(), name


@cache
def planned(limit=None):
    """(plan of an iteration of coupled cluster within a limit, operands)."""
    program, arrays = closed_shells()
    return einsum_plan(program, arrays, outputs=OUTPUTS, memory_limit=limit, max_slowdown=None), arrays


@pytest.mark.parametrize(("size", "seed", "limit"), [(2, 0, None), (3, 1, None), (2, 2, 200_000), (3, 3, 200_000)])
def test_an_iteration_of_coupled_cluster_however_it_is_divided(size, seed, limit, random_times):
    """The same numbers as on one rank, the same bits on all ranks, and messages of the planned size."""
    plan, arrays = planned(limit)
    random_times(seed)

    def work(ranks):
        shared = over_ranks(plan, ranks)
        ranks.bytes = 0
        return shared.run(arrays), shared.received, ranks.bytes, shared.division

    results = on_ranks(size, work)
    expected = planned()[0].run(arrays)
    for found, received, counted, division in results:
        compare(found, expected)
        assert received == counted and division.ranks == size
        assert all(found[name].tobytes() == results[0][0][name].tobytes() for name in OUTPUTS)
    division = results[0][3]
    assert sum(received for _, received, _, _ in results) == division.received_bytes > 0
    assert f"{division.received_bytes / 1e6:.4g} MB in fp64" in division.text(plan)


PROGRAM = """
space o = 4 + 3
space v = 5 + 4
index i j k : o
index a b c : v
tensor t[o,o,v,v] antisymmetric(0,1) antisymmetric(2,3) conserving(0,1|2,3)
tensor w[v,v,o,o] conserving(0,1|2,3)
tensor x[o,v]
function f[o,v] cost 3
X[i,j] = t[i,k,a,b] * w[a,b,j,k]
R[i,a] = X[i,j] * f[j,a] + 2 * x[i,a] / f[i,a]
R[i,a] += X[j,i] * x[j,a] - X[k,k] * x[i,a]
E = R[i,a] * f[i,a] + X[i,i]
"""


@pytest.mark.parametrize(("size", "seed"), [(2, 0), (2, 1), (3, 2), (4, 3)])
def test_blocks_functions_diagonals_and_scalars(size, seed, random_times):
    rng = np.random.default_rng(5)
    full = 1 + rng.random((7, 9))
    t = rng.standard_normal((7, 7, 9, 9))
    t = t - t.transpose(1, 0, 2, 3)
    t = t - t.transpose(0, 1, 3, 2)
    operands = {"t": t, "w": rng.standard_normal((9, 9, 7, 7)), "x": rng.standard_normal((7, 9))}
    operands["f"] = lambda i, a: full[i, a]
    plan = einsum_plan(PROGRAM, outputs=("R", "E"))
    random_times(seed)

    def work(ranks):
        shared = over_ranks(plan, ranks)
        return shared.run(**operands), shared.received, shared.division

    results = on_ranks(size, work)
    expected = plan.run(operands)
    for found, _, _ in results:
        compare(found, expected)
        assert found["E"].shape == ()
    assert sum(received for _, received, _ in results) == results[0][2].received_bytes > 0


def test_one_rank_sends_nothing_and_gives_the_bits_of_the_plan():
    plan, arrays = planned()
    shared = over_ranks(plan, ALONE)
    found, expected = shared.run(arrays), plan.run(arrays)
    assert all(found[name].tobytes() == expected[name].tobytes() for name in OUTPUTS)
    assert shared.received == shared.division.received == 0


def chain(n=64, last="A"):
    return einsum_plan(
        f"space n = {n}\nindex i j k l : n\ntensor A[n,n]\ntensor B[n,n]\n"
        "X[i,j] = A[i,k] * B[k,j]\n"
        f"R[i,j] = X[i,k] * {last}[k,j]"
    )


def test_the_division_follows_the_rates():
    """Dear messages: every rank computes all. Cheap ones: both products are divided over one label, without a message
    between them."""
    plan = chain()
    alone = divide(plan, 2, RELATIVE_RATES, Link(1e9, 1e9))
    assert {label for step in alone.steps for label in step.labels} == {None} and alone.received == 0
    shared = divide(plan, 2, RELATIVE_RATES, Link(4.0, 1.0))
    assert [step.labels for step in shared.steps] == [("i",), ("i",)]
    assert shared.received == 64 * 64 and shared.gathered == ("R",)
    assert shared.seconds < 0.7 * shared.alone


def test_a_limit_keeps_a_rank_from_gathering():
    """R over j needs all of X on every rank; a rank that has room for half of X only computes R over i."""
    plan, link = chain(last="B"), Link(1e-3, 1.0)
    free = divide(plan, 2, RELATIVE_RATES, link)
    assert [step.whole for step in free.steps] == [False, False]
    little = divide(plan, 2, RELATIVE_RATES, link, limit=64 * 64 + 600)
    assert {axis for step in little.steps for axis in [step.axis]} == {0} and little.received == 64 * 64
    with pytest.raises(MemoryLimit, match=r"by 2 ranks within 100 elements of memory each.*raise memory_limit"):
        divide(plan, 2, RELATIVE_RATES, link, limit=100)


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    axis=st.integers(0, 2),
    size=st.integers(1, 4),
    piece=st.integers(1, 40),
)
@settings(max_examples=40, deadline=None)
def test_gathering_and_adding(shape, axis, size, piece):
    axis %= len(shape)
    rng = np.random.default_rng(size)
    terms = rng.standard_normal((size, *shape)).swapaxes(1, -1)
    whole = np.add.reduce([terms[0], *terms[1:]])
    shape = whole.shape

    def work(ranks):
        exchange = RankExchange(ranks, piece)
        own = exchange.added(terms[ranks.rank], axis)
        ranges = exchange.received
        return own, exchange.gathered(own, axis, shape[axis]), exchange.total(terms[ranks.rank]), ranges

    results = on_ranks(size, work)
    for rank, (own, gathered, total, _) in enumerate(results):
        np.testing.assert_allclose(own, whole.take(range(shape[axis])[cut(shape[axis], size, rank)], axis), rtol=1e-12)
        np.testing.assert_allclose(gathered, whole, rtol=1e-12, atol=1e-15)
        assert gathered.tobytes() == results[0][1].tobytes() and total.tobytes() == results[0][2].tobytes()
        np.testing.assert_allclose(total, whole, rtol=1e-12, atol=1e-15)
    assert sum(ranges for *_, ranges in results) == (size - 1) * whole.nbytes


def test_another_program_on_one_rank_is_refused_before_anything_runs():
    first = chain()
    other = chain(last="B")
    errors = []

    def work(ranks):
        try:
            over_ranks(other if ranks.rank else first, ranks)
        except InputError as error:
            errors.append(str(error))

    on_ranks(2, work)
    assert len(errors) == 2 and all("rank 1 has another version of the program than rank 0" in x for x in errors)
    assert any("its program is 'R[i,j] = X[i,k] * B[k,j]'" in x for x in errors)
    with pytest.raises(InputError, match=r"its shapes is .*give all ranks the same"):
        on_ranks(1, lambda ranks: require_same_program(chain(5), Pretending(ranks, chain(6))))


class Pretending:
    """A rank whose rank 0 has another program."""

    def __init__(self, ranks, plan):
        self.ranks, self.plan = ranks, plan
        self.rank, self.size = 0, 1

    def at_first(self, make):
        return make() | {"shapes": str(sorted(self.plan.shapes.items()))}

    def sum(self, array):
        return array


def test_operands_that_differ_between_ranks_are_refused():
    plan = chain(6)

    def work(ranks):
        A = np.full((6, 6), 1.0 + ranks.rank)
        over_ranks(plan, ranks).run(A=A, B=np.ones((6, 6)))

    with pytest.raises(InputError, match="rank 1 has another version of the operands than rank 0"):
        on_ranks(2, work)


def test_what_ranks_do_not_take():
    plan = chain(6)
    with pytest.raises(InputError, match=r"for a grid \(2, 2\) of processors; there are 1 ranks"):
        over_ranks(replace(plan, grid=(2, 2)), ALONE)
    with pytest.raises(InputError, match="B is missing"):
        over_ranks(plan, ALONE).run(A=np.ones((6, 6)))
    with pytest.raises(InputError, match="one or more ranks; found 0"):
        divide(plan, 0, RELATIVE_RATES)
    torch = pytest.importorskip("torch")
    with pytest.raises(UnsupportedError, match="programs of NumPy arrays"):
        on_ranks(2, lambda ranks: over_ranks(plan, ranks).run(A=torch.ones(6, 6), B=torch.ones(6, 6)))
