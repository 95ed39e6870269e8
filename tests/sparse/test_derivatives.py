"""Derivatives of networks over tensors of PyTorch, beside those of torch.einsum over the same tensors made dense."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.sparse

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore::DeprecationWarning")

from torch.autograd import forward_ad  # noqa: E402

from trnqc import sparse  # noqa: E402
from trnqc.errors import OperandError  # noqa: E402

COO, CSR, CSC = torch.sparse_coo, torch.sparse_csr, torch.sparse_csc
EXTENTS = dict(zip("ijklr", (5, 6, 4, 3, 2)))

# Subscripts, and the layouts of the operands: None for a dense one.
NETWORKS = {
    "matrices": ("ij,jk->ik", (COO, None)),
    "csr": ("ij,jk->ik", (CSR, None)),
    "csc": ("ij,jk->ik", (CSC, None)),
    "two sparse ones": ("ij,jk->ik", (COO, CSR)),
    "mttkrp": ("ijk,jr,kr->ir", (COO, None, None)),
    "sddmm": ("ij,ir,jr->ij", (COO, None, None)),
    "chain": ("ij,jk,kl->il", (CSR, None, None)),
    "total": ("ij->", (COO,)),
    "copy": ("ij->ji", (COO,)),
    "summed alone": ("ij,jk->j", (COO, None)),
    "outer": ("ij,k->kij", (COO, None)),
    "all dense": ("ij,jk->ki", (None, None)),
}


def leaves(subscripts, layouts, seed=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    collected = []
    for labels, layout in zip(subscripts.split("->")[0].split(","), layouts, strict=True):
        x = torch.randn([EXTENTS[c] for c in labels], generator=generator, dtype=dtype)
        if layout is not None:
            x = (x * (torch.rand(x.shape, generator=generator) < 0.4)).to_sparse(layout=layout)
        collected.append(x.requires_grad_())
    return collected


def dense_leaves(operands):
    """Dense copies, and 1 where the operands store something: what is not stored has no derivative."""
    dense = [x.detach().to_dense().requires_grad_() for x in operands]
    masks = [(x != 0).detach().double() if y.layout is not torch.strided else 1.0 for x, y in zip(dense, operands)]
    return dense, masks


def checked(operands, gradients):
    """Gradients as dense tensors, once they are of the layouts, patterns and types of the operands."""
    for x, gradient in zip(operands, gradients):
        assert gradient.layout is x.layout and gradient.dtype is x.dtype
        if x.layout is not torch.strided:
            assert gradient._nnz() == x._nnz()
    return [x.to_dense() for x in gradients]


SPARSE = ("matrices", "csr", "sddmm", "total", "copy")
# Results, by name and storage, whose derivatives are derived again.
TWICE = (*((x, "dense") for x in ("matrices", "csr", "sddmm", "summed alone")), ("matrices", "sparse"))


@pytest.mark.parametrize(("name", "out"), [*((x, "dense") for x in NETWORKS), *((x, "sparse") for x in SPARSE)])
def test_gradients(name, out):
    """Of first order, and of second order of some."""
    subscripts, layouts = NETWORKS[name]
    operands = leaves(subscripts, layouts)
    result = sparse.contract(subscripts, *operands, out=out)
    dense, masks = dense_leaves(operands)
    expected = torch.einsum(subscripts, *dense)
    sparsely = out == "sparse" and expected.dim() > 0
    assert result.layout is (COO if sparsely else torch.strided)
    torch.testing.assert_close(result.to_dense(), expected)
    mine = torch.autograd.grad((result.to_dense() ** 3).sum(), operands, create_graph=True)
    theirs = torch.autograd.grad((expected**3).sum(), dense, create_graph=True)
    theirs = [x * mask for x, mask in zip(theirs, masks)]
    torch.testing.assert_close(checked(operands, mine), theirs)
    if (name, out) not in TWICE:
        return
    mine = torch.autograd.grad(sum((x.to_dense() ** 2).sum() for x in mine), operands)
    theirs = torch.autograd.grad(sum((x**2).sum() for x in theirs), dense)
    theirs = [x * mask for x, mask in zip(theirs, masks)]
    torch.testing.assert_close(checked(operands, mine), theirs)


@pytest.mark.parametrize("name", ["matrices", "mttkrp"])
def test_differences_agree(name):
    """PyTorch's own check, by differences, of what is made from the values of a sparse operand."""
    subscripts, layouts = NETWORKS[name]
    x, *others = leaves(subscripts, layouts)
    plan, at, shape = sparse.plan(subscripts, x, *others, out="dense"), x.detach().indices(), x.shape
    values = x.detach().values().clone().requires_grad_()
    of_values = (values, *others)
    by_values = lambda v, *y: plan.run(torch.sparse_coo_tensor(at, v, shape), *y)  # noqa: E731
    assert torch.autograd.gradcheck(by_values, of_values, fast_mode=True)
    fixed = x.detach()
    assert torch.autograd.gradcheck(lambda *y: plan.run(fixed, *y), others, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda *y: plan.run(fixed, *y), others, fast_mode=True)


