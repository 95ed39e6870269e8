"""Programs: sub-products shared across terms, versions of tensors, and the numbers against term-by-term NumPy."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.contraction.numbers import antisymmetric, term_by_term
from trnqc.contraction import einsum_plan, expanded, parse
from trnqc.contraction.cost.counts import MonomialSum
from trnqc.contraction.order.canonical import Item, canonical
from trnqc.contraction.order.factorisation import factorised
from trnqc.contraction.planning.limit import within_elements
from trnqc.contraction.planning.program import plan_program
from trnqc.errors import ExpressionError, InputError, MemoryLimit
from trnqc.expression.program import Program
from trnqc.expression.spaces import Space
from trnqc.expression.symmetry import Symmetry
from trnqc.expression.terms import Tensor

O, V = 3, 5
HEAD = f"""
space o = {O}
space v = {V}
index i j k l : o
index a b c d : v
tensor t[v,v,o,o] antisymmetric(0,1) antisymmetric(2,3)
tensor g[o,o,v,v] antisymmetric(0,1) antisymmetric(2,3)
tensor w[o,v,v,o]
tensor f[v,v]
tensor z
"""
TRIPLES = MonomialSum.product("ooovvv")


@pytest.fixture
def arrays():
    rng = np.random.default_rng(11)
    return {
        "t": antisymmetric(rng.standard_normal((V, V, O, O))),
        "g": antisymmetric(rng.standard_normal((O, O, V, V))),
        "w": rng.standard_normal((O, V, V, O)),
        "f": rng.standard_normal((V, V)),
        "z": np.array(rng.standard_normal()),
    }


def check(text: str, arrays: dict[str, np.ndarray], *outputs: str):
    """The plan of a text whose numbers have been compared, shared and not."""
    program = parse(HEAD + text)
    outputs = outputs or program.targets
    expected = term_by_term(program, arrays)
    for share in (False, True):
        plan = plan_program(program, outputs, share=share)
        result = plan.run({name: arrays[name] for name in program.inputs})
        result = {outputs[0]: result} if len(outputs) == 1 else result
        for name in outputs:
            np.testing.assert_allclose(result[name], expected[name], rtol=1e-10, atol=1e-10)
    return plan


def test_exchanged_terms_are_computed_once(arrays):
    plan = check("R[a,b,i,j] = P(i,j) * P(a,b) * t[a,c,i,k] * w[k,b,c,j]", arrays)
    assert plan.symbolic_multiply_adds == TRIPLES + 4 * MonomialSum.product("oovv")


def test_sub_products_of_different_terms_are_shared(arrays):
    """g t is common to the ring of doubles and to the one with a vector in between."""
    text = "R[a,b,i,j] = g[k,l,c,d] * t[a,c,i,k] * t[d,b,l,j] + g[k,l,c,d] * t[a,c,i,k] * w[l,b,d,j]"
    check(text, arrays)
    assert plan_program(parse(HEAD + text), factor=False).symbolic_multiply_adds == 3 * TRIPLES


QUADRATIC = """
R[a,b,i,j] = 1/2 * x[k,l,i,j] * t[a,b,k,l] + 1/4 * g[k,l,c,d] * t[c,d,i,j] * t[a,b,k,l]
  + P(i,j) * P(a,b) * (t[a,c,i,k] * w[k,b,c,j] + 1/2 * g[k,l,c,d] * t[a,c,i,k] * t[d,b,l,j])
