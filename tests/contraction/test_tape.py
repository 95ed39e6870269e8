"""Tapes: the same numbers as those of the steps, and which plans have one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import trnqc
from trnqc.contraction import einsum_plan, parse
from trnqc.contraction.run.dispatch import run_computation
from trnqc.contraction.tape import loops as loops_module
from trnqc.contraction.tape import machine
from trnqc.contraction.tape.machine import run_tape

EXAMPLE = Path(__file__).parents[2] / "examples" / "rccsd.txt"
BLOCKS = """
space d = 4 + 1 + 3
space e = 2 + 3 + 1
index a b c : d
index p q r : e
tensor A[d,e,d] conserving(0,1|2)
tensor B[d,e,d] conserving(0,1|2)
tensor W[e,e] conserving(0|1)
T[a,p,q,c] = 1/2 * A[a,p,b] * B[b,q,c] * W[q,r] * W[r,q]
E = T[a,p,p,a]
"""


def assert_same(plan, operands):
    """The tape runs, and gives what the steps give as calls of NumPy."""
    assert run_tape(plan.tape, operands) is not None
    results = plan.run(operands, check_finite=False)
    expected = run_computation(plan, operands, check_finite=False)
    if len(plan.outputs) == 1:
        results, expected = {plan.outputs[0]: results}, {plan.outputs[0]: expected}
    for name, value in expected.items():
        assert results[name].shape == value.shape
        np.testing.assert_allclose(results[name], value, rtol=0, atol=1e-13 * max(1, np.abs(value).max()))


@pytest.mark.parametrize("extents", [{"o": 1, "v": 1}, {"o": 3, "v": 4}, {"o": 2, "v": 7}])
def test_coupled_cluster(extents):
    """Accumulated statements, several outputs, a number, denominators."""
    program = parse(EXAMPLE.read_text(encoding="utf-8")).sized(**extents)
    plan = einsum_plan(program, outputs=("n1", "n2", "energy"))
    rng = np.random.default_rng(1)
    operands = {}
    for tensor in program.tensors:
        x = rng.standard_normal(tuple(space.extent for space in tensor.spaces))
        for symmetry in tensor.symmetries:
            x = x + symmetry.sign * x.swapaxes(*symmetry.axes)
        operands[tensor.name] = x
    assert_same(plan, {name: operands[name] for name, _ in plan.inputs})


def test_blocks_are_read_and_written_in_the_whole_arrays():
    plan = einsum_plan(parse(BLOCKS), outputs=("T", "E"))
    rng = np.random.default_rng(2)
    operands = {}
    for name, _ in plan.inputs:
        operands[name] = np.zeros(plan.shapes[name])
        for slices, _ in plan.blocked.inputs[name].blocks:
            operands[name][slices] = rng.standard_normal(operands[name][slices].shape)
    assert_same(plan, operands)
    whole = np.einsum("apb,bqc,qr,rq->apqc", *(operands[name] for name in "ABWW")) / 2
    np.testing.assert_allclose(plan.run(operands)["T"], whole, atol=1e-13)
    turned = {name: np.asfortranarray(x) for name, x in operands.items()}
    np.testing.assert_allclose(plan.run(turned)["T"], whole, atol=1e-13)


@settings(max_examples=40, deadline=None)
@given(some.data())
def test_chains_of_any_labels(data):
    """Diagonals, sums over one operand, outer products, batches and extents of one."""
    extents = {label: data.draw(some.sampled_from([1, 2, 3, 5, 9])) for label in "abcdef"}
    terms = [data.draw(some.text("abcdef", min_size=1, max_size=3)) for _ in range(5)]
    used = sorted(set("".join(terms)))
    output = "".join(data.draw(some.permutations(used))[: data.draw(some.integers(0, 4))])
    rng = np.random.default_rng(data.draw(some.integers(0, 9)))
    arrays = [rng.standard_normal([extents[label] for label in term]) for term in terms]
    subscripts = f"{','.join(terms)}->{output}"
    plan = einsum_plan(subscripts, *arrays)
    result = plan.run(*arrays)
    expected = np.einsum(subscripts, *arrays)
    scale = np.einsum(subscripts, *map(np.abs, arrays)).max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-13 * max(1, scale))
    np.testing.assert_allclose(trnqc.einsum(subscripts, *arrays), expected, rtol=0, atol=1e-13 * max(1, scale))


def test_other_plans_have_none():
    chain = "ab,bc,cd,de,ef->af"
    assert einsum_plan(chain, *[(4, 4)] * 5).tape is not None
    assert einsum_plan(chain, *[(40, 40)] * 5).tape is None
    assert einsum_plan("ab,bc->ac", (4, 4), (4, 4)).tape is None
    assert einsum_plan(chain, *[(4, 4)] * 4, (4, 0)).tape is None
    limited = einsum_plan("Qae,Qbf,efij,ijkl,klmn->abmn", (3, 3, 3), (3, 3, 3), *[(3, 3, 3, 3)] * 3, memory_limit=300)
    assert limited.tape is None


def test_other_arrays_run_step_by_step():
    chain, rng = "ab,bc,cd,de,ef->af", np.random.default_rng(3)
    arrays = [rng.standard_normal((4, 4)) for _ in range(5)]
    plan = einsum_plan(chain, *arrays)
    for kind in (np.float32, np.complex128):
        result = plan.run(*(x.astype(kind) for x in arrays))
        assert result.dtype == kind
        np.testing.assert_allclose(result, plan.run(*arrays), rtol=0, atol=1e-4)


def test_plans_run_while_the_function_is_compiled(monkeypatch):
    monkeypatch.setattr(machine, "tape_function", lambda: None)
    arrays = [np.random.default_rng(4).standard_normal((4, 4)) for _ in range(5)]
    np.testing.assert_allclose(
        einsum_plan("ab,bc,cd,de,ef->af", *arrays).run(*arrays), np.linalg.multi_dot(arrays), atol=1e-13
    )


def test_loops_are_those_of_matrices():
    rows, columns, summed = (3, 5, 4, 0), (5, 1, 0, 1), (4, 0, 1, 5)
    kind, loops = loops_module.ordered([rows, columns, summed], 1)
    assert kind == loops_module.MATRICES and loops == [rows, summed, columns]
    # A product of elements is one loop over all of them.
    kind, loops = loops_module.ordered([(3, 20, 20, 20), (4, 5, 5, 5), (5, 1, 1, 1)], 2)
    assert kind == loops_module.LOOPS and loops == [(60, 1, 1, 1)]
