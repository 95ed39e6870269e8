"""e3nn's classes of tensor products and ours have the same irreps, weights, values and gradients."""

from __future__ import annotations

import copy
import io

import pytest

torch = pytest.importorskip("torch")
o3 = pytest.importorskip("e3nn.o3")

import trnqc.cg as cg  # noqa: E402
from scripts.workloads import tensor_product_oracle as oracle  # noqa: E402
from trnqc.errors import (  # noqa: E402
    InputError,
    InstructionError,
    IrrepsError,
    OperandError,
    UnsupportedError,
    UnsupportedPrecision,
)

BOUND = 1e-12
CASES = {
    "fully-connected": ("FullyConnectedTensorProduct", ("2x0e+3x1o", "1x0e+2x1o", "4x0e+2x1o+1x1e+2x2e"), {}),
    "fully-connected-path": (
        "FullyConnectedTensorProduct",
        ("2x0e+3x1o", "1x0e+1o", "4x0e+2x1o"),
        {"path_normalization": "path", "irrep_normalization": "norm", "in2_var": [0.5, 2.0]},
    ),
    "full": ("FullTensorProduct", ("2x1o+3x1o+1x0e", "2x1o+1x2e"), {}),
    "full-filtered": ("FullTensorProduct", ("2x1o+1x0e", "2x1o+1x2e"), {"filter_ir_out": ["0e", "1o"]}),
    "elementwise": ("ElementwiseTensorProduct", ("5x1o+5x1e", "3x1e+7x0o"), {}),
    "elementwise-filtered": ("ElementwiseTensorProduct", ("5x1o+5x1e", "10x1e", ["0e", "0o"]), {}),
    "square": ("TensorSquare", ("3x1o+1x2e+4x0e",), {}),
    "square-norm": ("TensorSquare", ("3x1o+2x2e",), {"irrep_normalization": "norm"}),
    "square-filtered": ("TensorSquare", ("3x1o+2x2e",), {"filter_ir_out": ["0e", "2e"]}),
    "square-weighted": ("TensorSquare", ("3x1o+1x2e+4x0e", "2x0e+3x2e+1x1o"), {}),
}


@pytest.mark.parametrize("label", CASES)
def test_the_classes_are_e3nns(label):
    name, irreps, options = CASES[label]
    with oracle.constants_in_fp64():
        theirs, ours = getattr(o3, name)(*irreps, **options), getattr(cg, name)(*irreps, **options)
    assert [str(i) for i in (ours.irreps_in1, ours.irreps_in2, ours.irreps_out)] == [
        str(i) for i in (theirs.irreps_in1, theirs.irreps_in2, theirs.irreps_out)
    ]
    assert ours.weight.shape == theirs.weight.shape
    assert ours.weight_numel == theirs.weight_numel and ours.internal_weights == theirs.internal_weights
    generator = torch.Generator().manual_seed(0)
    sides = (theirs.irreps_in1.dim,) if name == "TensorSquare" else (theirs.irreps_in1.dim, theirs.irreps_in2.dim)
    args = [torch.randn(4, d, dtype=torch.float64, generator=generator).requires_grad_() for d in sides]
    if ours.internal_weights:
        with torch.no_grad():
            ours.weight.copy_(theirs.weight)
    leaves = [[*args, *m.parameters()] for m in (ours, theirs)]
    z, wanted = ours(*args), theirs(*args)
    assert oracle.error(z.detach().numpy(), wanted.detach().numpy()) < BOUND
    pulled = [torch.autograd.grad(f.sin().sum(), inputs) for f, inputs in zip((z, wanted), leaves)]
    for one, other in zip(*pulled, strict=True):
        assert oracle.error(one.numpy(), other.numpy()) < BOUND


