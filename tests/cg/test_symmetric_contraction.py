"""The module `SymmetricContraction`: values, derivatives of every order, modes of elements, and errors."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402

from scripts.workloads.contraction_oracle import reference  # noqa: E402
from trnqc.cg import SymmetricContraction  # noqa: E402
from trnqc.cg.torch.contraction_operators import CONTRACTION  # noqa: E402
from trnqc.errors import OperandError, UnsupportedError, UnsupportedPrecision  # noqa: E402

# Rounding errors of sums of at most a hundred products of a few factors.
BOUND = {torch.float64: 1e-12, torch.float32: 1e-5}
CASES = {2: ("3x0e+3x1o+3x2e", "3x0e+3x2e"), 3: ("3x0e+3x1o+3x2e", "3x0e+3x1o"), 4: ("3x0e+3x1o", "3x0e+3x1o")}
ELEMENTS = torch.tensor([1, 0, 2, 1, 1])


def case(correlation: int, dtype: torch.dtype = torch.float64):
    """A module with three elements, and features of five nodes."""
    torch.manual_seed(0)
    module = SymmetricContraction(*CASES[correlation], correlation, num_elements=3).to(dtype)
    return module, torch.randn(5, 3, module.problem.dims[0], dtype=dtype)


def dense(module: SymmetricContraction, x: torch.Tensor, weight: torch.Tensor, elements=ELEMENTS) -> torch.Tensor:
    b = reference(module.problem, weight[elements], x.transpose(1, 2))
    widths = [slot.ir.dim for slot in module.irreps_out]
    return torch.cat([part.transpose(1, 2).flatten(1) for part in b.split(widths, 1)], dim=1)


def error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    return float((ours - theirs).detach().abs().max() / theirs.detach().abs().max())


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("correlation", CASES)
def test_agrees_with_dense_coupling_tensors(correlation, dtype):
    module, x = case(correlation, dtype)
    assert error(module(x, ELEMENTS), dense(module, x, module.weight)) < BOUND[dtype]


def test_elements_as_numbers_or_one_hot_vectors_and_features_by_slot():
    module, x = case(3)
    b = module(x, ELEMENTS)
    assert torch.equal(module(x, torch.nn.functional.one_hot(ELEMENTS, 3).double()), b)
    assert torch.equal(module(x, ELEMENTS.int()), b)
    by_slot = torch.cat([part.flatten(1) for part in x.split([slot.ir.dim for slot in module.irreps_in], 2)], 1)
    assert torch.equal(module(by_slot, ELEMENTS), b)


@pytest.mark.parametrize("nodes", [0, 1])
def test_few_nodes(nodes):
    module, x = case(2)
    b = module(x[:nodes], ELEMENTS[:nodes])
    assert b.shape == (nodes, module.irreps_out.dim)
    assert torch.equal(b, module(x, ELEMENTS)[:nodes])
    gradient = torch.autograd.grad(b.sum(), module.weight)[0]
    assert gradient.shape == module.weight.shape
    assert bool(gradient[[0, 2]].eq(0).all())


@pytest.mark.parametrize("correlation", CASES)
def test_derivatives_by_finite_differences(correlation):
    module, x = case(correlation)
    x, w = x[:2].requires_grad_(), module.weight.detach().clone().requires_grad_()

    def b(x, w):
        return module(x, ELEMENTS[:2], w)

    def gradients(x, w):
        return torch.autograd.grad(b(x, w).tanh().sum(), (x, w), create_graph=True)

    options = {"fast_mode": True, "atol": 1e-6}
    assert torch.autograd.gradcheck(b, (x, w), check_forward_ad=True, check_batched_grad=True, **options)
    assert torch.autograd.gradgradcheck(b, (x, w), **options)
    assert torch.autograd.gradgradcheck(gradients, (x, w), **options)


@pytest.mark.parametrize("outer", ["jacfwd", "jacrev"])
@pytest.mark.parametrize("inner", ["jacfwd", "jacrev"])
def test_transforms_in_any_nesting(outer, inner):
    module = SymmetricContraction("1x0e+1x1o", "1x0e+1x1o", 2, num_elements=2).double()
    x, w, elements = torch.randn(2, 1, 4, dtype=torch.float64), module.weight.detach(), torch.tensor([1, 0])

    def second(function):
        return getattr(torch.func, outer)(getattr(torch.func, inner)(function, argnums=(0, 1)), argnums=(0, 1))(x, w)

    ours = second(lambda x, w: module(x, elements, w).tanh().sum())
    theirs = second(lambda x, w: dense(module, x, w, elements).tanh().sum())
    for a, b in zip(sum(ours, ()), sum(theirs, ())):
        assert error(a, b) < 1e-10


def test_dual_numbers():
    module, x = case(3)
    along = torch.randn_like(x)
    tangents = []
    for function in (lambda x: module(x, ELEMENTS), lambda x: dense(module, x, module.weight)):
        with forward_ad.dual_level():
            tangents.append(forward_ad.unpack_dual(function(forward_ad.make_dual(x, along))).tangent)
    assert error(*tangents) < 1e-12


def test_vmap_over_samples():
    module, x = case(2)
    samples = torch.stack([x, 2 * x])
    batched = torch.func.vmap(lambda x: module(x, ELEMENTS))(samples)
    assert error(batched, torch.stack([module(x, ELEMENTS) for x in samples])) < 1e-14


@pytest.mark.parametrize("name", ["value", "gradient"])
def test_operators_pass_the_checks_of_torch(name):
    module, x = case(2)
    x = x.transpose(1, 2).contiguous().requires_grad_()
    c = torch.randn(3, len(module.problem.terms), 3, dtype=x.dtype, requires_grad=True)
    arguments = [c, x, torch.randn(1, *x.shape, dtype=x.dtype, requires_grad=True)]
    if name == "gradient":
        arguments.append(torch.randn(5, module.problem.dims[1], 3, dtype=x.dtype, requires_grad=True))
    options = (ELEMENTS, str(module.problem), *[True] * (name == "gradient"))
    torch.library.opcheck(CONTRACTION.operators[name], (*arguments, *options))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
def test_exported_programs_take_any_number_of_nodes():
    module, x = case(2)
    dynamic = {"x": {0: torch.export.Dim("nodes")}, "elements": {0: torch.export.Dim("nodes")}}
    program = torch.export.export(module, (x, ELEMENTS), dynamic_shapes=dynamic).module()
    assert error(program(x[:3], ELEMENTS[:3]), module(x[:3], ELEMENTS[:3])) < 1e-14


def test_weights_of_the_module_or_of_the_caller():
    module, x = case(2)
    other = SymmetricContraction(*CASES[2], 2, num_elements=3, internal_weights=False).double()
    assert list(other.state_dict()) == []
    assert torch.equal(other(x, ELEMENTS, module.weight), module(x, ELEMENTS))
    with pytest.raises(OperandError, match="found none"):
        other(x, ELEMENTS)


def test_copies_pickles_and_conversions():
    module, x = case(3)
    b = module(x, ELEMENTS)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    for other in (copy.deepcopy(module), torch.load(file, weights_only=False)):
        assert torch.equal(other(x, ELEMENTS), b)
    # Coupling coefficients are not rounded on the way through single precision.
    module.weight.data = module.weight.data.float().double()
    before = module(x, ELEMENTS)
    assert torch.equal(module.float().double()(x, ELEMENTS), before)


def test_autocast_computes_in_single_precision():
    module, x = case(2, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        b = module(x, ELEMENTS)
    assert b.dtype == torch.float32
    assert torch.equal(b, module(x, ELEMENTS))


def test_nan_of_a_node_stays_with_it():
    module, x = case(3)
    x[2] = np.nan
    wrong = module(x, ELEMENTS).isnan().any(dim=1)
    assert wrong.tolist() == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("change", "raised", "message"),
    [
        (lambda x, e: (x[:, :2], e), OperandError, r"x: expected \[nodes, 3, 9\]"),
        (lambda x, e: (x, e + 1), OperandError, "from 0 to 2, found 3"),
        (lambda x, e: (x, e[:2]), OperandError, "one for each node"),
        (lambda x, e: (x, torch.ones(5, 3)), OperandError, "one-hot"),
        (lambda x, e: (x, torch.ones(5)), OperandError, r"integers \[nodes\]"),
        (lambda x, e: (x.float(), e), OperandError, "found torch.float64"),
        (lambda x, e: (x.long(), e), UnsupportedPrecision, "found torch.int64"),
        (lambda x, e: (x, e, torch.ones(3, 2, 3)), OperandError, "weight: expected"),
    ],
)
def test_one_error_for_wrong_operands(change, raised, message):
    module, x = case(2)
    with pytest.raises(raised, match=message):
        module(*change(x, ELEMENTS))


def test_other_normalisations_are_refused():
    with pytest.raises(UnsupportedError, match="'norm'"):
        SymmetricContraction("3x0e", "3x0e", 2, irrep_normalization="norm")
