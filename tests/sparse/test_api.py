"""Every form over the whole corpus against einsum, whatever the storage of the result and the number of threads."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import trnqc.sparse
from tests.sparse.corpus import CASES, Coo, dense
from tests.sparse.oracle import reference
from trnqc.errors import ExpressionError, InputError, MemoryLimit, OperandError, ProgramError
from trnqc.sparse import SparseTensor, contract, from_coo, plan
from trnqc.sparse.api import FORMS
from trnqc.sparse.search import named_nests
from trnqc.sparse.tensors.convert import as_tensor

FEW = ("dlpno-1", "dlpno-2 map last", "total", "all dense", "no rows", "mttkrp 1")
EMPTIER = ("outer", "empty", "copy", "pairs of one tensor", "untidy elements", "siblings swapped")

# Cases that differ from others in the order of operands or in extents: in the quick tests, the fused form alone.
ALIKE = (
    "dlpno-1 all sparse",
    "dlpno-2 map between",
    "siblings swapped",
    "mttkrp 0",
    "mttkrp 2",
    "ttmc 0",
    "order four",
    "transposed",
    "swapped sparse",
    "batch of dense",
    "empty of three",
)

# Relative to the largest element: a few roundings of sums of some tens of terms.
TOLERANCE = 1e-14


def packed(operands):
    """As users hand them over; one tensor in two places is one object."""
    tensors = {}
    return [
        tensors.setdefault(id(x), from_coo(x.shape, x.coordinates, x.values)) if isinstance(x, Coo) else x
        for x in operands
    ]


def check(actual, expected):
    array = actual.to_dense() if isinstance(actual, SparseTensor) else actual
    assert array.shape == expected.shape and array.dtype == np.float64
    np.testing.assert_allclose(array, expected, rtol=0, atol=TOLERANCE * max(1.0, np.abs(expected).max(initial=0.0)))


def slow_if(label, more):
    return [pytest.mark.slow] if more and label in ALIKE else []


# "auto" runs as another one of the forms. These operands have no blocks; test_found_blocks.py has some that do.
@pytest.mark.parametrize(
    ("label", "form"),
    [
        pytest.param(x, form, marks=slow_if(x, form not in ("fused", "dense")))
        for x in CASES
        for form in FORMS
        if form != "blocks" and (form != "auto" or x in FEW)
    ],
)
def test_forms(label, form):
    case = CASES[label]
    operands = case.operands()
    chosen = plan(case.subscripts, *packed(operands), form=form, tree=None if form == "auto" else case.tree)
    one, three = chosen.run(), chosen.run(threads=3)
    check(one, reference(case.network, dense(operands)))
    np.testing.assert_array_equal(*(as_tensor(result).to_dense() for result in (one, three)))


# Most results of small networks are dense where nothing is asked.
@pytest.mark.parametrize(
    ("label", "out"),
    [*(pytest.param(x, "sparse", marks=slow_if(x, True)) for x in CASES), *((x, "dense") for x in EMPTIER)],
)
def test_storage_of_the_result(label, out):
    case = CASES[label]
    operands = case.operands()
    result = contract(case.subscripts, *packed(operands), out=out, form="fused", tree=case.tree)
    assert isinstance(result, np.ndarray if out == "dense" else SparseTensor)
    check(result, reference(case.network, dense(operands)))


def dlpno():
    case = CASES["dlpno-2 map last"]
    return case, packed(case.operands(seed=11))


def test_a_plan_prints_what_it_does():
    case, operands = dlpno()
    chosen = plan(case.subscripts, *operands, form="fused", tree=case.tree)
    text = str(chosen)
    for part in (
        "Kmn,mi,nu,Ki->Kiu: fused",
        "contracted as (((0, 1), 2), 3)",
        "estimate: ",
        "A       (",
        "for K:",
        "nests compared",
        "forall(K, ",
        "operands: ",
    ):
        assert part in text
    assert "part0" in chosen.source
    assert (
        str(plan(case.subscripts, *operands, form="fused", tree=case.tree)).split("nests")[0] == text.split("nests")[0]
    )
    unfused = plan(case.subscripts, *operands, form="unfused", tree=case.tree)
    assert "step 3" in str(unfused) and len(unfused.steps) == 3


def test_a_plan_runs_with_other_operands_and_keeps_what_is_packed():
    tensor = from_coo((7, 5, 11), CASES["mttkrp 1"].operands()[0].coordinates, CASES["mttkrp 1"].operands()[0].values)
    rng = np.random.default_rng(2)
    chosen = plan("ijk,ir,kr->jr", tensor, np.ones((7, 4)), np.ones((11, 4)), form="fused")
    packings = []
    for _ in range(3):
        b, c = rng.standard_normal((7, 4)), rng.standard_normal((11, 4))
        check(chosen.run(tensor, b, c), np.einsum("ijk,ir,kr->jr", tensor.to_dense(), b, c))
        packings.append(chosen.operands.packed(0, chosen.steps[0].nest.formats[0]))
    assert packings[0] is packings[1] is packings[2]
    b[:] = 0
    assert not chosen.run(tensor, b, c).any()


def test_a_nest_of_ones_own():
    case, operands = dlpno()
    nest = named_nests.fused(case.network, (((0, 1), 3), 2), ["Kimn", "Kin", "Kinu"], full=[2])
    chosen = plan(case.subscripts, *operands, form=nest)
    check(chosen.run(), reference(case.network, dense(case.operands(seed=11))))
    assert "own nest" in str(chosen)
    with pytest.raises(InputError, match="the nest computes Kmn,mi,nu,Ki->Kiu"):
        plan("ij,jk->ik", np.ones((2, 3)), np.ones((3, 2)), form=nest)


def test_what_libraries_hold():
    torch = pytest.importorskip("torch")
    a, b = np.triu(np.arange(12.0).reshape(3, 4)), np.tril(np.ones((4, 5)))
    expected = a @ b
    check(contract("ij,jk->ik", scipy.sparse.csr_array(a), b), expected)
    check(contract("ij,jk->ik", a.astype(np.float32), b.astype(int)), expected)
    with_torch = [
        contract("ij,jk->ik", torch.from_numpy(a).to_sparse(), scipy.sparse.coo_matrix(b)),
        contract("ij,jk", torch.from_numpy(a), b),
    ]
    for result in with_torch:
        assert isinstance(result, torch.Tensor)
        check(result.to_dense().numpy(), expected)


def test_extents_too_large_for_arrays():
    """Coordinates beyond 32 bits, and a result of 2^80 elements of which two are stored."""
    big = 2**40
    x = from_coo((big, 3), np.array([[5, big - 1], [1, 1]]), np.array([2.0, 3.0]))
    y = from_coo((3, big), np.array([[1], [big - 2]]), np.array([7.0]))
    for form in ("fused", "nary", "unfused-rows"):
        result = contract("ij,jk->ik", x, y, out="sparse", form=form)
        coordinates, values = result.to_coo()
        assert sorted(zip(*coordinates.tolist(), values)) == [(5, big - 2, 14.0), (big - 1, big - 2, 21.0)]
    with pytest.raises(MemoryLimit, match="this machine has"):
        contract("ij,jk->ik", x, y, out="dense", form="fused")
    inner = named_nests.nary(plan("ij,jk->ik", x, y, out="sparse").network, ("j", "k", "i"))
    with pytest.raises(MemoryLimit, match="more than 64-bit numbers count"):
        contract("ij,jk->ik", x, y, form=inner)
    with pytest.raises(MemoryLimit, match="dense matrices"):
        contract("ij,jk->ik", x, y, form="dense")


@pytest.mark.parametrize("form", ["nary", "unfused", "unfused-rows"])
def test_what_is_not_finite_is_kept(form):
    """Where both factors are stored; an element that is not stored multiplies nothing where no level is dense."""
    x = from_coo((3, 3), np.array([[0, 0, 1], [0, 2, 1]]), np.array([np.inf, 1.0, np.nan]))
    y = from_coo((3, 2), np.array([[0, 1, 2], [0, 1, 0]]), np.array([2.0, 1.0, 4.0]))
    result = contract("ij,jk->ik", x, y, form=form, out="dense")
    np.testing.assert_array_equal(result, [[np.inf, 0], [0, np.nan], [0, 0]])


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (lambda a: contract("ij,jk->ik", a), ExpressionError, "2 operands; found 1"),
        (lambda a: contract("ij,jk->ik", a, a), ExpressionError, "index j has extent 3 in operand 1"),
        (lambda a: contract("ij,kj->ik", a, a, tree=((0, 1), 2)), ExpressionError, "each of the operands 0 .. 1"),
        (lambda a: contract("ij,kj->ik", a, a, form="fast"), InputError, "form is one of auto"),
        (lambda a: contract("ij,kj->ik", a, a, out="coo"), InputError, "out is 'auto'"),
        (lambda a: contract("ij,kj->ik", a, a, threads=0), InputError, "threads is a number"),
        (lambda a: contract("ij,kj->ik", a, np.array([["x"]])), OperandError, "operand 1: "),
        (lambda a: plan("ij,kj->ik", a, a).run(a), OperandError, "takes 2 operands"),
        (lambda a: plan("ij,kj->ik", a, a).run(a, a.copy()), OperandError, "same tensor"),
        (lambda a: plan("ij,kj->ik", a, a.copy()).run(a.T, a), OperandError, "operand 0 .* must have the shape"),
    ],
)
def test_refused(work, error, message):
    with pytest.raises(error, match=message):
        work(np.ones((3, 4)))


def test_workspaces_beyond_the_limit():
    rng = np.random.default_rng(1)
    operands = [rng.standard_normal((40, 40)) for _ in range(3)]
    chosen = plan("ij,jk,kl->il", *operands, form="fused", memory_limit=40 * 8)
    assert chosen.estimate.bytes <= 40 * 8
    check(chosen.run(), operands[0] @ operands[1] @ operands[2])
    with pytest.raises(MemoryLimit, match="dense matrices of"):
        plan("ij,jk,kl->il", *operands, form="dense", memory_limit=40 * 8)


def test_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CC", "/nonexistent/cc")
    trnqc.sparse.run.kernel.compiled.cache_clear()
    trnqc.sparse.run.coordinates.say_no_compiler.cache_clear()
    with pytest.warns(RuntimeWarning, match="no usable C compiler"):
        result = contract("ij,jk->ik", np.eye(3), scipy.sparse.eye_array(3), form="fused", out="dense")
    np.testing.assert_array_equal(result, np.eye(3))


def test_nests_that_mean_nothing():
    case, operands = dlpno()
    nest = named_nests.nary(case.network)
    with pytest.raises(ProgramError, match=r"the format of tensor . must have the indices"):
        plan(case.subscripts, *operands, form=replace(nest, formats=nest.formats[1:] + nest.formats[:1]))


def test_the_document_runs(capsys, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    page = (Path(__file__).resolve().parents[2] / "docs" / "sparse.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)  # The example draws a figure.
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "sparse.md", "exec"), names)
    expected = reference(names["plan"].network, [as_tensor(names[x]).to_dense() for x in ("I", "C", "P2", "L")])
    check(names["E"], expected)
    assert "forall(" in capsys.readouterr().out


def test_a_search_without_time_has_a_plan():
    case, operands = dlpno()
    chosen = plan(case.subscripts, *operands, form="fused", time_limit=0.0)
    check(chosen.run(), reference(case.network, dense(case.operands(seed=11))))


def test_what_is_imported():
    """Holding tensors and making plans needs no PyTorch, and Z3 only where nests are searched for."""
    code = """
