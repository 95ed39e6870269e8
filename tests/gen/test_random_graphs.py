"""On random graphs, every order, simplification and number of lanes gives the same numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as s

from tests.gen.programs import run_both
from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen import values as v
from trnqc.gen.graph import Graph, graph_of
from trnqc.gen.interpreter import evaluate, run
from trnqc.gen.liveness import allocate, lifetimes, live_counts, overlap, peak_live
from trnqc.gen.schedule import METHODS, best_of
from trnqc.gen.sequence import straight_line

INPUT, UNIFORM = Array("x", "f64", (4,), lanes=True), Array("u", "f64", (2,))
BINARY = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: v.select(v.lt(a, b), a, b * 0.5),
    v.minimum,
    v.maximum,
    lambda a, b: a / (b * b + 1.0),
)
UNARY = (lambda a: -a, lambda a: v.sqrt(a * a), lambda a: a * 1.0, lambda a: a * 2.0 + 0.0, lambda a: a / 4.0)


@s.composite
def targets(draw) -> tuple[Value, ...]:
    """Some results over shared intermediates, leaves that differ by lane, leaves that do not, and numbers."""
    pool: list[Value] = [*(INPUT[n] for n in range(4)), *(UNIFORM[n] for n in range(2)), const(0.5), const(-3.0)]
    for _ in range(draw(s.integers(1, 14))):
        a = pool[draw(s.integers(0, len(pool) - 1))]
        b = pool[draw(s.integers(0, len(pool) - 1))]
        operation = draw(s.integers(0, len(BINARY) + len(UNARY) - 1))
        if operation < len(BINARY):
            pool.append(BINARY[operation](a, b))
        elif isinstance(a, Value):
            pool.append(UNARY[operation - len(BINARY)](a))
    operations = [p for p in pool[8:] if p.op != "const"] or [pool[0] + 1.0]
    return tuple(dict.fromkeys(operations[-draw(s.integers(1, 3)) :]))


@s.composite
def graphs(draw) -> Graph:
    size = draw(s.integers(1, 8))
    operands = [tuple(u for u in range(w) if draw(s.integers(0, 2)) == 0) for w in range(size)]
    inputs = tuple(w for w in range(size) if not operands[w] and draw(s.booleans()))
    used = {u for needed in operands for u in needed}
    return Graph(tuple(operands), tuple(w for w in range(size) if w not in used), inputs)


def program(results: tuple[Value, ...], method: str, slots: bool = False) -> st.Function:
    graph = graph_of(results)
    order = METHODS[method](graph, lambda: 0.0)
    out = Array("out", "f64", (len(results),), lanes=True)
    places: dict[Value, list[int]] = {}
    for n, r in enumerate(results):
        places.setdefault(r, []).append(n)
    lines, _ = straight_line(
        graph,
        order,
        slots=allocate(graph, order) if slots else None,
        finish=lambda node, variable: [st.store(out[n], variable) for n in places[node]],
    )
    rest = [st.store(out[n], r) for r in results if r.op in ("load", "const") for n in places[r]]
    return st.Function("graph", (INPUT, UNIFORM, out), st.block(lines, rest))


def arguments(results: tuple[Value, ...], lanes: int) -> dict:
    rng = np.random.default_rng(len(results))
    return {"x": rng.normal(size=(4, lanes)), "u": rng.normal(size=2), "out": np.zeros((len(results), lanes))}


def reference(results: tuple[Value, ...], inputs: dict) -> np.ndarray:
    lanes = inputs["x"].shape[1]
    columns = [[evaluate(r, {"x": inputs["x"][:, l], "u": inputs["u"]}) for r in results] for l in range(lanes)]
    return np.array(columns).T


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(results=targets(), lanes=s.sampled_from([1, 4, 8]), method=s.sampled_from(sorted(METHODS)), slots=s.booleans())
def test_compiled_equals_interpreted_to_the_last_bit(results, lanes, method, slots):
    inputs = arguments(results, lanes)
    ours, theirs = run_both(program(results, method, slots), inputs, lanes)
    np.testing.assert_array_equal(ours["out"], theirs["out"])
    np.testing.assert_array_equal(ours["out"], reference(results, inputs))


@settings(max_examples=60, deadline=None)
@given(results=targets())
def test_every_order_gives_the_same(results):
    inputs = arguments(results, 2)
    want = reference(results, inputs)
    for method, slots in itertools.product(METHODS, (False, True)):
        inputs["out"][:] = np.nan
        run(program(results, method, slots), inputs, lanes=2)
        np.testing.assert_array_equal(inputs["out"], want)


@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_orders_are_orders_and_no_better_than_the_best(graph):
    lowest = (
        min(peak_live(graph, p) for p in itertools.permutations(graph.computed) if valid(graph, p))
        if len(graph.computed) <= 6
        else 0
    )
    for method in METHODS:
        order = best_of(graph, method, draws=3)
        graph.check(order)
        assert peak_live(graph, order) >= lowest
        assert order == best_of(graph, method, draws=3)


def valid(graph: Graph, order) -> bool:
    done = set(graph.inputs)
    for w in order:
        if not done.issuperset(graph.operands[w]):
            return False
        done.add(w)
    return True


@settings(max_examples=40, deadline=None)
@given(graph=graphs(), method=s.sampled_from(sorted(METHODS)))
def test_slots_never_hold_two_values_and_are_as_few_as_can_be(graph, method):
    order = best_of(graph, method, draws=2)
    slots, lives = allocate(graph, order), lifetimes(graph, order)
    for a, b in itertools.combinations(lives, 2):
        assert not (overlap(a, b) and slots.place[a.node] == slots.place[b.node])
    assert slots.count == max(peak_live(graph, order), sum(1 for w in graph.inputs if graph.users[w]))


def test_live_counts_of_a_known_graph():
    """x0 and x1 are given; a = x0 x1, b = a + x0, c = a + b: at a three live, x1 having been read for the last time."""
    graph = Graph(((), (), (0, 1), (0, 2), (2, 3)), (4,), (0, 1))
    assert live_counts(graph, (2, 3, 4)) == [2, 2, 1]
    assert allocate(graph, (2, 3, 4)).count == 2


@pytest.mark.parametrize("width", [2, 5, 11])
def test_a_reduction_tree_needs_logarithmic_space(width):
    """Completing targets depth first keeps one partial sum a level; level order keeps half the leaves."""
    leaves = [INPUT[0] * float(n + 2) for n in range(2**width if width < 6 else 64)]
    row = leaves
    while len(row) > 1:
        row = [a + b for a, b in zip(row[::2], row[1::2])]
    graph = graph_of(row)
    assert peak_live(graph, METHODS["target"](graph, lambda: 0.0)) <= math.log2(len(leaves)) + 1
    assert peak_live(graph, METHODS["level"](graph, lambda: 0.0)) == len(leaves)