"""


def test_common_factors_give_the_factorised_equations(arrays):
    """The quadratic terms of coupled cluster find their intermediates: two rings and two ladders, once for all P."""
    rng = np.random.default_rng(1)
    arrays["x"] = antisymmetric(rng.standard_normal((O, O, O, O)))
    plan = check("tensor x[o,o,o,o] antisymmetric(0,1) antisymmetric(2,3)" + QUADRATIC, arrays)
    assert dict(plan.symbolic_multiply_adds.terms)[(("o", 3), ("v", 3))] == 2
    assert dict(plan.symbolic_multiply_adds.terms)[(("o", 4), ("v", 2))] == 2
    factors = factorised(parse(HEAD + "tensor x[o,o,o,o] antisymmetric(0,1) antisymmetric(2,3)" + QUADRATIC))
    assert [len(statement.terms) for statement in factors.statements] == [2, 2, 5]


def test_sums_are_made_once(arrays):
    """Both statements need f + transposed f; labels and order differ."""
    text = "X[a,i] = f[a,b] * w[i,b,c,j] * w[j,c,d,i] * f[d,a] + f[b,a] * w[i,b,c,j] * w[j,c,d,i] * f[d,a]\n"
    text += "Y[c,j] = f[d,c] * w[j,d,b,i] * w[i,b,a,j] * f[a,c] + f[c,d] * w[j,d,b,i] * w[i,b,a,j] * f[a,c]"
    check(text, arrays)
    targets = factorised(parse(HEAD + text)).targets
    assert len([name for name in targets if name.startswith("W")]) <= 1


def test_factorising_never_costs_more(arrays):
    text = "R[a,b,i,j] = P(a,b) * f[a,c] * t[c,b,i,j] + f[a,c] * f[c,d] * t[d,b,i,j] - f[a,c] * t[c,b,i,j] * z"
    check(text, arrays)
    program = parse(HEAD + text)
    assert plan_program(program).multiply_adds <= plan_program(program, factor=False).multiply_adds


def test_a_term_takes_a_detour_that_pays_by_sharing():
    """x (y z) is cheaper alone, (x y) z when x y is needed anyway: known counts of a chain of matrices."""
    small, large = Space("s", 4), Space("l", 5)
    x, y, z = Tensor("x", (large, large)), Tensor("y", (large, large)), Tensor("z", (large, small))
    labels = {"abc": large, "m": small}
    product, chain = x["ab"] * y["bc"], x["ab"] * y["bc"] * z["cm"]
    alone = plan_program(Program.of(labels, ("U", "am", chain)))
    assert alone.multiply_adds == 2 * 5 * 5 * 4
    both = plan_program(Program.of(labels, ("W", "ac", product), ("U", "am", chain)))
    assert both.multiply_adds == 5**3 + 5 * 5 * 4 + 5 * 5  # x y once, times z; x y handed to W
    apart = plan_program(Program.of(labels, ("W", "ac", product), ("U", "am", chain)), share=False)
    assert apart.multiply_adds == 5**3 + 2 * 5 * 5 * 4


def test_sharing_never_costs_more(arrays):
    text = """R[a,b,i,j] = P(a,b) * f[a,c] * t[c,b,i,j] + 1/4 * g[k,l,c,d] * t[c,d,i,j] * t[a,b,k,l]
    E = R[a,b,i,j] * g[i,j,a,b]"""
    program = parse(HEAD + text)
    check(text, arrays)
    assert plan_program(program).multiply_adds <= plan_program(program, share=False).multiply_adds


def test_a_tensor_that_changed_is_another_tensor(arrays):
    text = "\n".join(
        [
            "X[a,b] = f[a,c] * f[c,b]",
            "Y[a,b] = X[a,c] * X[c,b]",
            "X[a,b] += f[b,a]",
            "Y[a,b] += X[a,c] * X[c,b] - 2 * f[a,c] * f[c,b]",
        ]
    )
    plan = check(text, arrays)
    assert plan.symbolic_multiply_adds == 3 * MonomialSum.product("vvv") + 3 * MonomialSum.product("vv")


def test_inputs_may_be_added_to(arrays):
    before = arrays["f"].copy()
    check("f[a,b] += 1/3 * f[b,a] * z\nY[a] = f[a,b]", arrays, "f", "Y")
    np.testing.assert_array_equal(arrays["f"], before)


def test_scalars_denominators_and_signs(arrays):
    check("E = z * z - 1/2 * f[a,a] * z\nY[a,b] = -f[a,b] / f[b,a] * z\nY[a,b] -= f[a,b] / (2 * z)", arrays)


def test_results_are_new_arrays(arrays):
    plan = einsum_plan(HEAD + "Y[a,b] = f[b,a]\nY[a,b] += f[a,b]", outputs=["Y"])
    before = arrays["f"].copy()
    plan.run({"f": arrays["f"]})
    np.testing.assert_array_equal(arrays["f"], before)


factors = some.sampled_from(["t[{},{},{},{}]", "w[{2},{0},{1},{3}]", "g[{2},{3},{0},{1}]", "f[{0},{1}]"])


@some.composite
def texts(draw):
    """A few statements of random products; labels are chosen so that every target index stands in every term."""
    lines = []
    for number in range(draw(some.integers(1, 3))):
        terms = []
        for _ in range(draw(some.integers(1, 3))):
            words = [f"{draw(some.integers(-3, 3)) or 1} * w[i,a,{draw(some.sampled_from('abcd'))},i]"]
            for _ in range(draw(some.integers(0, 3))):
                v = [draw(some.sampled_from("abcd")) for _ in range(2)]
                o = [draw(some.sampled_from("ijkl")) for _ in range(2)]
                words.append(draw(factors).format(*v, *o))
            terms.append(" * ".join(words).replace("* -", "* -1 * "))
        text = " + ".join(terms).replace("+ -", "- ")
        lines.append(f"X{number}[a,i] = {text}")
    return "\n".join(lines)


@given(texts())
@settings(deadline=None, max_examples=60)
def test_random_programs(text):
    rng = np.random.default_rng(2)
    arrays = {
        "t": antisymmetric(rng.standard_normal((V, V, O, O))),
        "g": antisymmetric(rng.standard_normal((O, O, V, V))),
        "w": rng.standard_normal((O, V, V, O)),
        "f": rng.standard_normal((V, V)),
    }
    check(text, arrays)


@given(some.permutations(range(3)), some.permutations("ijkl"), some.permutations("abcd"), some.integers(0, 2**6 - 1))
def test_keys_do_not_depend_on_names(order, o, v, swaps):
    symmetries = {"t": (Symmetry((0, 1), -1), Symmetry((2, 3), -1)), "g": (Symmetry((0, 1), -1), Symmetry((2, 3), -1))}
    written = [("g", "klcd"), ("t", "acik"), ("t", "dblj")]
    names = dict(zip("ijklabcd", [*o, *v]))
    items, sign = [], 1
    for k, (name, labels) in enumerate(written):
        new = [names[x] for x in labels]
        for place in (0, 2):
            if swaps >> (2 * k + place // 2) & 1:
                new[place], new[place + 1] = new[place + 1], new[place]
                sign = -sign
        items.append(Item(name, tuple(new)))
    first = canonical([Item(n, tuple(x)) for n, x in written], frozenset("abij"), symmetries)
    kept = frozenset(names[x] for x in "abij")
    second = canonical([items[k] for k in order], kept, symmetries)
    assert first.key == second.key
    # The value is the same element by element: t is determined by its kept labels in the order of the numbers.
    back = tuple(names[x] for x in first.labels)
    same = canonical([Item(n, tuple(names[y] for y in x)) for n, x in written], kept, symmetries)
    assert same.labels == back
    assert set(second.labels) == set(back)


def test_products_that_differ_have_different_keys():
    keys = set()
    for labels in permutations("abij"):
        keys.add(canonical([Item("x", tuple("abij")), Item("y", labels)], frozenset("ab"), {}).key)
    assert len(keys) == 24
    assert canonical([Item("x", ("a",))], frozenset("a"), {}) != canonical(
        [Item("x", ("a",), True)], frozenset("a"), {}
    )


def test_extents_come_from_arrays(arrays):
    open_head = HEAD.replace(f"= {O}", "").replace(f"= {V}", "")
    text = open_head + "Y[a,b] = f[a,c] * f[c,b]\nE = g[i,j,a,b] * t[a,b,i,j]"
    plan = einsum_plan(text, {"f": arrays["f"], "t": arrays["t"].shape})
    assert plan.extents == {"v": V, "o": O}
    with pytest.raises(ExpressionError, match="extent of space o is not known"):
        einsum_plan(text, {"f": arrays["f"]})
    with pytest.raises(ExpressionError, match="axis 1 of f runs over space v of extent 5; found 4"):
        einsum_plan(text, {"f": arrays["f"][:, :4]})
    with pytest.raises(ExpressionError, match="there is no tensor y"):
        einsum_plan(text, {"y": arrays["f"]})
    with pytest.raises(ExpressionError, match="f has 2 indices"):
        einsum_plan(text, {"f": arrays["t"]})


def test_refusals(arrays):
    text = HEAD + "Y[a,b] = f[a,c] * f[c,d] * f[d,b]"
    with pytest.raises(InputError, match="one dictionary"):
        einsum_plan(text, arrays["f"])
    with pytest.raises(ExpressionError, match="Q is no target; targets are Y"):
        einsum_plan(text, outputs=["Q"])
    with pytest.raises(MemoryLimit, match=r"need \d+ bytes of memory at least; memory_limit is 0 bytes"):
        einsum_plan(text, memory_limit=0)
    with pytest.raises(InputError, match="f is missing"):
        einsum_plan(text).run({})


def test_temporaries_go_as_soon_as_they_may():
    """X is dropped after Y has read it; only Y's own temporary and the last X are held at once."""
    text = HEAD + "X[a,b,i,j] = t[a,b,i,j] * z\nY[a,b] = X[a,c,i,j] * g[i,j,c,b]\nU = Y[a,b] * f[a,b]"
    plan = einsum_plan(text)
    size = V * V * O * O
    assert plan.outputs == ("U",)
    assert plan.peak <= 3 * size
    printed = str(plan)
    assert "Y[a,b] = sum(" in printed and "v = 5, o = 3" in printed