import sys, numpy as np, trnqc
trnqc.sparse.contract("ij,jk->ik", np.eye(2), np.eye(2), form="dense")
assert not {"torch", "pyscf", "z3"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plan_is_remembered_for_elements_at_the_same_places():
    """Values may differ; other places, shapes, 0/1 maps and options are planned anew."""
    rng = np.random.default_rng(5)
    matrix = scipy.sparse.random_array((40, 30), density=0.1, format="csr", rng=rng)
    other = matrix * 3
    dense = rng.standard_normal((30, 7))
    first, second = trnqc.sparse.plan("ij,jk->ik", matrix, dense), trnqc.sparse.plan("ij,jk->ik", other, dense + 1)
    assert second.steps is first.steps and second.notes is first.notes
    np.testing.assert_allclose(second.run(), other @ (dense + 1), rtol=1e-13)
    np.testing.assert_allclose(first.run(), matrix @ dense, rtol=1e-13)
    moved = scipy.sparse.csr_array((matrix.data, (matrix.indices + 1) % 30, matrix.indptr), shape=matrix.shape)
    holes = dense * (dense > 0)
    ones = scipy.sparse.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    for operands, options in (
        ((moved, dense), {}),
        ((matrix, holes), {}),
        ((ones, dense), {}),
        ((matrix, dense), {"out": "sparse"}),
        ((matrix, dense), {"time_limit": 2.0}),
    ):
        plan = trnqc.sparse.plan("ij,jk->ik", *operands, **options)
        assert plan.notes is not first.notes
        result = plan.run()
        result = result.toarray() if options.get("out") else result
        np.testing.assert_allclose(result, operands[0] @ operands[1], rtol=1e-13, atol=1e-13)