def test_the_arguments_of_e3nns_tensor_product_make_a_module():
    rules = [(0, 0, 0, "uvw", True, 3), (1, 0, 0, "uvw", True, 1)]
    torch.manual_seed(0)
    theirs = o3.TensorProduct("8x0o + 8x1o", "16x1o", "16x1e", rules, in2_var=[1 / 16], compile_right=True)
    ours = cg.TensorProduct("8x0o + 8x1o", "16x1o", "16x1e", rules, in2_var=[1 / 16], compile_right=True)
    assert ours.internal_weights and ours.shared_weights and ours.weight.dtype == torch.float32
    ours.load_state_dict({"weight": theirs.weight})
    x, y = torch.randn(3, 1, 32), torch.randn(5, 48)
    assert oracle.error(ours(x, y).detach().numpy(), theirs(x, y).detach().double().numpy()) < 1e-6
    assert oracle.error(ours.right(y).detach().numpy(), theirs.right(y).detach().double().numpy()) < 1e-6
    for view, other in zip(ours.weight_views(), theirs.weight_views(), strict=True):
        assert torch.equal(view, other)
    (n, rule, view), _ = ours.weight_views(yield_instruction=True)
    assert n == 0 and rule.path_shape == view.shape == (8, 16, 16)
    assert torch.equal(ours(x, y, [torch.zeros(8, 16, 16)] * 2), torch.zeros(3, 5, 48))
    with pytest.raises(OperandError, match=r"w: expected shapes .*\(8, 16, 16\).*, found \[\(8, 16\)\]"):
        ours(x, y, [torch.zeros(8, 16)])


def test_internal_weights_are_a_parameter_that_is_kept():
    module = cg.FullyConnectedTensorProduct("2x0e+1o", "1x0e+1o", "2x0e+1o")
    x, y = torch.randn(2, 5), torch.randn(2, 4)
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    for again in (copy.deepcopy(module), torch.load(buffer, weights_only=False)):
        assert torch.equal(again(x, y), module(x, y)) and again.weight is not module.weight
    other = cg.FullyConnectedTensorProduct("2x0e+1o", "1x0e+1o", "2x0e+1o")
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x, y), module(x, y))
    double = module.double()
    assert double.weight.dtype == torch.float64 and double(x.double(), y.double()).dtype == torch.float64
    double(x.double(), y.double()).sum().backward()
    assert double.weight.grad.shape == (module.weight_numel,)
    meta = cg.FullyConnectedTensorProduct("2x0e+1o", "1x0e+1o", "2x0e+1o").to("meta")
    assert meta(x.to("meta"), y.to("meta")).shape == (2, 5)


def test_internal_weights_of_a_convolution():
    problem = cg.TPProblem("2x0e+1o", "1x0e+1o", "2x0e+1o", [(0, 0, 0, "uvw", True)], internal_weights=True)
    module, other = cg.TensorProductConv(problem), cg.TensorProductConv(problem.changed(internal_weights=False))
    edges = torch.tensor([[0, 1, 1], [1, 0, 1]])
    x, y = torch.randn(2, 5), torch.randn(3, 4)
    assert torch.equal(module(x, y, None, *edges), other(x, y, module.weight, *edges))