def test_a_limit_counts_what_waits(arrays):
    """Y's own temporary goes into loops; X and Y are results that wait, and an error says so."""
    text = HEAD + "X[a,b] = d[a,b] * z\nY[a,b] = f[a,c] * f[c,d] * X[d,b]\nE = X[a,b] * Y[b,a]"
    text = text.replace("tensor z", "tensor z\ntensor d[v,v]")
    values = arrays | {"d": arrays["f"].T.copy()}
    program = parse(text)
    plan = plan_program(program)
    assert plan.peak == 3 * V * V
    limited = einsum_plan(program, memory_limit=8 * (3 * V * V - 1))
    assert limited.peak < 3 * V * V
    result = limited.run({name: values[name] for name in program.inputs})
    np.testing.assert_allclose(result, term_by_term(program, values)["E"], rtol=1e-11)
    words = r"results that are held meanwhile need \d+ elements at least, but the limit is 49"
    with pytest.raises(MemoryLimit, match=words):
        within_elements(plan, 2 * V * V - 1)
    # Written out, nothing has to wait.
    limited = einsum_plan(program, memory_limit=8 * (2 * V * V - 1))
    assert limited.peak < 2 * V * V and [a.target for a in limited.assignments] == ["E"]
    result = limited.run({name: values[name] for name in program.inputs})
    np.testing.assert_allclose(result, term_by_term(program, values)["E"], rtol=1e-11)


