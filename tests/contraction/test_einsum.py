"""einsum, its plans and its execution against NumPy, on the expressions of the peers and on random ones."""

from __future__ import annotations

import json
import random
import re
import tracemalloc

import numpy as np
import opt_einsum
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from opt_einsum.tests.test_contract import tests as PEER_EXPRESSIONS

from trnqc.contraction import contract, einsum, einsum_plan, path
from trnqc.contraction.lower.lowering import lower
from trnqc.contraction.order.operations import minimise
from trnqc.errors import ExpressionError, InputError, MemoryLimit, SlowPlanWarning, UnsupportedError
from trnqc.expression.subscripts import parse_subscripts

opt_einsum.paths.register_path_fn("trnqc", path)

CLOSE = {"rtol": 1e-11, "atol": 1e-11}  # fp64 sums of at most a few thousand products of order one


def operands_of(expression: str, seed: int = 7, extents: tuple[int, int] = (2, 5)) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = expression.replace(" ", "").split("->")[0].split(",")
    size = {label: int(rng.integers(*extents)) for label in sorted(set("".join(inputs)))}
    return [rng.standard_normal(tuple(size[x] for x in labels)) for labels in inputs]


@pytest.mark.parametrize("expression", PEER_EXPRESSIONS)
def test_the_expressions_of_opt_einsum(expression):
    operands = operands_of(expression)
    expected = np.einsum(expression, *operands)
    np.testing.assert_allclose(contract(expression, *operands), expected, **CLOSE)
    np.testing.assert_allclose(opt_einsum.contract(expression, *operands, optimize="trnqc"), expected, **CLOSE)


@some.composite
def expressions(draw):
    """Up to five operands; labels repeat within operands, stand alone, are kept or summed anywhere."""
    labels = draw(some.sampled_from(["a", "ab", "abc", "abcde", "abcdefg"]))
    operand = some.lists(some.sampled_from(labels), max_size=4).map("".join)
    inputs = draw(some.lists(operand, min_size=1, max_size=5))
    used = sorted(set("".join(inputs)))
    output = "".join(draw(some.permutations(draw(some.lists(some.sampled_from(used), unique=True))))) if used else ""
    return ",".join(inputs) + "->" + output


@given(expressions(), some.integers(0, 1000))
@settings(deadline=None, max_examples=200)
def test_every_contraction_is_that_of_numpy(expression, seed):
    operands = operands_of(expression, seed, (1, 5))
    expected = np.einsum(expression, *operands)
    result = einsum(expression, *operands)
    assert result.shape == expected.shape and result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, **CLOSE)


def strided(x: np.ndarray, axes: list[int]) -> np.ndarray:
    """x as a view of every other element of an array whose axes lie in another order."""
    wide = np.zeros(tuple(2 * x.shape[axis] for axis in axes))
    view = wide[(*(slice(None, None, 2) for _ in axes), ...)]
    view[...] = np.transpose(x, axes)
    return np.transpose(view, [axes.index(axis) for axis in range(x.ndim)])


@given(expressions(), some.integers(0, 1000))
@settings(deadline=None, max_examples=50)
def test_memory_order_of_operands_does_not_matter(expression, seed):
    rng = random.Random(seed)
    operands = operands_of(expression, seed, (1, 5))
    views = [strided(x, rng.sample(range(x.ndim), x.ndim)) for x in operands]
    np.testing.assert_allclose(einsum(expression, *views), np.einsum(expression, *operands), **CLOSE)