def test_openequivariances_examples():
    """Those of its README, on the CPU."""
    gen = torch.Generator(device="cpu")
    batch_size = 1000
    X_ir, Y_ir, Z_ir = o3.Irreps("1x2e"), o3.Irreps("1x3e"), o3.Irreps("1x2e")
    X = torch.rand(batch_size, X_ir.dim, device="cpu", generator=gen)
    Y = torch.rand(batch_size, Y_ir.dim, device="cpu", generator=gen)
    instructions = [(0, 0, 0, "uvu", True)]
    tp_e3nn = o3.TensorProduct(X_ir, Y_ir, Z_ir, instructions, shared_weights=False, internal_weights=False)
    W = torch.rand(batch_size, tp_e3nn.weight_numel, device="cpu", generator=gen)
    problem = cg.TPProblem(X_ir, Y_ir, Z_ir, instructions, shared_weights=False, internal_weights=False)
    tp_fast = cg.TensorProduct(problem, torch_op=True)
    assert oracle.error(tp_fast(X, Y, W).numpy(), tp_e3nn(X, Y, W).double().numpy()) < 2e-6

    node_ct, nonzero_ct = 3, 4
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]], device="cpu", dtype=torch.long)
    X = torch.rand(node_ct, X_ir.dim, device="cpu", generator=gen)
    Y = torch.rand(nonzero_ct, Y_ir.dim, device="cpu", generator=gen)
    W = torch.rand(nonzero_ct, problem.weight_numel, device="cpu", generator=gen)
    tp_conv = cg.TensorProductConv(problem, torch_op=True, deterministic=False)
    Z = tp_conv.forward(X, Y, W, edge_index[0], edge_index[1])
    sender_perm = torch.argsort(edge_index[1], stable=True)
    tp_conv = cg.TensorProductConv(problem, torch_op=True, deterministic=True)
    again = tp_conv.forward(X, Y, W, edge_index[0], edge_index[1], sender_perm)
    wanted = torch.zeros(3, 5).index_add(0, edge_index[0], tp_e3nn(X[edge_index[1]], Y, W))
    assert oracle.error(Z.numpy(), wanted.double().numpy()) < 2e-6 and torch.equal(Z, again)


def test_types_of_openequivariance():
    np = pytest.importorskip("numpy")
    rule = [(0, 0, 0, "uvu", True)]
    problem = cg.TPProblem("2x0e", "0e", "2x0e", rule, irrep_dtype=np.float64, weight_dtype=np.float64, label="a")
    assert problem.dtype == "float64" and problem.label == "a"
    with pytest.raises(UnsupportedPrecision, match="of one dtype; found irrep_dtype = float64, weight_dtype = float32"):
        cg.TPProblem("2x0e", "0e", "2x0e", rule, irrep_dtype=np.float64, weight_dtype=np.float32)


def test_what_cannot_be_is_told():
    rule = [(0, 0, 0, "uuu", True)]
    with pytest.raises(InputError, match="internal_weights: expected shared_weights=True with it"):
        cg.TPProblem("2x0e", "2x0e", "2x0e", rule, internal_weights=True, shared_weights=False)
    with pytest.raises(InstructionError, match="uuu needs equal multiplicities of its inputs; found 2x0e and 3x0e"):
        cg.TPProblem("2x0e", "3x0e", "2x0e", rule)
    with pytest.raises(InstructionError, match=r"uvuv needs the multiplicity of its pairs .* which has 6 and 5x0e"):
        cg.TPProblem("2x0e", "3x0e", "5x0e", [(0, 0, 0, "uvuv", False)])
    with pytest.raises(InstructionError, match="u<vw mixes channels by weights; expected has_weight, found none"):
        cg.TPProblem("3x0e", "3x0e", "5x0e", [(0, 0, 0, "u<vw", False)])
    with pytest.raises(UnsupportedError, match="expected torch_op=True and use_opaque=False, found False and False"):
        cg.TensorProduct(cg.TPProblem("2x0e", "2x0e", "2x0e", rule), torch_op=False)
    with pytest.raises(InputError, match="expected as many channels on both sides, found 2 in 2x0e and 3 in 3x0e"):
        cg.ElementwiseTensorProduct("2x0e", "3x0e")
    with pytest.raises(InputError, match="expected irreps_out or filter_ir_out, found both"):
        cg.TensorSquare("1o", "0e", ["0e"])
    with pytest.raises(IrrepsError, match="filter_ir_out: expected irreps"):
        cg.FullTensorProduct("1o", "1o", ["zero"])
    with pytest.warns(DeprecationWarning, match="normalization is e3nn's former name of irrep_normalization"):
        cg.TPProblem("2x0e", "2x0e", "2x0e", rule, normalization="norm")
