"""Convolutions against the dense reference: unusual graphs and problems, and reproducible bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from scripts.workloads import tensor_product_oracle as oracle
from scripts.workloads.tensor_products import AWKWARD, awkward
from trnqc.cg.cpu.engine import engine_for
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.errors import OperandError
from trnqc.host.threads import in_parallel

# fp64; fp32 against a reference in fp64.
BOUND = {"float64": 1e-14, "float32": 1e-6}
FEW = ("uvu-5", "mixed", "uvw-shared")


def edges(n_nodes, *pairs):
    rows, cols = (np.array([pair[end] for pair in pairs], np.int64) for end in (0, 1))
    return EdgeGraph(rows, cols, n_nodes)


GRAPHS = {
    "no nodes": edges(0),
    "no edges": edges(3),
    "isolated nodes": edges(6, (1, 4), (4, 1)),
    "self loops": edges(2, (0, 0), (1, 1), (0, 1)),
    "duplicates": edges(3, (0, 1), (0, 1), (2, 1), (0, 1)),
    "one way": edges(4, (0, 1), (0, 2), (0, 3), (1, 3)),
    "unsorted": edges(5, (4, 0), (0, 4), (2, 2), (0, 1), (4, 1), (3, 0), (0, 0)),
    "a hub": edges(30, *((0, n) for n in range(30)), *((n, 0) for n in range(1, 30))),
}


def operands(problem, graph, seed=0, dtype="float64"):
    """x, y, w, gz and ggx, ggy, ggw."""
    rng = np.random.default_rng(seed)
    d1, d2, d3 = problem.dims
    weights = (problem.weight_numel,) if problem.shared_weights else (graph.n_edges, problem.weight_numel)
    shapes = [(graph.n_nodes, d1), (graph.n_edges, d2), weights]
    return [rng.standard_normal(shape).astype(dtype) for shape in (*shapes, (graph.n_nodes, d3), *shapes)]


def results(problem, graph, inputs, dtype="float64", threads=1, **options):
    """z; gx, gy, gw; gx, gy, gw, ggz."""
    engine = engine_for(problem, dtype, threads)
    x, y, w, gz, *gg = inputs
    first = engine.conv_backward(x, y, w, gz, graph, **options)
    second = engine.conv_double_backward(x, y, w, gz, *gg, graph, **options)
    return [engine.conv_forward(x, y, w, graph, **options), *first, *second]


def expected(problem, graph, inputs):
    x, y, w, gz, *gg = (a.astype(np.float64) for a in inputs)
    first = oracle.conv_backward(problem, x, y, w, gz, graph)
    second = oracle.conv_double_backward(problem, x, y, w, gz, *gg, graph=graph)
    return [oracle.conv_forward(problem, x, y, w, graph), *first, *second]


def check(problem, graph, dtype="float64", **options):
    inputs = operands(problem, graph, dtype=dtype)
    for actual, want in zip(results(problem, graph, inputs, dtype, **options), expected(problem, graph, inputs)):
        assert actual.dtype == dtype
        assert oracle.error(actual, want) <= BOUND[dtype]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("label", FEW)
def test_every_kind_of_graph(name, label):
    check(awkward(label), GRAPHS[name])


# Of the programs in fp32 a few stand for all: they differ in the width of a vector. High degrees take long to compile.
@pytest.mark.parametrize(
    "label, dtype",
    [
        pytest.param(label, dtype, marks=[] if label in quick else [pytest.mark.slow])
        for dtype, quick in (("float64", {*AWKWARD} - {"uvu-high"}), ("float32", FEW))
        for label in AWKWARD
    ],
)
def test_every_kind_of_problem(label, dtype):
    check(awkward(label), GRAPHS["unsorted"], dtype)


@pytest.mark.parametrize(
    "label, shared_weights", [pytest.param("uvu-5", True, marks=pytest.mark.slow), ("uvu-y3", False), ("mixed", True)]
)
def test_layout_and_shared_weights(label, shared_weights):
    check(awkward(label, layout="ir_mul", shared_weights=shared_weights), GRAPHS["unsorted"])


@settings(deadline=None, max_examples=12)
@given(some.integers(1, 40), some.integers(0, 120), some.integers(0, 2**32 - 1))
def test_any_graph(n_nodes, n_edges, seed):
    rows, cols = np.random.default_rng(seed).integers(0, n_nodes, (2, n_edges))
    check(awkward("uvu-5"), EdgeGraph(rows, cols, n_nodes))


@pytest.mark.parametrize(
    "label, shared_weights, kahan", [("uvu-5", False, True), ("mixed", False, False), ("uvw-shared", True, False)]
)
def test_equal_bits_for_any_number_of_threads(label, shared_weights, kahan):
    problem = awkward(label, shared_weights=shared_weights)
    rows, cols = np.random.default_rng(3).integers(0, 90, (2, 400))
    graph = EdgeGraph(rows, cols, 90)
    inputs = operands(problem, graph, dtype="float32")
    first = results(problem, graph, inputs, "float32", kahan=kahan)
    for threads in (1, 2, 3, 7):
        again = results(problem, graph, inputs, "float32", threads=threads, kahan=kahan)
        for a, b in zip(first, again):
            np.testing.assert_array_equal(a, b)


def test_shuffled_edges_give_the_same_sums():
    problem, graph = awkward("uvu-17"), GRAPHS["a hub"]
    x, y, w, *_ = operands(problem, graph)
    order = np.random.default_rng(0).permutation(graph.n_edges)
    shuffled = EdgeGraph(graph.rows[order], graph.cols[order], graph.n_nodes)
    engine = engine_for(problem, "float64", 1)
    again = engine.conv_forward(x, y[order], w[order], shuffled)
    assert oracle.error(again, engine.conv_forward(x, y, w, graph)) <= 1e-14


def test_compensated_sums():
    check(awkward("uvu-5"), GRAPHS["unsorted"], kahan=True)
    check(awkward("uvu-5"), GRAPHS["a hub"], "float32", kahan=True)


def test_compensation_keeps_what_plain_sums_lose():
    """A large term first and its opposite last: between them the small ones are lost to rounding."""
    problem, count = awkward("uvu-5"), 2000
    graph = edges(2, *((0, 1),) * count)
    x, y, w, *_ = operands(problem, graph, dtype="float32")
    y[:], w[:] = y[:1], w[:1]
    y[0] *= 3e6
    y[-1] = -y[0]
    exact = oracle.conv_forward(problem, *(a.astype(np.float64) for a in (x, y, w)), graph)
    engine = engine_for(problem, "float32", 1)
    plain, kahan = (oracle.error(engine.conv_forward(x, y, w, graph, kahan=k), exact) for k in (False, True))
    assert plain > 1e-3
    assert kahan < plain / 20


@pytest.mark.parametrize("name", ["conv_forward", "conv_backward", "conv_double_backward"])
def test_written_where_the_caller_wants(name):
    problem, graph = awkward("uvu-5"), GRAPHS["unsorted"]
    inputs = operands(problem, graph)[: {"conv_forward": 3, "conv_backward": 4, "conv_double_backward": 7}[name]]
    call = getattr(engine_for(problem, "float64", 1), name)
    want = call(*inputs, graph)
    out = np.full_like(want, 7) if name == "conv_forward" else [np.full_like(a, 7) for a in want]
    result = call(*inputs, graph, out=out)
    for a, b, c in zip(want, result, out):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(b, c)


def test_nan_stays_with_the_nodes_that_it_reaches():
    problem, graph = awkward("uvu-5"), GRAPHS["one way"]
    x, y, w, *_ = operands(problem, graph)
    x[3] = np.nan
    z = engine_for(problem, "float64", 1).conv_forward(x, y, w, graph)
    assert np.isnan(z[0]).any() and np.isnan(z[1]).any()
    assert not np.isnan(z[2:]).any()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda x, y, w: (x[:-1], y, w), r"x: expected float64\[5, .*\], C-contiguous, for 5 nodes, 7 edges; found"),
        (lambda x, y, w: (x, y[:-1], w), r"y: expected float64\[7, "),
        (lambda x, y, w: (x, y, w[:, :-1]), r"w: expected float64\[7, .*with strides"),
        (lambda x, y, w: (x, y, w[0]), r"w: expected float64\[7, "),
        (lambda x, y, w: (x.astype(np.float32), y, w), r"x: expected float64.*found float32"),
    ],
)
def test_refused(change, message):
    problem, graph = awkward("uvu-5"), GRAPHS["unsorted"]
    x, y, w, *_ = operands(problem, graph)
    with pytest.raises(OperandError, match=message):
        engine_for(problem, "float64", 1).conv_forward(*change(x, y, w), graph)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("parts", [0, 1, 3, 40])
def test_every_part_is_done_once(parts, threads):
    done = []
    in_parallel(done.append, parts, threads)
    assert sorted(done) == list(range(parts))


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_part_raises_is_heard(threads):
    def part(i):
        raise ValueError(f"part {i}")

    with pytest.raises(ValueError, match="part"):
        in_parallel(part, 4, threads)
