"""Ladders over symmetric pairs are recognised, counted, kept within their limit, and equal to plain products."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnqc
from trnqc.contraction import einsum, einsum_plan, parse
from trnqc.contraction.ladder.loops import LadderLoops
from trnqc.contraction.ladder.pattern import HALVES, pairs
from trnqc.contraction.ladder.run import run_ladder
from trnqc.contraction.ladder.tiles import ladder_loops
from trnqc.errors import ExpressionError, InputError, MemoryLimit, UnsupportedError

ORDER = ["einsum_path", (0, 1), (0, 1)]
# expression of x, x, t -> R, exchange of t as (order of axes, sign)
CASES = {
    "coupled cluster": ("Qae,Qbf,efij->abij", "efij = feji"),
    "result turned": ("Qae,Qbf,iejf->jbia", "iejf = jfie"),
    "odd": ("Qae,Qbf,efij->abij", "efij = -feji"),
    "by themselves": ("Qae,Qbf,efk->abk", "efk = fek"),
    "odd by themselves": ("Qae,Qbf,efij->abij", "efij = -feij"),
    "two more pairs": ("Qae,Qbf,efikjl->abijkl", "efikjl = felkji"),
    "no other label": ("Qae,Qbf,ef->ab", "ef = fe"),
    "nothing summed in W": ("ae,bf,efij->abij", "efij = feji"),
    "two labels summed": ("PaQe,PbQf,efij->abij", "efij = feji"),
    "lower labels first": ("eQa,fQb,fiej->abji", "fiej = ejfi"),
}


def extents(text, v=7, w=5, o=3, q=4):
    return {x: {"a": v, "b": v, "e": w, "f": w}.get(x, q if x.isupper() else o) for x in set(text) if x.isalpha()}


def arrays(text, stated, sizes, even=False, dtype=float, seed=3):
    rng = np.random.default_rng(seed)
    inputs = text.split("->")[0].split(",")
    x, t = (rng.integers(-9, 9, [sizes[i] for i in labels]).astype(dtype) for labels in (inputs[0], inputs[2]))
    if np.issubdtype(dtype, np.complexfloating):
        x, t = x + 1j * x[::-1], t - 1j * t[::-1]
    first, other = (part.strip() for part in stated.split("="))
    sign = -1 if other.startswith("-") else 1
    t = t + sign * t.transpose([first.index(c) for c in other.lstrip("-")])
    if even:
        x = x + x.swapaxes(inputs[0].index("a"), inputs[0].index("e"))
    return x, t


def ladder(text, stated, x, t, even=False):
    symmetries = {2: stated}
    if even:
        left = text.split(",")[0]
        symmetries[0] = f"{left} = {left.translate(str.maketrans('ae', 'ea'))}"
    plan = einsum_plan(text, x, x, t, symmetries=symmetries)
    (part,) = plan.assignments[0].parts
    return plan, part.ladder


def run(one_ladder, upper, lower, held, x, t, library=np):
    loops = LadderLoops(one_ladder, upper, lower, held)
    values = {one_ladder.x.name: library.asarray(x), one_ladder.t.name: library.asarray(t)}
    return np.asarray(run_ladder(library, loops, values))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tiles", [(1, 1), (3, 2), (7, 5), (4, 5)])
def test_tiles_do_not_change_the_result(name, tiles):
    text, stated = CASES[name]
    x, t = arrays(text, stated, extents(text))
    _, one_ladder = ladder(text, stated, x, t)
    for held in (True, False):
        np.testing.assert_array_equal(run(one_ladder, *tiles, held, x, t), np.einsum(text, x, x, t, optimize=ORDER))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_symmetric_factors_are_used_from_both_sides(name, size):
    text, stated = CASES[name]
    x, t = arrays(text, stated, extents(text, w=7), even=True)
    _, one_ladder = ladder(text, stated, x, t, even=True)
    assert one_ladder.even
    for held in (True, False):
        np.testing.assert_array_equal(run(one_ladder, size, size, held, x, t), np.einsum(text, x, x, t, optimize=ORDER))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 7),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["efij = feji", "efij = -feji", "efij = feij"]),
    st.data(),
)
def test_any_extents_and_tiles(v, w, o, q, even, held, stated, data):
    text = "Qae,Qbf,efij->abij"
    w = v if even else w
    sizes = extents(text, v, w, o, q)
    upper = data.draw(st.integers(1, v))
    lower = upper if even else data.draw(st.integers(1, w))
    x, t = arrays(text, stated, sizes, even)
    _, one_ladder = ladder(text, stated, x, t, even)
    expected = np.einsum("aebf,efij->abij", np.einsum("Qae,Qbf->aebf", x, x), t)
    np.testing.assert_array_equal(run(one_ladder, upper, lower, held, x, t), expected)


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("name", ["coupled cluster", "odd", "odd by themselves", "by themselves"])
def test_multiply_adds_are_those_of_the_products(monkeypatch, name, even, size):
    text, stated = CASES[name]
    x, t = arrays(text, stated, extents(text, w=7), even)
    _, one_ladder = ladder(text, stated, x, t, even)
    done = 0

    def gemm(a_t, b):
        nonlocal done
        done += a_t.shape[1] * a_t.shape[2] * b.shape[2]
        return np.matmul(a_t.swapaxes(1, 2), b)

    loops = LadderLoops(one_ladder, size, size, True)
    run_ladder(np, loops, {one_ladder.x.name: x, one_ladder.t.name: t}, gemm)
    assert done == loops.work


def test_a_quarter_and_an_eighth():
    text, stated = CASES["coupled cluster"]
    sizes = extents(text, 60, 60, 10, 50)
    whole = 60**4 * 50, 60**4 * 100
    shapes = [tuple(sizes[i] for i in labels) for labels in text.split("->")[0].split(",")]
    for even, share in ((False, 2), (True, 8)):
        x, t = (np.zeros(shape) for shape in shapes[1:])
        _, one_ladder = ladder(text, stated, x, t, even)
        loops = LadderLoops(one_ladder, 5, 5, True)
        assert whole[1] / loops.applied == pytest.approx(4, rel=0.01)
        assert whole[0] / loops.formed[1] == pytest.approx(share, rel=0.1)


@pytest.mark.parametrize("sign", HALVES)
def test_pairs(sign):
    assert [pairs(n, sign) for n in range(4)] == [len(np.tril_indices(n, 0 if sign > 0 else -1)[0]) for n in range(4)]


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int64])
@pytest.mark.parametrize("even", [False, True])
def test_types_of_elements(dtype, even):
    text, stated = CASES["coupled cluster"]
    x, t = arrays(text, stated, extents(text, w=7), even, dtype)
    _, one_ladder = ladder(text, stated, x, t, even)
    result = run(one_ladder, 3, 3, True, x, t)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, np.einsum(text, x, x, t), rtol=1e-5)


@pytest.mark.parametrize("even", [False, True])
def test_torch(even):
    torch = pytest.importorskip("torch")
    text, stated = CASES["result turned"]
    x, t = arrays(text, stated, extents(text, w=7), even)
    _, one_ladder = ladder(text, stated, x, t, even)
    np.testing.assert_array_equal(run(one_ladder, 3, 3, True, x, t, torch), np.einsum(text, x, x, t))
    loops = LadderLoops(one_ladder, 3, 3, True)
    with pytest.raises(UnsupportedError, match="carry no gradient"):
        run_ladder(
            torch, loops, {one_ladder.x.name: torch.asarray(x, requires_grad=True), one_ladder.t.name: torch.asarray(t)}
        )


PROGRAM = """
space o
space v
space x
index i j : o
index a b e f : v
index Q : x
tensor B[x,v,v] symmetric(1,2)
tensor t[v,v,o,o] symmetric(0,1)(2,3)
tensor g[v,v,o,o]
R[a,b,i,j] = g[a,b,i,j] - 1/2 * B[Q,a,e] * B[Q,b,f] * t[e,f,i,j]
"""


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("name", ["coupled cluster", "odd", "by themselves"])
def test_shares_of_ranks_add_up(name, even):
    """Each of three shares has some of the products of whole numbers, and their sum is the result."""
    text, stated = CASES[name]
    x, t = arrays(text, stated, extents(text, v=7, w=7), even)
    loops = LadderLoops(ladder(text, stated, x, t, even)[1], 3, 3, True)
    values = {loops.ladder.x.name: x, loops.ladder.t.name: t}
    shares = [run_ladder(np, replace(loops, share=(part, 3)), values) for part in range(3)]
    assert all(share.any() for share in shares)
    np.testing.assert_array_equal(sum(shares), np.einsum(text, x, x, t, optimize=True))


@pytest.mark.parametrize("share", [0.15, 0.2, 0.6])
def test_a_limit_is_kept(share):
    v, o, q = 31, 5, 40
    text, stated = "Qae,Qbf,efij->abij", "efij = feji"
    x, t = arrays(text, stated, extents(text, v, v, o, q), even=True)
    g = np.random.default_rng(1).standard_normal(t.shape)
    values = {"B": x, "t": t, "g": g}
    limit = int(share * 8 * v**4)
    plan = einsum_plan(PROGRAM, values, memory_limit=limit)
    assert plan.assignments[0].parts[1].loops is not None
    plan.run(values)
    tracemalloc.start()
    try:
        result = plan.run(values)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - result.nbytes <= limit
    np.testing.assert_allclose(result, g - np.einsum(text, x, x, t, optimize=ORDER) / 2)


def test_tiles_fit_the_limit_or_there_are_none():
    text, stated = CASES["coupled cluster"]
    x, t = arrays(text, stated, extents(text, 11, 6, 3, 13))
    _, one_ladder = ladder(text, stated, x, t)
    for limit in (10, 1000, 3000, 10_000, 10**9):
        loops = ladder_loops(one_ladder, limit)
        assert (loops is None) == (limit == 10) and (loops is None or loops.memory <= limit)


def test_the_plan_says_it():
    values = {"B": (300, 72, 72), "t": (72, 72, 12, 12), "g": (72, 72, 12, 12)}
    plan = einsum_plan(PROGRAM, values, memory_limit=8 * 72**4 // 10)
    shown, data = str(plan), plan.to_dict()
    for line in (
        "symmetry: t[f,e,j,i] = t[e,f,i,j], B[Q,e,a] = B[Q,a,e]",
        "W±[a,b,e,f] = sum(Q) B[Q,a,e] B[Q,b,f] ± sum(Q) B[Q,a,f] B[Q,b,e]",
        "R.2±[e,f,i,j] += W± t±[a,b,i,j]",
        "R.2[a,b,i,j], R.2[b,a,i,j] = (R.2+ ± R.2-) / 2",
    ):
        assert line in shown
    (_, part) = data["assignments"][0]["parts"]
    assert part["symmetric_loops"]["multiply_adds"] < plan.multiply_adds / 5
    assert part["schedule"] is None and data["estimated_seconds"] > 0
    assert plan.unique_multiply_adds == part["symmetric_loops"]["multiply_adds"] + 72**2 * 12**2
    assert plan.peak * 8 <= 72**4 * 8 // 10


def test_turned_axes_are_shown_as_they_are():
    text, stated = CASES["result turned"]
    x, t = arrays(text, stated, extents(text))
    lines = str(LadderLoops(ladder(text, stated, x, t)[1], 3, 2, True)).splitlines()
    assert lines[0] == "symmetry: C[j,f,i,e] = C[i,e,j,f]"
    assert lines[3] == "C±[i,e,j,f] = C[i,e,j,f] ± C[i,f,j,e], e >= f, i,j of their pairs once"
    assert lines[-1] == "result[j,b,i,a], result[j,a,i,b] = (result+ ± result-) / 2"


def test_few_elements_take_their_steps():
    plan = einsum_plan(PROGRAM, {"B": (3, 2, 2), "t": (2, 2, 1, 1), "g": (2, 2, 1, 1)})
    assert plan.assignments[0].parts[1].ladder is not None and plan.assignments[0].parts[1].loops is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("t[e,f,i,j]", "t[f,e,i,j]"),
        ("B[Q,b,f]", "B[Q,f,b]"),
    ],
)
def test_other_spellings_are_ladders(old, new):
    program = parse(PROGRAM.replace(old, new)).shaped({"B": (4, 7, 7), "t": (7, 7, 3, 3)})
    part = einsum_plan(program).assignments[0].parts[1]
    assert part.ladder is not None
    x, t = arrays("Qae,Qbf,efij->abij", "efij = feji", extents("aebfijQ", 7, 7, 3, 4), even=True)
    expected = einsum("Qae,Qbf,efij->abij", x, x, t.transpose(1, 0, 2, 3) if "t" in new else t)
    np.testing.assert_array_equal(run(part.ladder, 3, 3, True, x, t), expected)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("symmetric(0,1)(2,3)", ""),
        ("B[Q,b,f] *", "C[Q,b,f] *"),
        ("t[e,f,i,j]", "t[e,f,i,j] / d[i,j]"),
        ("t[v,v,o,o] symmetric(0,1)(2,3)", "t[v,v,o,o] symmetric(2,3)"),
    ],
)
def test_what_is_no_ladder(old, new):
    text = PROGRAM.replace("tensor g", "tensor C[x,v,v]\ntensor d[o,o]\ntensor g").replace(old, new)
    program = parse(text).sized(o=3, v=7, x=4)
    assert all(part.ladder is None for part in einsum_plan(program).assignments[0].parts)


# What users of einsum see.


def test_einsum_with_symmetries():
    text, stated = CASES["coupled cluster"]
    x, t = arrays(text, stated, extents(text, 24, 24, 6, 20), even=True)
    symmetries = {2: stated, 0: "Qae = Qea"}
    plan = trnqc.einsum_plan(text, x, x, t, symmetries=symmetries)
    assert plan.unique_multiply_adds < plan.multiply_adds / 3.5
    expected = np.einsum(text, x, x, t, optimize=ORDER)
    np.testing.assert_array_equal(trnqc.einsum(text, x, x, t, symmetries=symmetries), expected)
    np.testing.assert_array_equal(plan.run(x, x, t), expected)
    with pytest.raises(InputError, match="operand 1 is another array than A"):
        plan.run(x, x.copy(), t)


def test_one_array_with_axes_of_extent_one():
    x, t = np.random.default_rng(1).standard_normal((1, 8, 8)), np.ones((8, 8, 2, 2))
    result = einsum("Qae,Qbf,efij,Q->abij", x, x, t, np.ones(3), symmetries={2: "efij = feji"})
    np.testing.assert_allclose(result, 3 * np.einsum("ae,bf,efij->abij", x[0], x[0], t))


def test_packed_steps_of_einsum():
    w, t = (np.random.default_rng(k).standard_normal((20,) * 2 + n) for k, n in enumerate([(20, 20), (12, 12)]))
    w, t = w - w.swapaxes(2, 3), t - t.swapaxes(0, 1)
    symmetries = {0: "abcd = -abdc", 1: ["cdij = -dcij"]}
    plan = einsum_plan("abcd,cdij->abij", w, t, symmetries=symmetries)
    assert plan.unique_multiply_adds < plan.multiply_adds * 0.55
    np.testing.assert_allclose(plan.run(w, t), np.einsum("abcd,cdij->abij", w, t, optimize=True), atol=1e-11)


@pytest.mark.parametrize(
    ("symmetries", "message"),
    [
        ({3: "ab = ba"}, "0 to 2; found 3"),
        ({2: "efij"}, "one letter for each of 4 axes"),
        ({2: "efij = feik"}, "the same letters on both sides"),
        ({2: "efij = fije"}, "exchanges pairs of axes"),
        ({2: "efij = ijef"}, "unequal extents"),
        ({2: "efij = efij"}, "exchanges pairs of axes"),
    ],
)
def test_symmetries_that_make_no_sense(symmetries, message):
    with pytest.raises(ExpressionError, match=message):
        einsum_plan("Qae,Qbf,efij->abij", (4, 7, 5), (4, 7, 5), (5, 5, 3, 3), symmetries=symmetries)


def test_symmetries_of_programs_stand_in_them():
    with pytest.raises(InputError, match="declare theirs"):
        einsum_plan(PROGRAM, symmetries={0: "ab = ba"})


def test_an_exchange_of_unlike_axes_points_at_the_tensor():
    with pytest.raises(ExpressionError, match=r"line 9: axes \(1, 2\) of t run over different spaces"):
        parse(PROGRAM.replace("(0,1)(2,3)", "(1,2)(0,3)"))
    with pytest.raises(ExpressionError, match="pairs of different axes"):
        parse(PROGRAM.replace("(0,1)(2,3)", "(0,1)(1,3)"))


# Declared symmetry is checked.


@pytest.mark.parametrize("size", [6, 40])
def test_a_wrong_declaration_names_the_elements(size):
    x = np.random.default_rng(2).standard_normal((size, size, 9, 9))
    good = x + x.transpose(1, 0, 3, 2)
    einsum("abij,abij->", good, good, symmetries={0: "abij = baji"})
    with pytest.raises(InputError, match=r"operand B is declared symmetric .*\(1, 0, 3, 2\), but its elements \["):
        einsum("abij,abij->", good, x, symmetries={1: "abij = baji"})
    with pytest.raises(InputError, match="operand A is declared antisymmetric"):
        einsum("abij,abij->", good, x, symmetries={0: "abij = -baji"})
    einsum("abij,abij->", x, x, symmetries={0: "abij = baji"}, check_finite=False)


def test_rounding_is_no_wrong_declaration():
    x = np.random.default_rng(2).standard_normal((9, 9))
    x = x + x.T
    einsum("ab,ab->", x * (1 + 1e-12 * np.arange(9)), x, symmetries={0: "ab = ba"})


def test_declared_symmetry_of_programs_is_checked():
    values = {"B": np.zeros((4, 7, 7)), "t": np.arange(441.0).reshape(7, 7, 3, 3), "g": np.zeros((7, 7, 3, 3))}
    with pytest.raises(InputError, match="operand t is declared symmetric"):
        einsum_plan(PROGRAM, values).run(values)


def test_a_limit_that_nothing_meets():
    values = {"B": (300, 72, 72), "t": (72, 72, 12, 12), "g": (72, 72, 12, 12)}
    with pytest.raises(MemoryLimit):
        einsum_plan(PROGRAM, values, memory_limit=100)


def test_what_a_plan_holds_is_its_arena():
    x, t = arrays("Qae,Qbf,efij->abij", "efij = feji", extents("aebfijQ", 13, 13, 3, 4), even=True)
    plan, one_ladder = ladder("Qae,Qbf,efij->abij", "efij = feji", x, t, even=True)
    part = replace(plan.assignments[0].parts[0], loops=LadderLoops(one_ladder, 5, 5, True))
    ((_, held),) = part.held(is_output=False)
    assert held == part.loops.memory + 13**2 * 3**2


# The integrals are an operand: W = (ae|bf), which keeps its elements if both of its pairs are exchanged.
GIVEN = {
    "chemists' order": ("aebf,efij->abij", "aebf = bfae", "efij = feji"),
    "physicists' order, result turned": ("abef,iejf->jbia", "abef = bafe", "iejf = jfie"),
    "odd": ("feab,efij->abij", "feab = efba", "efij = -feji"),
    "by themselves": ("aebf,efk->abk", "aebf = bfae", "efk = fek"),
}


def given_ladder(text, w_stated, t_stated):
    sizes = extents(text)
    rng = np.random.default_rng(5)
    values = []
    for labels, stated in zip(text.split("->")[0].split(","), (w_stated, t_stated)):
        first, other = (part.strip() for part in stated.split("="))
        x = rng.integers(-9, 9, [sizes[i] for i in labels]).astype(float)
        sign = -1 if other.startswith("-") else 1
        values.append(x + sign * x.transpose([first.index(c) for c in other.lstrip("-")]))
    plan = einsum_plan(text, *values, symmetries={0: w_stated, 1: t_stated})
    return plan.assignments[0].parts[0].ladder, values


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("tiles", [(1, 1), (3, 2), (7, 5), (4, 5)])
def test_given_integrals_make_a_ladder(name, tiles):
    text, *stated = GIVEN[name]
    one_ladder, (w, t) = given_ladder(text, *stated)
    expected = np.einsum(text, w, t)
    np.testing.assert_array_equal(run(one_ladder, *tiles, True, w, t), expected)
    # The same from a function, which is asked for blocks only.
    asked = []

    def block(*cuts):
        asked.append(tuple(cut.stop - cut.start for cut in cuts))
        return w[cuts]

    loops = LadderLoops(one_ladder, *tiles, True)
    result = run_ladder(np, loops, {one_ladder.x.name: block, one_ladder.t.name: t})
    np.testing.assert_array_equal(result, expected)
    assert max(np.prod(shape) for shape in asked) <= loops.tile


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("aebf,efij->abij", {1: "efij = feji"}),  # nothing is known of W
        ("aebf,efij->abij", {0: "aebf = beaf", 1: "efij = feji"}),  # one pair of labels of W alone
        ("aebf,efij->abij", {0: "aebf = bfae", 1: "efij = efji"}),  # t keeps its elements for another reason
    ],
)
def test_without_the_exchanges_there_is_no_ladder(text, stated):
    w, t = np.zeros((5, 5, 5, 5)), np.zeros((5, 5, 3, 3))
    assert einsum_plan(text, w, t, symmetries=stated).assignments[0].parts[0].ladder is None


def test_given_integrals_need_a_quarter_of_the_multiply_adds():
    text = """
    space o = 6
    space v = 40
    index i j : o
    index a b c d : v
    function W[v,v,v,v] cost 1 symmetric(0,2)(1,3)
    tensor t[o,o,v,v] symmetric(0,1)(2,3)
    R[i,j,a,b] = W[a,c,b,d] * t[i,j,c,d]
    """
    (part,) = einsum_plan(text).parts
    assert part.loops.applied == sum(pairs(40, half) ** 2 * pairs(6, half) for half in HALVES)
    assert part.loops.applied < 0.27 * part.tree.multiply_adds
    rng = np.random.default_rng(1)
    W, t = rng.standard_normal((40,) * 4), rng.standard_normal((6, 6, 40, 40))
    W, t = W + W.transpose(2, 3, 0, 1), t + t.transpose(1, 0, 3, 2)
    limited = einsum_plan(text, memory_limit=1_500_000)
    assert limited.peak_bytes < 1_500_000 < W.nbytes
    result = limited.run(W=lambda *cuts: W[cuts], t=t)
    np.testing.assert_allclose(result, np.einsum("acbd,ijcd->ijab", W, t), atol=1e-10)
