"""torch.compile and torch.export see one node per call, and the compiled graph computes the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from scripts.workloads import tensor_product_oracle as oracle  # noqa: E402
from scripts.workloads.tensor_products import awkward  # noqa: E402
from trnqc.cg import FullyConnectedTensorProduct, TensorProduct, TensorProductConv  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def operands(problem, batch, seed=0):
    return [torch.from_numpy(a).requires_grad_() for a in oracle.arrays(problem, batch, seed)[:3]]


class Messages(torch.nn.Module):
    """A layer as models have it: features by edge, a radial factor on the weights, an activation behind."""

    def __init__(self, convolution: bool) -> None:
        super().__init__()
        problem = awkward("uvu-5")
        self.tp = TensorProductConv(problem) if convolution else TensorProduct(problem)

    def forward(self, x, y, w, *edges):
        return torch.tanh(self.tp(x, y, w * y.norm(dim=-1, keepdim=True), *edges)).sum(-1)


def inputs_of(convolution, batch=6, seed=0):
    x, y, w = operands(awkward("uvu-5"), batch, seed)
    if not convolution:
        return x, y, w
    index = torch.arange(batch)
    return x, y, w, index.flip(0), (index * index) % batch


def slopes(function, args):
    return torch.autograd.grad(function(*args).pow(2).sum(), args[:3])


@pytest.mark.parametrize("convolution", [False, True], ids=["batch", "convolution"])
def test_compiled_without_a_break(convolution):
    module, counter = Messages(convolution), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=counter)
    for batch in (6, 11, 4):
        args = inputs_of(convolution, batch, seed=batch)
        assert torch.equal(compiled(*args), module(*args))
        for ours, theirs in zip(slopes(compiled, args), slopes(module, args)):
            assert oracle.error(ours.numpy(), theirs.numpy()) < 1e-13
    assert counter.frame_count == 1
    targets = [str(node.target) for node in counter.graphs[0].graph.nodes if node.op == "call_function"]
    assert sum("cg_" in target for target in targets) == 1


@pytest.mark.slow
def test_compiled_by_the_default_backend():
    module, args = Messages(False), inputs_of(False)
    compiled = torch.compile(module, fullgraph=True)
    assert oracle.error(compiled(*args).detach().numpy(), module(*args).detach().numpy()) < 1e-13
    for ours, theirs in zip(slopes(compiled, args), slopes(module, args)):
        assert oracle.error(ours.numpy(), theirs.numpy()) < 1e-13


def of_forces(module, x, y, w, *edges):
    """The gradients of a loss of forces."""
    (force,) = torch.autograd.grad(module(x, y, w, *edges).sum(), y, create_graph=True)
    return torch.autograd.grad(force.pow(2).sum(), (x, w))


@pytest.mark.slow
@pytest.mark.parametrize("convolution", [False, True], ids=["batch", "convolution"])
def test_a_step_of_training_on_forces_compiled_by_the_default_backend(convolution):
    module, args = Messages(convolution), inputs_of(convolution)
    compiled = torch.compile(lambda *inputs: of_forces(module, *inputs), fullgraph=True)
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        results = compiled(*args)
    for ours, theirs in zip(results, of_forces(module, *args), strict=True):
        assert oracle.error(ours.detach().numpy(), theirs.numpy()) < 1e-13


@pytest.mark.parametrize("convolution", [False, True], ids=["batch", "convolution"])
def test_derivatives_of_forces_outside_of_the_compiled_module_are_pytorch_s_error(convolution):
    compiled = torch.compile(Messages(convolution), backend="aot_eager", fullgraph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        of_forces(compiled, *inputs_of(convolution))


@pytest.mark.parametrize("convolution", [False, True], ids=["batch", "convolution"])
def test_forces_inside_a_traced_function(convolution):
    """What trains on forces: a gradient in the function, and one of it."""
    module, args = Messages(convolution), inputs_of(convolution)

    def forces(x, y, w, *edges):
        (force,) = torch.autograd.grad(module(x, y, w, *edges).sum(), y, create_graph=True)
        return torch.autograd.grad(force.pow(2).sum(), (x, y, w))

    traced = make_fx(forces, tracing_mode="symbolic")(*args)
    names = {str(node.target) for node in traced.graph.nodes}
    prefix = "trnqc.cg_conv_" if convolution else "trnqc.cg_"
    assert {f"{prefix}{d}.default" for d in ("forward", "backward", "double_backward")} <= names
    for ours, theirs in zip(traced(*args), forces(*args)):
        assert oracle.error(ours.detach().numpy(), theirs.detach().numpy()) < 1e-13


def exported(convolution: bool, folder: Path) -> list[str]:
    """A program of any number of rows and its results for another number than it was traced with, as paths of files."""
    module, args = Messages(convolution), [t.detach() for t in inputs_of(convolution)]
    rows = {0: torch.export.Dim("rows", min=2)}
    nodes = {0: torch.export.Dim("nodes", min=2)} if convolution else rows
    shapes = (nodes, rows, rows, *[(rows, rows)] * convolution)
    program = torch.export.export(module, tuple(args), dynamic_shapes=shapes)
    calls = [str(node.target) for node in program.graph.nodes]
    assert f"trnqc.cg_{'conv_' * convolution}forward.default" in calls
    other = [t.detach() for t in inputs_of(convolution, 9, seed=4)]
    paths = [str(folder / f"{name}-{convolution}.pt2") for name in ("program", "values")]
    torch.export.save(program, paths[0])
    torch.save({"given": other, "wanted": module(*other)}, paths[1])
    return paths


def test_exported_saved_and_run_in_another_process(tmp_path: Path):
    """The program names the problem by its text, so only the operators have to be imported where it is loaded."""
    paths = [*exported(False, tmp_path), *exported(True, tmp_path)]
    code = (
        "import sys, torch, trnqc.cg.torch.operators\n"
        "for path, kept in (sys.argv[1:3], sys.argv[3:5]):\n"
        "    program, values = torch.export.load(path).module(), torch.load(kept)\n"
        "    assert torch.allclose(program(*values['given']), values['wanted'], rtol=0, atol=1e-13)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_wrong_shape_is_told_while_it_is_traced():
    x, y, w = inputs_of(False)
    compiled = torch.compile(TensorProduct(awkward("uvu-5")), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=r"w: expected shape \[edges, 55\], found \[6, 54\]"):
        compiled(x, y, w[:, 1:])


def test_compiled_without_weights_and_with_internal_ones():
    bare = TensorProduct(awkward("unweighted"))
    own = FullyConnectedTensorProduct("2x0e+1o", "0e+1o", "2x0e+1o").double()
    for module in (bare, own):
        d1, d2, _ = module.problem.dims
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        for x, y in ((torch.randn(3, d1), torch.randn(3, d2)), (torch.randn(2, 1, d1), torch.randn(3, d2))):
            x, y = x.double().requires_grad_(), y.double()
            assert torch.equal(compiled(x, y), module(x, y))
            pulled = [torch.autograd.grad(f(x, y).sin().sum(), x)[0] for f in (compiled, module)]
            assert oracle.error(*(g.numpy() for g in pulled)) < 1e-13
    y = torch.randn(3, 4).double()
    assert torch.equal(torch.compile(own.right, fullgraph=True, backend="aot_eager")(y), own.right(y))


def test_compiled_forward_mode_is_right_or_refused_and_not_zero():
    """Before PyTorch 2.15, Dynamo takes the operator, which has reverse mode only."""
    module, (x, y, w) = TensorProduct(awkward("uvu-5")), (t.detach() for t in inputs_of(False))
    expected = torch.func.jvp(lambda x: module(x, y, w), (x,), (x,))[1]
    compiled = torch.compile(lambda x: torch.func.jvp(lambda x: module(x, y, w), (x,), (x,))[1], backend="aot_eager")
    plain = torch.compile(module, backend="aot_eager")
    assert torch.equal(plain(x, y, w), module(x, y, w))
    for tangent in (compiled, lambda x: torch.func.jvp(lambda x: plain(x, y, w), (x,), (x,))[1]):
        try:
            found = tangent(x)
        except Exception as error:
            assert "expected a call by trnqc.cg.TensorProduct or" in str(error)
        else:
            assert torch.equal(found, expected)
