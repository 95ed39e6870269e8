"""PyTorch inputs of all kinds give the right result, or one error that says what to do."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._subclasses import FakeTensorMode  # noqa: E402

from scripts.workloads import tensor_product_oracle as oracle  # noqa: E402
from scripts.workloads.tensor_products import awkward  # noqa: E402
from trnqc.cg import FullyConnectedTensorProduct, TensorProduct, TensorProductConv, TPProblem  # noqa: E402
from trnqc.cg.doors import swap  # noqa: E402
from trnqc.errors import (  # noqa: E402
    EdgeIndexError,
    InputError,
    InstructionError,
    OperandError,
    UnsupportedPrecision,
)

ROWS, COLS, NODES = torch.tensor([0, 3, 1, 1, 2, 0, 3]), torch.tensor([1, 3, 0, 0, 3, 2, 1]), 7
KINDS = pytest.mark.parametrize("convolution", [False, True], ids=["batch", "convolution"])


class Marked(torch.Tensor):
    """A subclass without rules of its own."""


def example(convolution):
    """The function and x, y, w of as many rows each."""
    problem = awkward("uvu-1")
    inputs = [torch.from_numpy(a) for a in oracle.arrays(problem, len(ROWS))[:3]]
    if not convolution:
        return TensorProduct(problem), inputs
    module = TensorProductConv(problem)
    return lambda x, y, w: module(x, y, w, ROWS.to(x.device), COLS.to(x.device)), inputs


def read_only(t):
    array = t.numpy().copy()
    array.setflags(write=False)
    return torch.from_numpy(array)


def misaligned(t):
    raw = bytearray(4) + t.numpy().tobytes()
    return torch.frombuffer(raw, dtype=t.dtype, offset=4, count=t.numel()).reshape(t.shape)


SAME = {
    "parameters": torch.nn.Parameter,
    "with requires_grad": lambda t: t.clone().requires_grad_(),
    "of a subclass": lambda t: t.as_subclass(Marked),
    "apart": lambda t: torch.stack([t, t], -1)[..., 0],
    "transposed": lambda t: t.t().contiguous().t(),
    "negated views": lambda t: torch._neg_view(-t),
    "parts of complex ones": lambda t: torch.imag(torch.complex(t, -t).conj()),
    "read-only": read_only,
    "misaligned": misaligned,
}


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@KINDS
@pytest.mark.parametrize("name", SAME)
def test_tensors_of_the_same_values_give_the_same_result(name, convolution):
    function, inputs = example(convolution)
    wanted, held = function(*inputs), [SAME[name](t) for t in inputs]
    z = function(*held)
    assert torch.equal(torch.as_tensor(z).detach().as_subclass(torch.Tensor), wanted)
    assert isinstance(z, Marked) == (name == "of a subclass")
    if z.requires_grad:
        z.sum().backward()
        assert all(t.grad is not None and t.grad.shape == t.shape for t in held)


REFUSED = {
    "complex": (lambda t: t.to(torch.complex128), UnsupportedPrecision, "found torch.complex128"),
    "eight bits": (lambda t: t.to(torch.float8_e5m2), UnsupportedPrecision, "found torch.float8_e5m2"),
    "integers": (torch.Tensor.long, UnsupportedPrecision, "found torch.int64"),
    "sparse": (torch.Tensor.to_sparse, OperandError, "x: expected a dense tensor"),
    "mkldnn": (lambda t: t.float().to_mkldnn(), OperandError, "x: expected a dense tensor"),
    "nested": (lambda t: torch.nested.nested_tensor([t[:2], t[2:]]), OperandError, "found a nested tensor"),
    "arrays": (lambda t: t.numpy(), OperandError, "x: expected a dense torch.Tensor, found ndarray"),
    "lists": (lambda t: t.tolist(), OperandError, "x: expected a dense torch.Tensor, found list"),
    "none": (lambda t: None, OperandError, "x: expected a dense torch.Tensor, found NoneType"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", REFUSED)
def test_others_are_told(name):
    change, error, words = REFUSED[name]
    for convolution in (False, True):
        function, inputs = example(convolution)
        if convolution and name in ("arrays", "lists", "none"):
            module = TensorProductConv(awkward("uvu-1"))
            function = lambda x, y, w, m=module: m(x, y, w, ROWS, COLS)  # noqa: E731
        with pytest.raises(error, match=words):
            function(*map(change, inputs))


@KINDS
def test_types_and_devices_that_differ_are_told(convolution):
    function, (x, y, w) = example(convolution)
    with pytest.raises(OperandError, match=r"w: expected torch\.float64, as x has, found torch.float32"):
        function(x, y, w.float())
    with pytest.raises(OperandError, match="y: expected device meta, where x lies, found cpu"):
        function(x.to("meta"), y, w)


@KINDS
def test_tensors_without_contents(convolution):
    function, inputs = example(convolution)
    wanted = function(*inputs).shape
    assert function(*(t.to("meta") for t in inputs)).shape == wanted
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(t) for t in inputs]
        edges = [mode.from_tensor(t) for t in (ROWS, COLS)] if convolution else []
        module = (TensorProductConv if convolution else TensorProduct)(awkward("uvu-1"))
        assert module(*fakes, *edges).shape == wanted
    with torch.device("meta"):
        module = FullyConnectedTensorProduct("2x0e+1o", "0e+1o", "2x0e+1o")
    assert module.weight.device.type == "meta"
    assert module(torch.empty(3, 5, device="meta"), torch.empty(3, 4, device="meta")).shape == (3, 5)
    real = module.to_empty(device="cpu")
    assert not real(torch.zeros(3, 5), torch.ones(3, 4)).any()


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        (ROWS.numpy(), "rows: expected a torch.Tensor of int64, found ndarray"),
        (ROWS.int(), r"rows: expected torch.int64 \[edges\], found torch.int32 \[7\]"),
        (ROWS > 0, r"found torch.bool \[7\]"),
        (ROWS[None], r"found torch.int64 \[1, 7\]"),
    ],
)
def test_other_edges_are_told(edges, words):
    module, inputs = TensorProductConv(awkward("uvu-1")), example(True)[1]
    with pytest.raises(EdgeIndexError, match=words):
        module(*inputs, edges, COLS)


@pytest.mark.parametrize(
    ("instructions", "words"),
    [
        ((0, 0, 0, "uvu", True), r"instruction 0: expected \(i_in1, .*found 0"),
        (None, "expected a list of instructions, found None"),
        ([("a", 0, 0, "uvu", True)], "instruction 0: expected a number of a slot as i_in1, found 'a'"),
        ([(0.5, 0, 0, "uvu", True)], "expected a number of a slot as i_in1, found 0.5"),
        ([(0, 0, 0, "uvu", True, float("nan"))], "expected path_weight >= 0, found nan"),
        ([(0, 0, 0, "uvu", True, float("inf"))], "expected path_weight >= 0, found inf"),
    ],
)
def test_what_is_no_instruction_is_told(instructions, words):
    with pytest.raises(InstructionError, match=words):
        TPProblem("2x0e", "0e", "2x0e", instructions)


def test_numbers_of_numpy_and_torch_are_numbers():
    plain = TPProblem("2x0e", "0e", "2x0e", [(0, 0, 0, "uvu", True, 2.0)], in1_var=[3.0])
    rule = [np.int64(0), 0, torch.tensor(0), "uvu", np.bool_(True), np.float32(2)]
    assert TPProblem("2x0e", "0e", "2x0e", [rule], in1_var=torch.tensor([3.0])) == plain
    with pytest.raises(InputError, match="in1_var: expected 1 variances >= 0"):
        TPProblem("2x0e", "0e", "2x0e", [(0, 0, 0, "uvu", True)], in1_var=[float("nan")])


@pytest.mark.parametrize("name", ["ChebychevBasis", "BesselBasis"])
def test_models_with_chebyshev_polynomials_are_accelerated_with_a_warning(monkeypatch, name):
    """mace-torch need not be installed: a door without layers stands for that of MACE, and a module for its basis."""
    door = SimpleNamespace(prepare=lambda model: [("conv", model, None)], swap=lambda owner, replacement: None)
    monkeypatch.setattr(swap, "_door", lambda model: door)
    model = torch.nn.Sequential(type(name, (torch.nn.Module,), {})())
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert swap.accelerate(model) == ("conv",)
    expected = ["mace-torch's forces and stress are not the derivative of its energy"] * (name == "ChebychevBasis")
    assert [words in str(warning.message) for words, warning in zip(expected, found, strict=True)] == [True] * len(
        found
    )


def test_pytorch_does_not_differentiate_chebyshev_polynomials():
    """Why mace-torch's forces lack a term. Once this fails, the warnings and docs/mace.md are out of date."""
    x = torch.tensor([0.3], requires_grad=True)
    assert not torch.special.chebyshev_polynomial_t(x, torch.tensor([3.0])).requires_grad
