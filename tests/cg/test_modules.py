"""The PyTorch modules: values, shapes, devices, state, half precision, and refused inputs."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scripts.workloads import tensor_product_oracle as oracle  # noqa: E402
from scripts.workloads.tensor_products import AWKWARD, awkward  # noqa: E402
from trnqc.cg import TensorProduct, TensorProductConv, from_e3nn  # noqa: E402
from trnqc.cg.problem.graph import EdgeGraph  # noqa: E402
from trnqc.errors import MemoryLimit, OperandError, UnsupportedError, UnsupportedPrecision  # noqa: E402

ROWS, COLS, NODES = np.array([0, 3, 1, 1, 2, 0, 3]), np.array([1, 3, 0, 0, 3, 2, 1]), 5


def operands(problem, batch=7, dtype="float64"):
    return [torch.from_numpy(a) for a in oracle.arrays(problem, batch, dtype=dtype)]


def product(label="uvu-5", **options):
    problem = awkward(label, **options)
    return TensorProduct(problem), *operands(problem)[:3]


def convolution(label="uvu-5", **options):
    """The module and its operands on the graph above."""
    problem = awkward(label)
    y, w = operands(problem, len(ROWS))[1:3]
    x = operands(problem, NODES)[0]
    return TensorProductConv(problem, **options), x, y, w, torch.from_numpy(ROWS), torch.from_numpy(COLS)


@pytest.mark.parametrize(("dtype", "bound", "layout"), [("float32", 1e-6, "ir_mul"), ("float64", 1e-14, "mul_ir")])
@pytest.mark.parametrize("label", AWKWARD)
def test_a_module_is_the_definition(label, dtype, bound, layout):
    problem = awkward(label, layout=layout, dtype=dtype)
    x, y, w, gz = (t.requires_grad_() for t in operands(problem, dtype=dtype))
    z = TensorProduct(problem)(x, y, w)
    arrays = [t.detach().numpy() for t in (x, y, w, gz)]
    assert oracle.error(z.detach().numpy(), oracle.forward(problem, *arrays[:3])) < bound
    for ours, theirs in zip(torch.autograd.grad(z, (x, y, w), gz), oracle.backward(problem, *arrays)):
        assert oracle.error(ours.numpy(), theirs) < bound


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("label", ["uvu-5", "uvw-shared", "mixed"])
def test_a_convolution_gathers_multiplies_and_sums(label, deterministic):
    module, x, y, w, rows, cols = convolution(label, deterministic=deterministic)
    wanted = oracle.conv_forward(module.problem, *(t.numpy() for t in (x, y, w)), EdgeGraph(ROWS, COLS, NODES))
    assert oracle.error(module(x, y, w, rows, cols).numpy(), wanted) < 1e-14
    # The order of edges as callers have it that sort them: found here, whatever is passed.
    perm = torch.argsort(cols, stable=True)
    assert torch.equal(module(x, y, w, rows, cols, perm), module(x, y, w, rows, cols))


def test_compensated_sums_are_closer():
    problem = awkward("uvu-1", dtype="float32")
    edges = 20_000
    x, (y, w) = operands(problem, 1, "float32")[0], operands(problem, edges, "float32")[1:3]
    index = torch.zeros(edges, dtype=torch.int64)
    graph = EdgeGraph(index.numpy(), index.numpy(), 1)
    # Terms of one sign, so that the sum grows and its rounding with it.
    x, y, w = x.abs() + 1, y.abs() + 1, w.abs() + 1
    wanted = oracle.conv_forward(problem, x.numpy(), y.numpy(), w.numpy(), graph)
    plain, kahan = (
        oracle.error(TensorProductConv(problem, deterministic=True, kahan=k)(x, y, w, index, index).numpy(), wanted)
        for k in (False, True)
    )
    assert kahan < 3e-7 and kahan < plain


def test_leading_dimensions_are_kept():
    module, x, y, w = product()
    z = module(x, y, w)
    many = [torch.stack([t, 2 * t, 3 * t]) for t in (x, y, w)]
    w3 = w.expand(3, -1, -1)
    assert module(*many).shape == (3, 7, z.shape[1])
    assert torch.equal(module(*many)[0], z)
    assert torch.equal(module(x[4], y[4], w[4]), z[4])
    shared, x, y, w = product("uvw-shared")
    assert torch.equal(shared(x[None], y[None], w)[0], shared(x, y, w))
    assert torch.equal(module(many[0], many[1][:1], many[2][0]), module(many[0], many[1][:1].expand(3, -1, -1), w3))
    with pytest.raises(OperandError, match=r"expected leading dimensions that can be broadcast; found x \[3, 7, 45\]"):
        module(many[0], many[1][:2], many[2])


def test_no_rows_give_no_rows():
    module, x, y, w = product()
    x, y, w = (t[:0].requires_grad_() for t in (x, y, w))
    z = module(x, y, w)
    assert z.shape == (0, module.irreps_out.dim)
    assert [g.shape for g in torch.autograd.grad(z.sum(), (x, y, w))] == [x.shape, y.shape, w.shape]


def test_a_graph_without_edges_gives_zeros():
    module, x, y, w, *_ = convolution()
    none = torch.zeros(0, dtype=torch.int64)
    x = x.requires_grad_()
    z = module(x, y[:0], w[:0], none, none)
    assert z.shape == (NODES, module.irreps_out.dim) and not z.any()
    assert not torch.autograd.grad(z.sum(), x)[0].any()


def test_strides_do_not_matter():
    module, x, y, w = product()
    apart = torch.stack([x, x], dim=-1)[..., 0]
    turned = w.t().contiguous().t()
    every = y.repeat_interleave(2, dim=0)[::2]
    assert not (apart.is_contiguous() or turned.is_contiguous() or every.is_contiguous())
    assert torch.equal(module(apart, every, turned), module(x, y, w))
    same = y[:1].expand(len(y), -1)
    assert torch.equal(module(x, same, w), module(x, same.contiguous(), w))


def test_weights_may_be_left_out_where_there_are_none():
    module, x, y, w = product("unweighted")
    assert module.weight_numel == 0
    assert torch.equal(module(x, y), module(x, y, w))
    with pytest.raises(OperandError, match="w: expected 55 weights, found none"):
        product()[0](*operands(awkward("uvu-5"))[:2])


@pytest.mark.parametrize("make", [product, convolution])
def test_a_kept_module_is_the_same(make):
    module, *inputs = make()
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    for again in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module), torch.load(buffer, weights_only=False)):
        assert again.problem == module.problem and str(again) == str(module)
        assert torch.equal(again(*inputs), module(*inputs))


@pytest.mark.parametrize("label", ["uvu-y3", "uvw-y3", "uvw-shared", "mixed"])
def test_weights_of_e3nn_are_taken_in_their_order(label):
    o3 = pytest.importorskip("e3nn.o3")
    problem = awkward(label)
    paths = problem.instructions
    rules = [(p.i_in1, p.i_in2, p.i_out, p.connection_mode, p.has_weight, p.path_weight**2) for p in paths]
    irreps = [str(ir) for ir in (problem.irreps_in1, problem.irreps_in2, problem.irreps_out)]
    unnormalized = {"irrep_normalization": "none", "path_normalization": "none", "internal_weights": False}
    theirs = o3.TensorProduct(*irreps, rules, shared_weights=problem.shared_weights, **unnormalized)
    ours, (x, y, w, _) = TensorProduct(from_e3nn(theirs)), (t.float() for t in operands(problem))
    batch = not problem.shared_weights
    reordered = ours.reorder_weights_from_e3nn(w, has_batch_dim=batch)
    assert oracle.error(ours(x, y, reordered).numpy(), theirs(x, y, w).double().numpy()) < 2e-6
    assert torch.equal(ours.reorder_weights_to_e3nn(reordered, has_batch_dim=batch), w)
    with pytest.raises(OperandError, match=r"weights: expected shape \[.*\], found"):
        ours.reorder_weights_from_e3nn(w[..., 1:], has_batch_dim=batch)
    with pytest.raises(OperandError, match=r"weights: expected shape \[.*\], found"):
        ours.reorder_weights_from_e3nn(w, has_batch_dim=not batch)


def test_it_has_no_state():
    parent = torch.nn.ModuleDict({"product": product()[0], "linear": torch.nn.Linear(2, 2)})
    assert list(parent.state_dict()) == ["linear.weight", "linear.bias"]
    assert not list(parent["product"].parameters())
    parent.load_state_dict(parent.state_dict())


def test_moving_changes_the_dtype_of_a_problem_that_has_one():
    module, *inputs = product(dtype="float32")
    with pytest.raises(OperandError, match=r"torch.float32, which the problem was made for"):
        module(*inputs)
    parent = torch.nn.Sequential(module)
    assert parent.double() is parent and module.problem.dtype == "float64"
    z = module(*inputs)
    parent.to(torch.float32).to("cpu")
    single = module(*(t.float() for t in inputs))
    assert single.dtype == torch.float32 and oracle.error(single.numpy(), z.numpy()) < 1e-6
    with pytest.raises(UnsupportedPrecision, match="expected float32 or float64, found float16; autocast takes"):
        parent.half()
    free, *inputs = product()
    free.float()
    assert free.problem.dtype is None and free(*inputs).dtype == torch.float64


def test_autocast_takes_half_floats_as_single():
    module, x, y, w = product()
    x, y, w = (t.float() for t in (x, y, w))
    rough = x.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = module(rough, y, w.bfloat16())
        assert module(x.double(), y.double(), w.double()).dtype == torch.float64
    assert z.dtype == torch.float32
    assert torch.equal(z, module(rough.float(), y, w.bfloat16().float()))
    (slope,) = torch.autograd.grad(z.sum(), rough)
    assert slope.dtype == torch.bfloat16 and torch.isfinite(slope).all()
    with pytest.raises(OperandError, match=r"y: expected torch\.bfloat16, as x has, found torch\.float32"):
        module(rough, y, w)


def test_gradients_add_up_and_train():
    """Least squares through the module: many of its unknowns are hardly determined, but the residual must go."""
    module, x, y, w = product()
    wanted, fitted = module(x, y, w), torch.nn.Parameter(torch.zeros_like(w))
    optimiser = torch.optim.LBFGS([fitted], max_iter=200, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = (module(x, y, fitted) - wanted).pow(2).sum()
        value.backward()
        return value

    before = loss()
    optimiser.step(loss)
    assert loss() < 1e-4 * before


@pytest.mark.parametrize("make", [product, convolution])
def test_checkpointed_and_without_a_graph(make):
    module, x, *rest = make()
    x = x.requires_grad_()
    z = torch.utils.checkpoint.checkpoint(module, x, *rest, use_reentrant=False)
    assert torch.equal(*(torch.autograd.grad(value.sum(), x)[0] for value in (z, module(x, *rest))))
    with torch.inference_mode():
        again = module(x, *rest)
    assert torch.equal(again, z) and not again.requires_grad


def test_large_results_are_lent_memory():
    """A result outlives its module, its operands and later calls of the same size."""
    problem = awkward("uvu-33", dtype="float64")
    x, y, w = operands(problem, 900)[:3]
    z = TensorProduct(problem)(x, y, w)
    kept = z.clone()
    assert z.numel() * 8 > 1 << 20
    for _ in range(3):
        TensorProduct(problem)(-x, y, w)
    assert torch.equal(z, kept)


def test_options_that_do_not_go_together_are_told():
    problem = awkward("uvu-1")
    with pytest.raises(UnsupportedError, match="kahan: expected deterministic=True with it, found False"):
        TensorProductConv(problem, kahan=True)
    with pytest.raises(UnsupportedError, match="kahan: expected paths of mode uvu, found uvw"):
        TensorProductConv(awkward("mixed"), deterministic=True, kahan=True)
    with pytest.raises(OperandError, match="expected a TPProblem, found str"):
        TensorProduct("1x0e")


def test_what_does_not_fit_the_machine_is_refused():
    module, x, y, w = product()
    x, y, w = (t[:1].expand(1 << 38, -1) for t in (x, y, w))
    with pytest.raises(MemoryLimit, match=r"needs [\d.]+ GiB; this machine has [\d.]+ GiB: split the batch"):
        module(x, y, w)


def test_a_gpu_that_is_not_there_is_told():
    from trnqc.cg.problem.text import text_of
    from trnqc.cg.torch.engines import cuda_engine, no_engine
    from trnqc.errors import BackendUnavailable

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(BackendUnavailable):
        cuda_engine(text_of(awkward("uvu-1")), "float32", 0, False, False)
    assert "run on cpu and cuda; found operands on mps:0" in str(no_engine("mps:0"))


def test_importing_the_room_imports_no_torch():
    code = (
        "import sys, trnqc.cg as cg; dir(cg); cg.TPProblem; print([m for m in ('torch', 'e3nn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
