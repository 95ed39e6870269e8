"""Programs over blocks give the same numbers without the work for zero blocks."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.contraction.numbers import antisymmetric, term_by_term
from trnqc.contraction import einsum_plan, parse
from trnqc.contraction.planning.program import plan_program
from trnqc.errors import ExpressionError, InputError

HEAD = """
space o = 2 + 1
space v = 3 + 2
space q = 4
index i j k l : o
index a b c d : v
index p : q
tensor t[v,v,o,o] antisymmetric(0,1) antisymmetric(2,3) conserving(0,1|2,3)
tensor g[o,o,v,v] antisymmetric(0,1) antisymmetric(2,3) conserving(0,1|2,3)
tensor f[v,v] conserving(0|1)
tensor e[v,v] blocks(01)
tensor x[q,v]
tensor d[v,v]
"""


def masked(whole: np.ndarray, allowed, parts) -> np.ndarray:
    """The array with all blocks but the allowed ones set to zero."""
    result = np.zeros_like(whole)
    for numbers in product(*(range(len(p)) for p in parts)):
        if numbers in allowed:
            cut = tuple(slice(sum(p[:k]), sum(p[: k + 1])) for p, k in zip(parts, numbers))
            result[cut] = whole[cut]
    return result


@pytest.fixture
def arrays():
    rng = np.random.default_rng(4)
    program = parse(HEAD + "E = f[a,a]")
    arrays = {}
    for tensor in program.tensors:
        whole = rng.standard_normal(tuple(space.extent for space in tensor.spaces))
        whole = antisymmetric(whole) if tensor.symmetries else whole
        arrays[tensor.name] = masked(whole, tensor.allowed, [s.blocks or (s.extent,) for s in tensor.spaces])
    return arrays


PROGRAMS = {
    "ladder": "R[a,b,i,j] = 1/4 * g[k,l,c,d] * t[c,d,i,j] * t[a,b,k,l]",
    "rings": "R[a,b,i,j] = P(i,j) * P(a,b) * g[k,l,c,d] * t[a,c,i,k] * t[d,b,l,j]\nE = R[a,b,i,j] * g[i,j,a,b]",
    "targets": "X[a,b] = f[a,c] * e[c,b]\nY[a,b] = X[a,c] * f[c,b]\nY[a,b] += X[b,a]\nE = Y[a,a]",
    "zero": "X[a,b] = e[a,c] * e[c,b]\nX[a,b] += e[a,c] * e[c,d] * d[d,b]",
    "grows after it read itself": "X[a,b] = f[a,b]\nX[a,b] = X[b,a] + X[a,c] * f[c,b]\nX[a,b] += f[b,a]",
    "reads itself": "X[a,b] = d[a,b]\nX[a,b] = X[b,a] + X[a,c] * f[c,b]\nX[a,b] += X[c,a] * X[c,b]",
    "denominator": "X[a,b] = f[a,b] / d[a,b]",
    "input grows": "e[a,b] += d[a,b]\nY[a] = e[a,b] * x[p,b]",
    "whole spaces": "Y[p] = x[p,a] * f[a,b] * d[b,b]",
    "scalar zero": "E = e[a,b] * f[a,b]\nY[a] = d[a,b] * f[b,b]",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_blocks_give_the_same_numbers(arrays, name):
    program = parse(HEAD + PROGRAMS[name])
    expected = term_by_term(program, arrays)
    for share in (False, True):
        plan = plan_program(program, program.targets, share=share)
        result = plan.run({key: arrays[key] for key in program.inputs})
        result = result if isinstance(result, dict) else {program.targets[0]: result}
        for key in program.targets:
            np.testing.assert_allclose(result[key], expected[key], rtol=1e-11, atol=1e-11)


def test_zero_blocks_cost_nothing():
    """A product of matrices with blocks of 3 and 2: 27 + 8 passes instead of 125."""
    diagonal = einsum_plan(HEAD + "X[a,b] = f[a,c] * f[c,b]")
    assert diagonal.multiply_adds == 27 + 8
    assert einsum_plan(HEAD + "X[a,b] = d[a,c] * d[c,b]").multiply_adds == 3**3 + 3 * 9 * 2 + 3 * 3 * 4 + 2**3
    assert einsum_plan(HEAD + "X[a,b] = e[a,c] * e[c,b]").multiply_adds == 0
    assert "f₀₀[a₀,c₀] * f₀₀[c₀,b₀]" in str(diagonal)


def test_equal_blocks_are_read_once():
    """t₀₁₀₁, t₁₀₀₁ ... are one array up to sign; their products with the vector become one by sharing."""
    plan = einsum_plan(HEAD + "X[a,b,i,j] = t[a,c,i,j] * d[c,b]")
    read = {leaf.name for tree in plan.trees for leaf in tree.leaves if leaf.name.startswith("t")}
    assert read == {"t₀₀₀₀", "t₀₁₀₁", "t₁₁₁₁"}


def test_functions_are_asked_for_blocks(arrays):
    asked = []

    def integrals(rows: slice, columns: slice) -> np.ndarray:
        asked.append((rows.start, rows.stop, columns.start, columns.stop))
        return arrays["d"][rows, columns]

    text = HEAD.replace("tensor d[v,v]", "function d[v,v] cost 9") + "X[a,b] = f[a,c] * d[c,b]"
    result = einsum_plan(text).run({"f": arrays["f"], "d": integrals})
    np.testing.assert_allclose(result, arrays["f"] @ arrays["d"], rtol=1e-12)
    assert set(asked) == {(*rows, *columns) for rows in ((0, 3), (3, 5)) for columns in ((0, 3), (3, 5))}


def test_blocks_may_be_given_later(arrays):
    text = HEAD.replace("= 2 + 1", "").replace("= 3 + 2", "") + "X[a,b] = f[a,c] * f[c,b]"
    program = parse(text.replace("tensor e[v,v] blocks(01)", "tensor e[v,v]"))
    plan = plan_program(program.sized(v=(3, 2), o=3))
    assert plan.multiply_adds == 35
    np.testing.assert_allclose(plan.run({"f": arrays["f"]}), arrays["f"] @ arrays["f"], rtol=1e-12)
    assert plan_program(program.sized(v=5, o=3)).multiply_adds == 125


def test_torch_outputs_stay_torch(arrays):
    torch = pytest.importorskip("torch")
    result = einsum_plan(HEAD + "X[a,b] = f[a,c] * f[c,b]").run({"f": torch.tensor(arrays["f"])})
    np.testing.assert_allclose(result.numpy(), arrays["f"] @ arrays["f"], rtol=1e-12)


def test_refusals(arrays):
    with pytest.raises(ExpressionError, match="divides by a block of e"):
        einsum_plan(HEAD + "X[a,b] = d[a,b] / e[a,b]")
    with pytest.raises(InputError, match=r"operand f has the shape \(5, 5\)"):
        einsum_plan(HEAD + "X[a,b] = f[a,b]").run({"f": arrays["f"][:4]})
