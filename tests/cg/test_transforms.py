"""torch.func and forward-mode derivatives of the modules against those of the dense definition."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402

from scripts.workloads import tensor_product_oracle as oracle  # noqa: E402
from scripts.workloads.tensor_products import awkward  # noqa: E402
from trnqc.cg import TensorProduct, TensorProductConv  # noqa: E402
from trnqc.cg.problem.text import text_of  # noqa: E402
from trnqc.errors import UnsupportedError  # noqa: E402

ROWS, COLS, NODES = torch.tensor([0, 3, 1, 1, 2, 0, 3]), torch.tensor([1, 3, 0, 0, 3, 2, 1]), 5
BOUND = 1e-12
CASES = pytest.mark.parametrize(
    ("label", "convolution"),
    [(label, kind) for label in ("uvu-1", "uvw-shared", "mixed", "unweighted") for kind in (False, True)],
)


def dense(problem, x, y, w, convolution):
    """The definition, differentiable by torch alone."""
    if not convolution:
        return oracle.product(problem, x, y, w)
    messages = oracle.product(problem, x[COLS], y, w)
    return messages.new_zeros(NODES, messages.shape[1]).index_add(0, ROWS, messages)


def pair(label, convolution):
    """(our function, the dense one, x, y, w, tangents of these)."""
    problem = awkward(label)
    y, w = (torch.from_numpy(a) for a in oracle.arrays(problem, len(ROWS) if convolution else 3)[1:3])
    x = torch.from_numpy(oracle.arrays(problem, NODES if convolution else 3, seed=1)[0])
    tangents = [torch.from_numpy(a) for a in oracle.arrays(problem, len(y), seed=2)[:3]]
    tangents[0] = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    module = (TensorProductConv if convolution else TensorProduct)(problem)
    edges = (ROWS, COLS) if convolution else ()
    return (
        lambda x, y, w: module(x, y, w, *edges),
        lambda x, y, w: dense(problem, x, y, w, convolution),
        (x, y, w),
        tuple(tangents),
    )


def agree(actual, wanted):
    actual, wanted = ([t] if isinstance(t, torch.Tensor) else list(t) for t in (actual, wanted))
    assert len(actual) == len(wanted)
    for ours, theirs in zip(actual, wanted):
        assert oracle.error(ours.detach().numpy(), theirs.detach().numpy()) < BOUND


def energy(function):
    """A number that is of high order in all operands."""
    return lambda *xyw: torch.tanh(function(*xyw)).pow(2).sum()


@CASES
def test_jvp(label, convolution):
    ours, theirs, at, along = pair(label, convolution)
    agree(torch.func.jvp(ours, at, along), torch.func.jvp(theirs, at, along))


@CASES
def test_dual_numbers(label, convolution):
    ours, theirs, at, along = pair(label, convolution)
    collected = []
    for function in (ours, theirs):
        with forward_ad.dual_level():
            z = function(*map(forward_ad.make_dual, at, along))
            collected.append(forward_ad.unpack_dual(z).tangent)
    agree(*collected)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
@CASES
def test_linearize(label, convolution):
    ours, theirs, at, along = pair(label, convolution)
    agree(torch.func.linearize(ours, *at)[1](*along), torch.func.jvp(theirs, at, along)[1])


@pytest.mark.parametrize("transform", ["jacfwd", "jacrev"])
@CASES
def test_jacobians(label, convolution, transform):
    ours, theirs, at, _ = pair(label, convolution)
    jacobian = getattr(torch.func, transform)
    agree(jacobian(ours, argnums=(0, 1, 2))(*at), jacobian(theirs, argnums=(0, 1, 2))(*at))


@CASES
def test_gradient(label, convolution):
    ours, theirs, at, _ = pair(label, convolution)
    agree(*(torch.func.grad(energy(f), argnums=(0, 1, 2))(*at) for f in (ours, theirs)))


@pytest.mark.parametrize("which", [0, 1])
@CASES
def test_hessian(label, convolution, which):
    """Forward over reverse."""
    ours, theirs, at, _ = pair(label, convolution)
    agree(*(torch.func.hessian(energy(f), argnums=which)(*at) for f in (ours, theirs)))


@pytest.mark.parametrize("label", ["uvu-1", "uvw-shared", "mixed"])
def test_third_derivatives_by_mixed_modes(label):
    """Forward over forward over reverse, and forward over reverse over reverse, along one direction."""
    ours, theirs, at, along = pair(label, False)

    def along_it(function):
        return lambda *xyw: torch.func.jvp(function, xyw, along)[1]

    def slope(function):
        return torch.func.grad(function, argnums=(0, 1, 2))

    def sloped(function):
        return lambda *xyw: sum(g.sin().sum() for g in slope(function)(*xyw))

    for compose in (
        lambda f: along_it(along_it(slope(f))),
        lambda f: along_it(slope(sloped(f))),
        lambda f: slope(along_it(f)),
    ):
        agree(compose(energy(ours))(*at), compose(energy(theirs))(*at))


@CASES
def test_vmap_of_gradient_and_of_jvp(label, convolution):
    ours, theirs, at, along = pair(label, convolution)
    several = tuple(torch.stack([t, 2 * t, -t]) for t in at)
    result = [torch.vmap(torch.func.grad(energy(f), argnums=(0, 1, 2)))(*several) for f in (ours, theirs)]
    agree(*result)
    # The tangent alone is a batch.
    directions = torch.stack([along[0], 3 * along[0]])
    result = [
        torch.vmap(lambda t, f=f: torch.func.jvp(lambda x: f(x, *at[1:]), at[:1], (t,))[1])(directions)
        for f in (ours, theirs)
    ]
    agree(*result)


@CASES
def test_gradients_of_a_tangent_by_the_plain_engine(label, convolution):
    """Reverse mode of autograd over dual numbers, as a trainer of forces by forward mode would run it."""
    ours, theirs, at, along = pair(label, convolution)
    collected = []
    for function in (ours, theirs):
        leaves = [t.clone().requires_grad_() for t in at]
        tangent = torch.func.jvp(function, tuple(leaves), along)[1]
        collected.append(torch.autograd.grad(tangent.pow(2).sum(), leaves, materialize_grads=True))
    agree(*collected)


def test_forward_mode_agrees_with_differences():
    ours, _, at, _ = pair("mixed", False)
    leaves = [t.requires_grad_() for t in at]
    assert torch.autograd.gradcheck(ours, leaves, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(ours, leaves, check_fwd_over_rev=True, fast_mode=True)


def test_single_precision_keeps_its_type():
    ours, theirs, at, along = pair("uvu-1", False)
    at, along = (tuple(t.float() for t in group) for group in (at, along))
    z, tangent = torch.func.jvp(ours, at, along)
    assert z.dtype == tangent.dtype == torch.float32
    wanted = torch.func.jvp(theirs, *(tuple(t.double() for t in group) for group in (at, along)))[1]
    assert oracle.error(tangent.numpy(), wanted.numpy()) < 1e-6


def test_an_operator_by_itself_refuses_dual_numbers():
    problem = awkward("uvu-1")
    x, y, w, _ = (torch.from_numpy(a) for a in oracle.arrays(problem, 3))
    with pytest.raises(UnsupportedError, match=r"expected a call by trnqc\.cg\.TensorProduct or"):
        torch.func.jvp(lambda x: torch.ops.trnqc.cg_forward(x, y, w, text_of(problem)), (x,), (x,))