@given(expressions(), some.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_torch_gives_the_same_numbers(expression, seed):
    torch = pytest.importorskip("torch")
    operands = operands_of(expression, seed, (1, 5))
    result = einsum(expression, *(torch.tensor(x) for x in operands))
    assert isinstance(result, torch.Tensor)
    np.testing.assert_allclose(result.numpy(), np.einsum(expression, *operands), **CLOSE)


def test_torch_differentiates_through_it():
    torch = pytest.importorskip("torch")
    a, b = (torch.tensor(x, requires_grad=True) for x in operands_of("ab,bc->ac"))
    assert torch.autograd.gradcheck(lambda a, b: einsum("ab,bc,bd,ae->cde", a, b, b, a), (a, b))


FORMS = [
    ("...ab,...bc->...ac", [(4, 2, 3), (3, 5)]),
    ("...a,...a->...", [(2, 1, 3), (4, 3)]),
    ("ij,ij->j", [(10, 2), (1, 2)]),
    ("a...a->...", [(2, 3, 2)]),
    ("ab,b", [(2, 3), (3,)]),
    (",->", [(), ()]),
    ("ab,bc->ac", [(0, 3), (3, 2)]),
    ("ab,bc->ac", [(2, 0), (0, 3)]),
    ("iiJ,Jα->αi", [(3, 3, 2), (2, 4)]),
]


@pytest.mark.parametrize(("expression", "shapes"), FORMS)
def test_forms_of_subscripts(expression, shapes):
    rng = np.random.default_rng(3)
    operands = [rng.standard_normal(shape) for shape in shapes]
    ascii_form = expression.replace("α", "z")
    np.testing.assert_allclose(einsum(expression, *operands), np.einsum(ascii_form, *operands), **CLOSE)


def test_the_interleaved_form():
    a, b = operands_of("ab,bc->ac")
    np.testing.assert_allclose(einsum(a, [0, 1], b, [1, 2], [2, 0]), (a @ b).T, **CLOSE)
    np.testing.assert_allclose(einsum(a, ["x", "y"], b, ["y", "z"]), a @ b, **CLOSE)
    with pytest.raises(InputError, match="takes subscripts and operands"):
        einsum(a)


@pytest.mark.parametrize("kind", [np.float32, np.complex128, np.int64, bool])
def test_element_types(kind):
    operands = [(3 * x).astype(kind) for x in operands_of("abc,bd,cd->ad")]
    result = einsum("abc,bd,cd->ad", *operands)
    expected = np.einsum("abc,bd,cd->ad", *operands)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_mixed_element_types_are_promoted():
    a, b = operands_of("ab,bc->ac")
    assert einsum("ab,bc->ac", a.astype(np.float32), b).dtype == np.float64
    assert einsum("ab,bc->ac", a, 1j * b).dtype == np.complex128
    torch = pytest.importorskip("torch")
    assert einsum("ab,bc->ac", torch.tensor(a).float(), torch.tensor(b)).dtype == torch.float64
    with pytest.raises(InputError, match="arrays of one library; found torch and numpy"):
        einsum("ab,bc->ac", torch.tensor(a), b)


def test_lists_and_numbers_are_arrays():
    assert einsum("a,a,->", [1.0, 2.0], (3, 4), 2) == 22


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_unless_wanted(bad):
    a, b = operands_of("ab,bc->ac", extents=(3, 4))
    b[1, 2] = bad
    with pytest.raises(InputError, match="operand B has 1 elements that are not finite"):
        einsum("ab,bc->ac", a, b)
    np.testing.assert_allclose(einsum("ab,bc->ac", a, b, check_finite=False), a @ b)


def test_sums_may_overflow_where_elements_do_not():
    big = np.full(4, 1e308)
    assert einsum("a,->a", big, 0.5)[0] == 5e307


def test_wrong_operands():
    a, b = operands_of("ab,bc->ac", extents=(3, 4))
    with pytest.raises(ExpressionError, match="index b has extent 4 in operand 1, and 3 in operand 0"):
        einsum("ab,bc->ac", a, np.ones((4, 2)))
    plan = einsum_plan("ab,bc->ac", a, b)
    with pytest.raises(InputError, match=r"operand B has the shape \(3, 3\) in this plan; found \(2, 3\)"):
        plan.run(a, b[:2])
    with pytest.raises(InputError, match="takes 2 operands: A, B; found 1"):
        plan.run(a)
    with pytest.raises(MemoryLimit, match=r"need \d+ bytes of memory at least; memory_limit is 0 bytes: raise it to"):
        einsum("ab,bc,cd->ad", a, b, b, memory_limit=0)


def test_plans_print_and_become_data():
    plan = einsum_plan("acik,befl,dfjk,cdel->abij", *[(10,) * 4] * 4)
    printed = str(plan)
    for words in (
        "N = 10",
        "T1[b,f,c,d] = sum(e,l) B[b,e,f,l] * D[c,d,e,l]",
        "gemm 100 x 100 x 100",
        "6 N^6 = 6e+06",
        "4 N^10 = 4e+10, 6667 times as many",
        "temporaries  2, the largest T1 with N^4 = 1e+04 elements",
    ):
        assert words in printed, printed
    record = json.loads(json.dumps(plan.to_dict()))
    assert record["multiply_adds"] == plan.multiply_adds == 3_000_000
    assert record["assignments"][0]["parts"][0]["steps"][0]["name"] == "T1"


def test_plans_run_many_times_and_by_name():
    a, b = operands_of("ab,bc->ac")
    plan = einsum_plan("ab,bc->ac", a.shape, b.shape)
    np.testing.assert_allclose(plan.run(a, b), a @ b, **CLOSE)
    np.testing.assert_allclose(plan.run({"B": b, "A": 2 * a}), 2 * a @ b, **CLOSE)
    np.testing.assert_allclose(plan.run(B=b, A=2 * a), 2 * a @ b, **CLOSE)


def test_operands_come_one_by_one():
    a, b = operands_of("ab,bc->ac")
    plan = einsum_plan("ab,bc->ac", a.shape, b.shape)
    for wrong, message in (([[a, b]], "found one list: pass them one by one, run(A, B)"), ([a, b, b], "found 3")):
        with pytest.raises(InputError, match=re.escape(message)):
            plan.run(*wrong)
    with pytest.raises(InputError, match="A, B; found 1 and B by name"):
        plan.run(a, B=b)
    matrix = einsum_plan("ab->ba", (2, 2))
    np.testing.assert_array_equal(matrix.run([[1, 2], [3, 4]]), [[1, 3], [2, 4]])


def test_functions_are_asked_for_blocks():
    a, b = operands_of("ab,bc->ac")
    asked = []

    def integrals(rows: slice, columns: slice) -> np.ndarray:
        asked.append((rows, columns))
        return b[rows, columns]

    result = einsum_plan("ab,bc->ac", a.shape, b.shape).run(a, integrals)
    np.testing.assert_allclose(result, a @ b, **CLOSE)
    assert asked == [(slice(0, b.shape[0]), slice(0, b.shape[1]))]


def test_another_product_of_matrices_is_used():
    calls = []

    def gemm(a_t: np.ndarray, b: np.ndarray) -> np.ndarray:
        calls.append((a_t.shape, b.shape))
        return np.stack([x.T @ y for x, y in zip(a_t, b)])

    operands = operands_of("xab,xbc,cd->xda")
    np.testing.assert_allclose(
        einsum("xab,xbc,cd->xda", *operands, gemm=gemm), np.einsum("xab,xbc,cd->xda", *operands), **CLOSE
    )
    assert len(calls) == 2 and all(len(a) == len(b) == 3 and a[:2] == b[:2] for a, b in calls)


def copies(expression: str, *shapes: tuple[int, ...]) -> int:
    parsed = parse_subscripts(expression, shapes)
    tree = minimise(parsed.leaves(), parsed.output, parsed.indices())
    return sum(len(step.workspace) for step in lower(tree))


def test_products_that_lie_ready_are_not_copied():
    assert copies("abcd,cdij->abij", (9,) * 4, (9, 9, 4, 4)) == 0
    assert copies("pqrs,pa,qb,rc,sd->abcd", (9,) * 4, *[(9, 9)] * 4) == 0
    assert copies("xab,xbc->xac", (5, 6, 7), (5, 7, 8)) == 0
    assert copies("aibj,jb->ai", (5, 6, 5, 6), (6, 5)) == 1
    assert copies("acbd,cd->ab", (5, 6, 5, 6), (6, 6)) == 1


def test_peak_counts_what_is_held():
    """Two N x N temporaries are held beside the result while it is made; the result itself is not counted."""
    plan = einsum_plan("ab,bc,cd,de->ae", (9, 9), (9, 9), (9, 9), (9, 9))
    assert plan.peak == 2 * 81
    assert einsum_plan("ab,bc->ac", (9, 9), (9, 9)).peak == 0


LADDER = "Qae,Qbf,efij->abij"


def test_a_limit_below_the_temporaries_makes_loops():
    """The fitted ladder under a tenth of its temporary: the same numbers, and no more memory than allowed."""
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(shape) for shape in ((40, 36, 36), (40, 36, 36), (36, 36, 5, 5))]
    limit = 36**4 * 8 // 10
    plan = einsum_plan(LADDER, *operands, memory_limit=limit)
    expected = einsum(LADDER, *operands)
    assert plan.peak * 8 <= limit < einsum_plan(LADDER, *operands).peak * 8
    plan.run(*operands)  # what Python itself keeps after a first call is no part of the arrays
    tracemalloc.start()
    try:
        result = plan.run(*operands)
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(result, expected, **CLOSE)
    assert used - result.nbytes <= limit
    assert "in loops, below" in str(plan) and "for " in str(plan)
    assert json.loads(json.dumps(plan.to_dict()))["assignments"][0]["parts"][0]["schedule"]["tiles"]


