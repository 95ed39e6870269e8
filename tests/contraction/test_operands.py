"""Operands of all kinds give the result of np.einsum or torch.einsum, or one clear error."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import scipy.sparse
from pyscf import gto, lib, scf

import trnqc
from trnqc.contraction import OuterSum
from trnqc.errors import InputError, TrnqcError, UnsupportedError

CHAIN = "ab,bc,cd->ad"
PLACES = {
    "einsum": lambda *x: trnqc.einsum(CHAIN, *x),
    "loops": lambda *x: trnqc.einsum(CHAIN, *x, memory_limit=8 * 60),
    "plan": lambda *x: trnqc.einsum_plan(CHAIN, *[(9, 9)] * 3).run(*x),
    "backend": lambda *x: trnqc.einsum(CHAIN, *x, backend="cpu"),
}


@pytest.fixture
def operands():
    rng = np.random.default_rng(0)
    return [rng.standard_normal((9, 9)) for _ in range(3)]


class Subclass(np.ndarray):
    pass


def on_disk(x, where):
    kept = np.memmap(where / f"{id(x)}", x.dtype, "w+", shape=x.shape)
    kept[...] = x
    return kept


SAME = {
    "tagged": lambda x, _: lib.tag_array(x, mo_coeff=np.eye(2)),
    "subclass": lambda x, _: x.view(Subclass),
    "matrix": lambda x, _: np.matrix(x),
    "memory map": on_disk,
    "masked nowhere": lambda x, _: np.ma.array(x),
    "list": lambda x, _: x.tolist(),
    "reversed": lambda x, _: x[::-1, ::-1].copy()[::-1, ::-1],
    "big-endian": lambda x, _: x.astype(">f8"),
    "one row": lambda x, _: np.broadcast_to(x[0], x.shape),
}


@pytest.mark.parametrize("kind", SAME)
@pytest.mark.parametrize("place", PLACES)
def test_arrays_of_numpy_in_any_dress(place, kind, operands, tmp_path):
    inputs = [SAME[kind](x, tmp_path) for x in operands]
    result = PLACES[place](*inputs)
    assert type(result) is np.ndarray and result.dtype == np.float64
    np.testing.assert_allclose(result, np.einsum(CHAIN, *map(np.asarray, inputs)), rtol=1e-11, atol=1e-11)


def test_a_density_of_pyscf():
    mf = scf.RHF(gto.M(atom="H 0 0 0; F 0 0 0.92", basis="sto-3g", verbose=0)).run()
    result = trnqc.einsum("pq,pq->", mf.make_rdm1(), mf.get_hcore())
    assert result == pytest.approx(float(np.einsum("pq,pq->", mf.make_rdm1(), mf.get_hcore())), rel=1e-13)
    plan = trnqc.einsum_plan("pq,pq->", mf.make_rdm1(), mf.get_hcore())
    assert plan.run(mf.make_rdm1(), mf.get_hcore()) == result


REFUSED = {
    "masked": (lambda x: np.ma.masked_less(x, 0), "operand 0 is a masked array with .* masked elements"),
    "sparse matrix": (scipy.sparse.csr_array, r"operand 0 is sparse \(csr_array\); take trnqc.sparse.contract"),
    "None": (lambda _: None, "operand 0 is no array of numbers; found NoneType"),
    "dictionary": (lambda _: {}, "operand 0 is no array of numbers; found dict"),
    "words": (lambda x: x.astype(str), "holds elements of type <U32"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("place", ["einsum", "loops", "plan"])
def test_what_is_no_array_of_numbers(place, kind, operands):
    make, message = REFUSED[kind]
    with pytest.raises(InputError, match=message):
        PLACES[place](make(operands[0]), *operands[1:])


@pytest.mark.parametrize("kind", [bool, complex, object])
def test_what_backends_do_not_multiply(kind, operands):
    with pytest.raises(InputError, match="multiplies real numbers"):
        PLACES["backend"](*(x.astype(kind) for x in operands))


def test_nothing_on_a_backend():
    result = trnqc.einsum("xab,xbc->xac", np.ones((0, 2, 3)), np.ones((0, 3, 4)), backend="cpu")
    assert result.shape == (0, 2, 4)
    assert trnqc.einsum("ab,bc->ac", np.ones((0, 3)), np.ones((3, 0)), backend="cpu").shape == (0, 0)
    np.testing.assert_array_equal(
        trnqc.einsum("ab,bc->ac", np.ones((2, 0)), np.ones((0, 3)), backend="cpu"), np.zeros((2, 3))
    )


def test_shapes_of_numpy_numbers():
    assert trnqc.einsum_plan("ab,bc->ac", (np.int64(3), np.int32(4)), (4, 5)).shapes == {"A": (3, 4), "B": (4, 5)}


def test_results_in_arrays_of_any_dress(operands, tmp_path):
    expected = np.einsum(CHAIN, *operands)
    for make in (*(SAME[x] for x in ("tagged", "subclass", "matrix", "memory map")), lambda x, _: np.asfortranarray(x)):
        out = make(np.zeros((9, 9)), tmp_path)
        assert trnqc.einsum(CHAIN, *operands, out=out) is out
        np.testing.assert_allclose(out, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("view", [np.s_[:, :], np.s_[::-1, ::-1], np.s_[:, ::-1]])
def test_a_result_in_the_memory_of_an_operand(view, operands):
    expected = operands[0] @ operands[1]
    trnqc.einsum("ab,bc->ac", *operands[:2], out=operands[0][view])
    np.testing.assert_allclose(operands[0][view], expected, rtol=1e-11, atol=1e-11)


def test_a_dataset_is_not_written_while_it_is_read(operands, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = operands[0]
        with pytest.raises(InputError, match="out is the dataset of operand A, which is read while it is written"):
            trnqc.einsum("ab,bc->ac", file["a"], operands[1], out=file["a"])


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.ma.zeros((9, 9)), "a NumPy array without a mask.*; found MaskedArray"),
        ([0.0], "a NumPy array without a mask.*; found list"),
        (np.broadcast_to(0.0, (9, 9)), "out is read-only"),
        (np.zeros((9, 9), np.float32), "the result is float64"),
    ],
    ids=["masked", "list", "read-only", "float32"],
)
def test_results_that_have_no_place(out, message, operands):
    with pytest.raises(InputError, match=message):
        trnqc.einsum(CHAIN, *operands, out=out)


torch = pytest.importorskip("torch")


def tensors(operands):
    return [torch.tensor(x) for x in operands]


class Subtensor(torch.Tensor):
    pass


KINDS = {
    "parameter": lambda x: torch.nn.Parameter(x),
    "subclass": lambda x: x.as_subclass(Subtensor),
    "conjugate": lambda x: (x + 1j).conj(),
    "bfloat16": lambda x: x.bfloat16(),
    "float16": lambda x: x.half(),
    "int64": lambda x: (3 * x).long(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_any_kind(kind, operands):
    inputs = [KINDS[kind](x) for x in tensors(operands)]
    result, expected = trnqc.einsum(CHAIN, *inputs), torch.einsum(CHAIN, *inputs)
    assert result.dtype == expected.dtype and result.requires_grad == expected.requires_grad
    if kind in ("bfloat16", "float16"):
        # Each order of the products rounds differently: by some units of the last place of the sums of absolute values.
        exact, sizes = (torch.einsum(CHAIN, *(f(x).double() for x in inputs)) for f in (torch.Tensor.detach, torch.abs))
        assert ((result.double() - exact).abs() <= 2 * torch.finfo(result.dtype).eps * sizes).all()
    else:
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("kind", ["parameter", "subclass", "conjugate", "int64"])
def test_tensors_in_loops(kind, operands):
    inputs = [KINDS[kind](x) for x in tensors(operands)]
    with torch.no_grad():
        torch.testing.assert_close(PLACES["loops"](*inputs), torch.einsum(CHAIN, *inputs), check_dtype=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: x > 0, "no products of bool matrices"),
        (lambda x: x.to_sparse(), r"a sparse tensor \(torch.sparse_coo\); take trnqc.sparse.contract"),
        (lambda x: x.to_sparse_csr(), r"a sparse tensor \(torch.sparse_csr\)"),
    ],
)
@pytest.mark.parametrize("place", ["einsum", "loops", "plan"])
def test_tensors_that_are_refused(place, make, message, operands):
    with pytest.raises(InputError, match=message):
        PLACES[place](*map(make, tensors(operands)))


def fake(function, inputs):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        return function(*(mode.from_tensor(x) for x in inputs))


def traced(function, inputs):
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function)(*inputs)(*inputs)


def stacked(x):
    return torch.stack([x, -x, 2 * x])


def tangents(inputs):
    return (inputs[1], inputs[2], inputs[0])


TRANSFORMS = {
    "jvp": lambda f, x: torch.func.jvp(f, tuple(x), tangents(x))[1],
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(*x),
    "jacrev": lambda f, x: torch.func.jacrev(f)(*x),
    "grad": lambda f, x: torch.func.grad(lambda *y: f(*y).square().sum())(*x),
    "hessian": lambda f, x: torch.func.hessian(lambda y: f(y, y, y).sum())(x[0]),
    "vmap": lambda f, x: torch.func.vmap(f, (0, None, 1))(stacked(x[0]), x[1], stacked(x[2]).movedim(0, 1)),
    "vmap of grad": lambda f, x: torch.func.vmap(torch.func.grad(lambda y: f(y, *x[1:]).sum()))(stacked(x[0])),
    "make_fx": traced,
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_torch(transform, operands):
    inputs = tensors([x[:4, :4] for x in operands])
    result = TRANSFORMS[transform](lambda *x: trnqc.einsum(CHAIN, *x), inputs)
    torch.testing.assert_close(result, TRANSFORMS[transform](lambda *x: torch.einsum(CHAIN, *x), inputs))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_loops_refuse_to_lose_a_transform(transform, operands):
    inputs = tensors([x[:4, :4] for x in operands])
    with pytest.raises(UnsupportedError, match="carry no gradient, tangent or batch; A is"):
        TRANSFORMS[transform](lambda *x: trnqc.einsum(CHAIN, *x, memory_limit=8 * 12), inputs)


def test_loops_refuse_to_lose_a_tangent(operands):
    forward = torch.autograd.forward_ad
    a, b, c = tensors(operands)
    with forward.dual_level(), pytest.raises(UnsupportedError, match="A carries a tangent of forward-mode"):
        PLACES["loops"](forward.make_dual(a, b), b, c)


def test_tensors_without_data(operands):
    inputs = tensors(operands)
    result = trnqc.einsum("ab,bc,cd->da", *(x.to("meta").float() for x in inputs))
    assert result.is_meta and result.shape == (9, 9) and result.dtype == torch.float32
    assert fake(PLACES["einsum"], inputs).shape == (9, 9)
    with pytest.raises(UnsupportedError, match=r"A is an array without data \(meta, fake or traced\)"):
        fake(PLACES["loops"], inputs)


def test_it_compiles_into_one_graph(operands):
    inputs = tensors(operands)
    for dynamic in (False, True):
        compiled = torch.compile(
            lambda x, y, z: 2 * trnqc.einsum(CHAIN, x + 1, y, z), backend="aot_eager", fullgraph=True, dynamic=dynamic
        )
        torch.testing.assert_close(compiled(*inputs), 2 * torch.einsum(CHAIN, inputs[0] + 1, *inputs[1:]))
    x = inputs[0].requires_grad_()
    compiled(*inputs).sum().backward()
    torch.testing.assert_close(x.grad, 2 * (inputs[1] @ inputs[2]).sum(1).expand(9, 9))


def test_loops_run_beside_a_compiled_graph(operands):
    inputs = tensors(operands)
    compiled = torch.compile(lambda *x: 2 * PLACES["loops"](*x), backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs), 2 * torch.einsum(CHAIN, *inputs))


def test_it_exports(operands):
    class Model(torch.nn.Module):
        def forward(self, x, y, z):
            return trnqc.einsum(CHAIN, x, y, z)

    inputs = tuple(tensors(operands))
    torch.testing.assert_close(torch.export.export(Model(), inputs).module()(*inputs), torch.einsum(CHAIN, *inputs))


def test_denominators_of_tensors():
    e = torch.tensor([1.0, 2.0], dtype=torch.float64)
    np.testing.assert_array_equal(OuterSum(e, e)(slice(0, 2), slice(0, 2)), [[2, 3], [3, 4]])
    with pytest.raises(TrnqcError, match="vector 1 of an outer sum requires a gradient"):
        OuterSum(e, e.clone().requires_grad_())


PROGRAM = """
space o = 3
space v = 4
index i j : o
index a : v
tensor t[o,v]
tensor d[o,v]
tensor f[o,o]
R[i,a] = 2 * f[i,j] * t[j,a] - t[i,a] / d[i,a]
R[i,a] += 1/2 * t[i,a]
"""


@pytest.mark.parametrize("batched", range(3))
def test_programs_under_transforms(batched):
    plan, generator = trnqc.einsum_plan(PROGRAM), torch.Generator().manual_seed(4)
    inputs = [1 + torch.rand(shape, generator=generator, dtype=torch.float64) for shape in ((3, 4), (3, 4), (3, 3))]

    def mine(t, d, f):
        return plan.run({"t": t, "d": d, "f": f})

    def theirs(t, d, f):
        return 2 * f @ t - t / d + t / 2

    assert torch.autograd.gradcheck(mine, [x.clone().requires_grad_() for x in inputs], check_forward_ad=True)
    dims = tuple(0 if k == batched else None for k in range(3))
    stacks = [stacked(x) if k == batched else x for k, x in enumerate(inputs)]
    torch.testing.assert_close(torch.func.vmap(mine, dims)(*stacks), torch.func.vmap(theirs, dims)(*stacks))


def test_rounding_errors_have_no_symmetry():
    """A block of zeros and rounding errors is compared with the largest element of the array, not with itself."""
    x = np.zeros((60, 60))
    x[:20] = 1e-17 * np.random.default_rng(0).standard_normal((20, 60))
    x[40, 50] = x[50, 40] = 1.0
    result = trnqc.einsum("ab,bc->ac", x, np.eye(60), symmetries={0: "ab = ba"})
    np.testing.assert_array_equal(result, x)
    x[40, 50] = 0.5
    with pytest.raises(InputError, match="symmetric under exchange"):
        trnqc.einsum("ab,bc->ac", x, np.eye(60), symmetries={0: "ab = ba"})
