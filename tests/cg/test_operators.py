"""The operators against the dense reference, finite differences, and PyTorch's own checks of operators."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scripts.workloads import tensor_product_oracle as oracle  # noqa: E402
from scripts.workloads.tensor_products import AWKWARD, LABELS, awkward, configuration  # noqa: E402
from trnqc.cg.problem.graph import EdgeGraph  # noqa: E402
from trnqc.cg.problem.text import problem_of, text_of  # noqa: E402
from trnqc.cg.torch.operators import BATCH, CONVOLUTION, NAMES  # noqa: E402
from trnqc.errors import EdgeIndexError, InputError, OperandError, UnsupportedPrecision  # noqa: E402

# Largest error over the largest value, against fp64; operands are rounded first.
BOUND = {"float32": 1e-6, "float64": 1e-14}
# A node without edges (4), an edge to itself, one that occurs twice, one that goes one way only.
ROWS, COLS, NODES = (0, 3, 1, 1, 2, 0, 3), (1, 3, 0, 0, 3, 2, 1), 5
SMALL = ("uvu-1", "uvu-y3", "mixed", "uvw-shared", "unweighted", "empty-slots", "nothing")


def operands(problem, convolution=False, batch=4, dtype="float64"):
    """x, y, w, gz, ggx, ggy, ggw."""
    rng = np.random.default_rng(3)
    nodes, edges = (NODES, len(ROWS)) if convolution else (batch, batch)
    d1, d2, d3 = problem.dims
    w = (problem.weight_numel,) if problem.shared_weights else (edges, problem.weight_numel)
    shapes = [(nodes, d1), (edges, d2), w, (nodes, d3), (nodes, d1), (edges, d2), w]
    return [torch.from_numpy(rng.standard_normal(shape).astype(dtype)) for shape in shapes]


def tail(problem, convolution):
    if not convolution:
        return (text_of(problem),)
    return torch.tensor(ROWS), torch.tensor(COLS), text_of(problem), True, False


def family(convolution):
    return (CONVOLUTION if convolution else BATCH).operators


def expected(problem, direction, arrays, convolution):
    arrays = [a.numpy() for a in arrays]
    if not convolution:
        return getattr(oracle, direction)(problem, *arrays)
    graph = EdgeGraph(np.array(ROWS), np.array(COLS), NODES)
    return getattr(oracle, f"conv_{direction}")(problem, *arrays, graph=graph)


KINDS = pytest.mark.parametrize("convolution", [False, True], ids=["batch", "convolution"])


# Convolutions in fp32 of the problems of tests/cg/test_conv.py: they differ from batches in what they gather and sum.
@pytest.mark.parametrize(
    ("label", "dtype", "convolution"),
    [
        pytest.param(label, dtype, convolution, id=f"{label}-{dtype}-{'convolution' if convolution else 'batch'}")
        for label in ("uvu-5", "uvu-y3", "uvw-odd", "uvw-shared", "mixed", "nothing")
        for dtype in BOUND
        for convolution in (False, True)
        if not (convolution and dtype == "float32" and label in ("uvu-y3", "uvw-odd"))
    ],
)
def test_every_direction_agrees_with_the_definition(label, dtype, convolution):
    # The layouts of tests/cg/test_modules.py and of tests/cg/test_conv.py, so that their kernels are compiled once.
    problem = awkward(label, layout="ir_mul" if dtype == "float32" and not convolution else "mul_ir")
    inputs = operands(problem, convolution, dtype=dtype)
    for direction, count in (("forward", 3), ("backward", 4), ("double_backward", 7)):
        result = family(convolution)[direction](*inputs[:count], *tail(problem, convolution))
        wanted = expected(problem, direction, inputs[:count], convolution)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for ours, theirs in zip(result if isinstance(result, tuple) else (result,), wanted, strict=True):
            assert str(ours.dtype) == f"torch.{dtype}"
            assert oracle.error(ours.numpy(), theirs) < BOUND[dtype]


@KINDS
@pytest.mark.parametrize("label", ["uvu-5", "mixed", "uvw-shared"])
def test_the_gradient_of_each_path_is_its_own(label, convolution):
    problem = awkward(label)
    inputs = operands(problem, convolution)
    result = family(convolution)["backward"](*inputs[:4], *tail(problem, convolution))[2]
    wanted = expected(problem, "backward", inputs[:4], convolution)[2]
    for path in problem.instructions:
        if path.has_weight:
            assert oracle.error(result[..., path.weight_slice].numpy(), wanted[..., path.weight_slice]) < 1e-14


def of_those_with_elements(function, inputs):
    """The function of the inputs that gradcheck can vary, and these."""
    varied = [k for k, t in enumerate(inputs) if t.numel()]

    def of_varied(*values):
        values = dict(zip(varied, values))
        return function(*(values.get(k, t) for k, t in enumerate(inputs)))

    return of_varied, [inputs[k].requires_grad_() for k in varied]


@KINDS
@pytest.mark.parametrize("label", SMALL)
def test_derivatives_agree_with_differences(label, convolution):
    problem = awkward(label)
    rest = tail(problem, convolution)
    function, inputs = of_those_with_elements(
        lambda *xyw: family(convolution)["forward"](*xyw, *rest), operands(problem, convolution, batch=2)[:3]
    )
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@KINDS
@pytest.mark.parametrize("label", ["uvu-1", "uvw-1", "mixed", "uvw-shared", "unweighted"])
def test_third_and_fourth_derivatives_agree_with_differences(label, convolution):
    problem = awkward(label)
    rest = tail(problem, convolution)
    function, inputs = of_those_with_elements(
        lambda *args: family(convolution)["double_backward"](*args, *rest), operands(problem, convolution, batch=2)
    )
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@KINDS
@pytest.mark.parametrize("label", ["uvu-1", "uvw-shared"])
@pytest.mark.parametrize("direction", ["forward", "backward", "double_backward"])
def test_torch_finds_no_fault_with_the_registration(direction, label, convolution):
    problem = awkward(label)
    count = {"forward": 3, "backward": 4, "double_backward": 7}[direction]
    inputs = [t.requires_grad_() for t in operands(problem, convolution)[:count]]
    torch.library.opcheck(family(convolution)[direction], (*inputs, *tail(problem, convolution)))


def test_the_same_bits_for_any_number_of_threads():
    problem, before = awkward("uvw-shared"), torch.get_num_threads()
    inputs = operands(problem, batch=777)
    collected = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            collected.append(BATCH.operators["double_backward"](*inputs, text_of(problem)))
    finally:
        torch.set_num_threads(before)
    for other in collected[1:]:
        assert all(torch.equal(a, b) for a, b in zip(collected[0], other))


@pytest.mark.parametrize("label", ["uvu-5", "uvw-shared"])
def test_vmap_is_sample_after_sample(label):
    problem, operators = awkward(label), BATCH.operators
    samples = [operands(problem, batch=3), [2 * t for t in operands(problem, batch=3)]]
    stacked = [torch.stack(pair) for pair in zip(*samples)]
    for direction, count in (("forward", 3), ("backward", 4), ("double_backward", 7)):
        of_one = [operators[direction](*sample[:count], text_of(problem)) for sample in samples]
        result = torch.vmap(lambda *t, d=direction: operators[d](*t, text_of(problem)))(*stacked[:count])
        if direction == "forward":
            result, of_one = (result,), [(t,) for t in of_one]
        assert all(torch.equal(result[k], torch.stack([t[k] for t in of_one])) for k in range(len(result)))
    along_1 = torch.vmap(lambda x, y, w: operators["forward"](x, y, w, text_of(problem)), (1, None, None))
    x, y, w = stacked[0].transpose(0, 1), *samples[0][1:3]
    assert torch.equal(along_1(x, y, w)[1], operators["forward"](samples[1][0], y, w, text_of(problem)))


def test_vmap_of_a_convolution():
    problem = awkward("uvu-5")
    x, y, w = operands(problem, convolution=True)[:3]
    rows, cols, *rest = tail(problem, True)
    forward = CONVOLUTION.operators["forward"]
    both = torch.vmap(lambda x, r, c: forward(x, y, w, r, c, *rest))(
        torch.stack([x, -x]), torch.stack([rows, cols]), torch.stack([cols, rows])
    )
    assert torch.equal(both[0], forward(x, y, w, rows, cols, *rest))
    assert torch.equal(both[1], forward(-x, y, w, cols, rows, *rest))


@KINDS
def test_no_numbers_in_no_numbers_out(convolution):
    problem = awkward("uvu-17")
    inputs = operands(problem, convolution)
    clean = family(convolution)["forward"](*inputs[:3], *tail(problem, convolution))
    inputs[0][1, :] = float("nan")
    result = family(convolution)["forward"](*inputs[:3], *tail(problem, convolution))
    # Only what node or row 1 reaches is touched: receivers of edges from it.
    reached = {r for r, c in zip(ROWS, COLS) if c == 1} if convolution else {1}
    for row in range(len(result)):
        assert torch.isnan(result[row]).all() if row in reached else torch.equal(result[row], clean[row])


def other(name, problem, convolution):
    """Operands with one that is wrong, and what the error says."""
    x, y, w = operands(problem, convolution)[:3]
    return {
        "half": ((x.half(), y.half(), w), OperandError, "w: expected torch.float16, as x has, found torch.float64"),
        "integers": ((x.long(), y, w), UnsupportedPrecision, "x: expected torch.float32, .* found torch.int64"),
        "mixed": ((x, y.float(), w), OperandError, "y: expected torch.float64, as x has, found torch.float32"),
        "sparse": ((x, y.to_sparse(), w), OperandError, r"y: expected a dense tensor .*found torch.sparse_coo"),
        "device": ((x, y.to("meta"), w), OperandError, "y: expected device .*found"),
        "length": ((x[:, 1:], y, w), OperandError, r"x: expected shape \[rows, 45\], found \[\d, 44\]"),
        "weights": ((x, y, w[:, :-1]), OperandError, r"w: expected shape \[edges, \d+\], found \[\d, \d+\]"),
        "shared": ((x, y, w[0]), OperandError, r"w: expected shape \[edges, \d+\], found \[\d+\]"),
        "rows": ((x, y[1:], w), OperandError, r"y: expected \d rows, .* found \[\d, 9\]"),
        "rank": ((x[None], y, w), OperandError, r"x: expected two dimensions, found \[1, \d, 45\]"),
    }[name]


@KINDS
@pytest.mark.parametrize(
    "name", ["half", "integers", "mixed", "sparse", "device", "length", "weights", "shared", "rows", "rank"]
)
def test_wrong_operands_are_told_with_both_sides(name, convolution):
    problem = awkward("uvu-5")
    inputs, error, words = other(name, problem, convolution)
    with pytest.raises(error, match=words):
        family(convolution)["forward"](*inputs, *tail(problem, convolution))


def test_a_problem_of_one_dtype_takes_no_other():
    problem = awkward("uvu-1", dtype="float32")
    with pytest.raises(
        OperandError, match=r"expected torch.float32, which the problem was made for, found torch.float64"
    ):
        BATCH.operators["forward"](*operands(problem)[:3], text_of(problem))


@pytest.mark.parametrize(
    ("rows", "cols", "words"),
    [
        (
            torch.tensor(ROWS).int(),
            torch.tensor(COLS),
            r"rows: expected torch.int64 \[edges\], found torch.int32 \[7\]",
        ),
        (torch.tensor(ROWS), torch.tensor(COLS)[None], r"cols: expected torch.int64 \[edges\], found .* \[1, 7\]"),
        (torch.tensor(ROWS), torch.tensor(COLS).to("meta"), "cols: expected device .* found"),
        (torch.tensor(ROWS), torch.tensor(COLS[1:]), "found 7 rows, 6 cols"),
        (torch.tensor((5, *ROWS[1:])), torch.tensor(COLS), r"rows: expected nodes 0 \.\. 4, found 5 at edge 0"),
        (torch.tensor(ROWS), torch.tensor((*COLS[:-1], -1)), r"cols: expected nodes 0 \.\. 4, found -1 at edge 6"),
    ],
)
def test_wrong_edges_are_told(rows, cols, words):
    problem = awkward("uvu-1")
    with pytest.raises(EdgeIndexError, match=words):
        CONVOLUTION.operators["forward"](*operands(problem, True)[:3], rows, cols, text_of(problem), True, False)


@pytest.mark.parametrize("layout", ["mul_ir", "ir_mul"])
@pytest.mark.parametrize("label", [*AWKWARD, *LABELS])
def test_a_text_is_all_there_is_to_a_problem(label, layout):
    source = awkward if label in AWKWARD else configuration
    problem = source(label, layout=layout, dtype="float32")
    again = problem_of(text_of(problem))
    assert again == problem and again.label == problem.label and text_of(again) == text_of(problem)


@pytest.mark.parametrize("text", ["", "uvu", "{}", '{"irreps_in1": 3}', "[1, 2]"])
def test_another_text_is_refused(text):
    with pytest.raises(InputError, match="expected a tensor product as text_of writes it"):
        problem_of(text)


def test_operands_are_named_as_the_engine_names_them():
    assert len(NAMES) == 7 and NAMES[3] == "gz"