def test_loops_take_torch_and_another_product():
    torch = pytest.importorskip("torch")
    operands = operands_of("ab,bc,cd->ad", extents=(4, 6))
    expected = operands[0] @ operands[1] @ operands[2]
    with pytest.warns(SlowPlanWarning):
        result = einsum("ab,bc,cd->ad", *(torch.tensor(x) for x in operands), memory_limit=40)
    np.testing.assert_allclose(result.numpy(), expected, **CLOSE)


@pytest.mark.parametrize("expression", ["ab,bc,cd->ad", "xab,xbc,cd->xda", LADDER, "ab,ab,b->a"])
def test_loops_run_on_another_product(expression):
    """Stacks over the loops of a product, operands that lack one of them, results in other orders."""
    operands = operands_of(expression, extents=(4, 7))
    plain = einsum_plan(expression, *operands)
    limit = 8 * max(plain.peak // 2, 60)
    plan = einsum_plan(expression, *operands, memory_limit=limit)
    calls = []

    def gemm(a_t, b):
        calls.append(a_t.shape)
        assert a_t.ndim == b.ndim == 3 and a_t.shape[:2] == b.shape[:2]
        return np.einsum("zkm,zkn->zmn", a_t, b)

    np.testing.assert_allclose(plan.run(*operands, gemm=gemm), plain.run(*operands), **CLOSE)
    assert calls


MEASURED = {
    "chain": ("ab,bc,cd,de->ae", 150),
    "ladder": (LADDER, 18),
    "transformation": ("pqrs,pa,qb,rc,sd->abcd", 18),
    "copies": ("acbd,ced,ef->abf", 30),
    "sums": ("abx,bcy,cd->ad", 40),
}


@pytest.mark.parametrize("name", MEASURED)
def test_the_peak_is_what_is_allocated(name):
    expression, extent = MEASURED[name]
    operands = operands_of(expression, extents=(extent, extent + 1))
    plan = einsum_plan(expression, *operands)
    plan.run(*operands)
    tracemalloc.start()
    try:
        result = plan.run(*operands)
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # NumPy and Python keep some tens of kilobytes of their own.
    assert 8 * plan.peak <= used <= 8 * plan.peak + result.nbytes + 100_000


FUNCTION = """
space o = 3
index i j : o
function g[o,o] cost 4
tensor x[o]
tensor d[o]
y[i] = g[i,j] * x[j] / d[i]
"""
ONES = np.ones((3, 3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"g": lambda *cuts: np.ones((5, 3))}, r"function g was asked for a block of shape .*; found \(5, 3\)"),
        ({"g": lambda *cuts: ONES[cuts] * np.nan}, r"operand g has \d elements that are not finite"),
        ({"g": ONES * np.inf}, "operand g has 9 elements that are not finite"),
        ({"d": np.array([1.0, 0.0, 2.0])}, "operand d divides and has 1 zeros"),
        ({"x": np.array(["1", "2", "3"])}, "operand x holds elements of type <U1; numbers are taken"),
        ({"x": np.ones(4)}, r"operand x has the shape \(3,\)"),
    ],
)
@pytest.mark.parametrize("limit", [None, 8 * 5])
def test_what_cannot_be_computed_is_refused(change, message, limit):
    plan = einsum_plan(FUNCTION, memory_limit=limit)
    operands = {"g": lambda *cuts: ONES[cuts], "x": np.ones(3), "d": np.full(3, 2.0)}
    np.testing.assert_allclose(plan.run(operands), 1.5)
    with pytest.raises(InputError, match=message):
        plan.run(operands | change)