def test_one_tensor_in_two_places():
    (x,) = leaves("ij", (None,))
    result = sparse.contract("ij,ik->jk", x, x, out="dense")
    (mine,) = torch.autograd.grad((result**2).sum(), x)
    dense = x.detach().requires_grad_()
    (theirs,) = torch.autograd.grad((torch.einsum("ij,ik->jk", dense, dense) ** 2).sum(), dense)
    torch.testing.assert_close(mine, theirs)
    tangent = torch.func.jvp(lambda y: sparse.contract("ij,ik->jk", y, y, out="dense"), (dense,), (dense.sin(),))[1]
    torch.testing.assert_close(tangent, dense.sin().T @ dense + dense.T @ dense.sin())


def test_coordinates_that_stand_twice():
    at = torch.tensor([[1, 0, 1], [2, 1, 2]])
    values = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    x = torch.sparse_coo_tensor(at, values, (3, 4)).requires_grad_()
    y = torch.arange(8.0, dtype=torch.float64).reshape(4, 2)
    sparse.contract("ij,jk->ik", x, y, out="dense").sum().backward()
    expected = torch.zeros(3, 4, dtype=torch.float64)
    expected[1, 2], expected[0, 1] = y[2].sum(), y[1].sum()
    torch.testing.assert_close(x.grad.to_dense(), expected)


@functools.cache
def planned():
    """A plan of the network below and its sparse operand; it keeps the plans of its derivatives for all tests."""
    fixed, *others = (x.detach() for x in leaves("ij,jk,kl", (COO, None, None)))
    return sparse.plan("ij,jk,kl->il", fixed, *others, out="dense"), fixed


def network(kept=False):
    """A network with a fixed sparse operand, and the same of dense tensors; kept: of the plan above."""
    if kept:
        plan, fixed = planned()
        return lambda y, z: plan.run(fixed, y, z), lambda y, z: torch.einsum("ij,jk,kl->il", fixed.to_dense(), y, z)
    fixed = leaves("ij", (COO,))[0].detach()
    return lambda y, z: sparse.contract("ij,jk,kl->il", fixed, y, z, out="dense"), (
        lambda y, z: torch.einsum("ij,jk,kl->il", fixed.to_dense(), y, z)
    )


def stack(x):
    return torch.stack([x, -x, x.sin()])