def test_what_is_shared_is_given_up_for_a_limit():
    """x x is held for both targets where there is room, and made twice where there is not."""
    text = HEAD + "tensor x[v,v]\nX[a,i] = x[a,b] * x[b,c] * w[i,c,d,i] * x[d,a]\n"
    text += "U[a,i] = x[a,b] * x[b,c] * w[i,c,d,i] * x[d,a] * z\nE = X[a,i] * U[a,i]"
    plan = einsum_plan(text)
    alone = plan_program(parse(text), share=False, factor=False)
    assert plan.multiply_adds < alone.multiply_adds
    limit = alone.peak if alone.peak < plan.peak else plan.peak - 1
    assert einsum_plan(text, memory_limit=8 * limit).peak <= limit


@pytest.mark.parametrize("kind", [np.float32, np.complex128, np.int64])
def test_element_types(kind):
    """Whole coefficients keep integers; halves make them fp64."""
    head = "space v = 3\nindex a b c : v\ntensor f[v,v]\n"
    x = np.arange(9).reshape(3, 3).astype(kind)
    whole = einsum_plan(head + "X[a,b] = 2 * f[a,c] * f[c,b] - f[b,a] - 3 * f[a,b]").run({"f": x})
    assert whole.dtype == kind
    np.testing.assert_array_equal(whole, 2 * x @ x - x.T - 3 * x)
    half = einsum_plan(head + "X[a,b] = f[a,c] * f[c,b] - 1/2 * f[b,a]").run({"f": x})
    assert half.dtype == (np.float64 if kind is np.int64 else kind)
    np.testing.assert_array_equal(half, x @ x - 0.5 * x.T)


def test_the_cost_of_functions_is_printed():
    plan = einsum_plan(
        "space v = 3\nindex a b c : v\nfunction f[v,v] cost 100\ntensor g[v,v]\nX[a,b] = f[a,c] * g[c,b]"
    )
    assert plan.function_cost == 900 and plan.multiply_adds == 27
    assert "functions    900 multiply-adds" in str(plan)


def test_intermediates_written_out(arrays):
    """Sums are multiplied out with labels of their own; what divides, changes or is asked for stays."""
    text = """X[a,b] = f[a,c] * f[c,b] + 2 * f[b,a]
    D[a,b] = f[a,b] * z
    A[a,b] = f[a,b]
    A[a,b] += f[b,a]
    Y[a,b] = X[a,c] * X[c,b] / D[a,b] - A[c,d] * X[d,c] * f[a,b]
    E = Y[a,b] * X[b,a] * X[c,c]"""
    program = parse(HEAD + text)
    result = expanded(program, ("Y", "E"))
    assert [s.target.tensor for s in result.statements] == ["D", "A", "A", "Y", "E"]
    assert [len(s.terms) for s in result.statements] == [1, 1, 1, 6, 4]
    expected, written_out = term_by_term(program, arrays), term_by_term(result, arrays)
    plan = plan_program(result, ("Y", "E")).run({name: arrays[name] for name in result.inputs})
    for name in ("Y", "E"):
        np.testing.assert_allclose(written_out[name], expected[name], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(plan[name], expected[name], rtol=1e-9, atol=1e-9)


def test_an_input_of_a_product_that_occurs_twice():
    """The product is computed once, at other labels than those where the input is written first."""
    text = """
    space o = 3
    index i j : o
    tensor x[o]
    E = x[i] * x[j] * x[j] * x[i]
    """
    x = np.array([0.5, -1.0, 2.0])
    assert einsum_plan(text).run(x=x) == pytest.approx(float(x @ x) ** 2)