def test_zeros_divide_where_the_caller_wants_it():
    plan = einsum_plan(FUNCTION)
    with np.errstate(all="ignore"):
        result = plan.run({"g": lambda *cuts: ONES[cuts], "x": np.ones(3), "d": np.zeros(3)}, check_finite=False)
    assert np.isinf(result).all()


def test_a_limit_counts_elements_of_the_common_type():
    """complex64 and float64 make complex128, of twice the bytes of either."""
    operands = operands_of("ab,bc,cd->ad", extents=(9, 10))
    mixed = [operands[0].astype(np.complex64), *operands[1:]]
    exact = einsum_plan("ab,bc,cd->ad", *mixed, memory_limit=16 * 81)
    assert exact.peak == 81 and exact.trees[0].temporaries and "in loops" not in str(exact)
    assert "in loops" in str(einsum_plan("ab,bc,cd->ad", *mixed, memory_limit=16 * 81 - 1))
    with pytest.raises(InputError, match="memory_limit is a number of bytes; found '1 GB'"):
        einsum_plan("ab,bc,cd->ad", *mixed, memory_limit="1 GB")


def test_loops_say_which_tensors_they_cannot_take():
    torch = pytest.importorskip("torch")
    operands = [torch.tensor(x) for x in operands_of("ab,bc,cd->ad", extents=(9, 10))]
    with pytest.raises(UnsupportedError, match="A requires a gradient"):
        einsum("ab,bc,cd->ad", operands[0].requires_grad_(), *operands[1:], memory_limit=8 * 60)
    with pytest.raises(UnsupportedError, match="holds bfloat16"):
        einsum("ab,bc,cd->ad", *(x.detach().bfloat16() for x in operands), memory_limit=2 * 60)


@pytest.mark.filterwarnings("ignore::trnqc.errors.SlowPlanWarning")
@pytest.mark.parametrize("limit", [100_000, 159_000, 300_000])
@pytest.mark.parametrize("expression", ["iajb,jbkc,kcld->iald", "pqrs,pi,qa,rj,sb->iajb"])
def test_what_a_memory_limit_covers_as_traced_from_outside(expression, limit):
    """The temporary of either product without a limit is larger than what this allows."""
    rng = np.random.default_rng(5)
    operands = [rng.standard_normal((20,) * len(labels)) for labels in expression.split("->")[0].split(",")]
    einsum(expression, *operands, memory_limit=limit)  # Plans are kept.
    peaks = []
    tracemalloc.start()
    for _ in range(3):  # What other threads of the process allocate is traced too. It does not last.
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        result = einsum(expression, *operands, memory_limit=limit)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
        nbytes = result.nbytes
        del result
    tracemalloc.stop()
    # Small Python objects take a few kB.
    assert min(peaks) - nbytes <= limit + 3 * 8 * np.getbufsize() + 10_000 < 20**4 * 8