TRANSFORMS = {
    "jvp": lambda f, y, z: torch.func.jvp(f, (y, z), (y.sin(), z.cos()))[1],
    "grad": lambda f, y, z: torch.func.grad(lambda y, z: f(y, z).sin().sum())(y, z),
    "jacfwd": lambda f, y, z: torch.func.jacfwd(f)(y, z),
    "jacrev": lambda f, y, z: torch.func.jacrev(f)(y, z),
    "hessian": lambda f, y, z: torch.func.hessian(lambda y: f(y, z).sin().sum())(y),
    "vmap": lambda f, y, z: torch.func.vmap(f, (0, 1))(stack(y), stack(z).movedim(0, 1)),
    "vmap of one": lambda f, y, z: torch.func.vmap(f, (0, None))(stack(y), z),
    "vmap of grad": lambda f, y, z: torch.func.vmap(torch.func.grad(lambda y: f(y, z).sin().sum()))(stack(y)),
    "grad of vmap": lambda f, y, z: torch.func.grad(lambda y: torch.func.vmap(f, (0, None))(stack(y), z).sin().sum())(
        y
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    y, z = (x.detach() for x in leaves("jk,kl", (None, None)))
    # Planning takes most of the time: where operands are transformed matters for two, of each kind.
    mine, theirs = network(kept=name not in ("grad", "vmap"))
    torch.testing.assert_close(TRANSFORMS[name](mine, y, z), TRANSFORMS[name](theirs, y, z))


def along(f, v):
    return lambda y: torch.func.jvp(f, (y,), (v,))[1]


NESTED = {
    "forward twice": lambda f, y: along(along(f, y.cos()), y.sin())(y),
    "forward three times": lambda f, y: along(along(along(f, y.cos()), y.sin()), y)(y),
    "jacfwd twice": lambda f, y: torch.func.jacfwd(torch.func.jacfwd(f))(y),
    "forward over reverse": lambda f, y: along(torch.func.grad(lambda y: f(y).sum()), y.sin())(y),
    "reverse over forward": lambda f, y: torch.func.grad(lambda y: along(f, y.detach().sin())(y).sum())(y),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_derivatives(name):
    """PyTorch drops the outer tangents within `jvp` of an autograd function that does not ask for them."""
    y = torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(3, 3)
    mine = NESTED[name](lambda y: sparse.contract("ij,jk,kl->il", y, y, y, out="dense", form="dense"), y)
    torch.testing.assert_close(mine, NESTED[name](lambda y: y @ y @ y, y))
    assert mine.any()


def test_forward_mode_by_dual_numbers():
    y, z = (x.detach() for x in leaves("jk,kl", (None, None)))
    mine, theirs = network()
    with forward_ad.dual_level():
        result, expected = (forward_ad.unpack_dual(f(forward_ad.make_dual(y, y.sin()), z)) for f in (mine, theirs))
    torch.testing.assert_close(result.tangent, expected.tangent)


def test_networks_are_not_traced():
    y, z = (x.detach() for x in leaves("jk,kl", (None, None)))
    with pytest.raises(OperandError, match="a tensor without data, or being traced"):
        torch.func.linearize(network()[0], y, z)
    with pytest.raises(OperandError, match="a tensor without data, or being traced"):
        sparse.contract("jk,kl->jl", y.to("meta"), z)


def test_what_sparse_results_have_no_derivative_for():
    x, y = (x.detach() for x in leaves("ij,jk", (COO, None)))
    with pytest.raises(OperandError, match=r"under torch\.func\.vmap ask for out='dense'"):
        torch.func.vmap(lambda y: sparse.contract("ij,jk->ik", x, y, out="sparse"))(stack(y))
    with forward_ad.dual_level(), pytest.raises(OperandError, match="no forward-mode derivatives of sparse tensors"):
        sparse.contract("ij,jk->ik", x, forward_ad.make_dual(y, y), out="sparse")


def test_gradients_of_single_precision():
    operands = leaves("ij,jk", (CSR, None), dtype=torch.float32)
    result = sparse.contract("ij,jk->ik", *operands, out="dense")
    assert result.dtype is torch.float32
    result.square().sum().backward()
    assert [x.grad.dtype for x in operands] == [torch.float32] * 2
    mixed = sparse.contract("ij,jk->ik", operands[0], operands[1].double(), out="dense")
    assert mixed.dtype is torch.float64
    mixed.sum().backward()
    assert operands[0].grad.dtype is torch.float32


def test_a_plan_keeps_the_plans_of_its_derivatives():
    x, y = leaves("ij,jk", (COO, None))
    plan = sparse.plan("ij,jk->ik", x, y, out="dense")
    torch.testing.assert_close(plan.run(), x.to_dense() @ y)
    kept = []
    for seed in (5, 6, 7):
        operands = leaves("ij,jk", (COO, None), seed)
        plan.run(*operands).sin().sum().backward()
        dense, masks = dense_leaves(operands)
        (dense[0] @ dense[1]).sin().sum().backward()
        torch.testing.assert_close(operands[0].grad.to_dense(), dense[0].grad * masks[0])
        torch.testing.assert_close(operands[1].grad, dense[1].grad)
        kept.append([id(x) for x in plan.derivatives.values()])
    assert len(kept[0]) == 2 and kept[0] == kept[1] == kept[2]


def test_no_gradient_where_none_is_recorded():
    x, y = leaves("ij,jk", (COO, None))
    with torch.no_grad():
        assert not sparse.contract("ij,jk->ik", x, y).requires_grad
    assert not sparse.contract("ij,jk->ik", x.detach(), y.detach()).requires_grad
    assert sparse.contract("ij,jk->ik", x.detach(), y).requires_grad


def test_other_libraries_beside_a_tensor():
    a, b = np.triu(np.arange(12.0).reshape(3, 4)), np.tril(np.ones((4, 5)))
    y = torch.tensor(b, requires_grad=True)
    for x in (a, scipy.sparse.csr_array(a), sparse.from_dense(a, kinds=("dense", "compressed")), a.tolist()):
        result = sparse.contract("ij,jk->ik", x, y, out="dense")
        np.testing.assert_allclose(result.detach().numpy(), a @ b)
        (gradient,) = torch.autograd.grad(result.sum(), y)
        np.testing.assert_allclose(gradient.numpy(), np.tile(a.sum(0)[:, None], (1, 5)))


def test_conversions_refuse_to_lose_a_gradient():
    (x,) = leaves("ij", (COO,))
    with pytest.raises(OperandError, match="requires a gradient, which a SparseTensor does not carry"):
        sparse.from_torch(x)
    with pytest.raises(OperandError, match="requires a gradient, which is lost here"):
        sparse.from_coo((2,), [[0, 1]], torch.ones(2, requires_grad=True))
    assert sparse.from_torch(x.detach()).nnz == x._nnz()


def test_it_breaks_the_graph_of_a_compiled_function():
    x, y = leaves("ij,jk", (COO, None))
    x = x.detach()
    compiled = torch.compile(lambda y: 2 * sparse.contract("ij,jk->ik", x, y + 1, out="dense"), backend="aot_eager")
    result = compiled(y)
    torch.testing.assert_close(result, 2 * x.to_dense() @ (y + 1))
    (gradient,) = torch.autograd.grad(result.sum(), y)
    torch.testing.assert_close(gradient, 2 * x.to_dense().sum(0)[:, None].expand(6, 4))


def test_tensors_without_elements():
    x = torch.zeros(3, 4, dtype=torch.float64).to_sparse().requires_grad_()
    y = torch.ones(4, 2, dtype=torch.float64, requires_grad=True)
    for out in ("dense", "sparse"):
        result = sparse.contract("ij,jk->ik", x, y, out=out)
        gx, gy = torch.autograd.grad(result.to_dense().sum(), [x, y])
        assert gx._nnz() == 0 and not gy.any()
    empty = torch.ones(0, 4, dtype=torch.float64, requires_grad=True)
    result = sparse.contract("ij,jk->ik", empty, y, out="dense")
    assert result.shape == (0, 2)
    assert torch.autograd.grad(result.sum(), empty)[0].shape == (0, 4)
