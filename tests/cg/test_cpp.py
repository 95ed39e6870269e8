"""The operators in C++: programs without trnqc and without Python compute the same as Python does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import trnqc.cg  # noqa: E402
from trnqc.cg import SymmetricContraction, TensorProduct, TensorProductConv, TPProblem, write_kernels  # noqa: E402
from trnqc.cg.torch.cpp import folder as kernel_folder  # noqa: E402
from trnqc.errors import InputError  # noqa: E402
from trnqc.jit.cpp import cpp_compiler  # noqa: E402

NODES, EDGES = 7, 40
UVU = TPProblem(
    "4x0e+4x1o",
    "0e+1o",
    "4x0e+4x1o",
    [(0, 0, 0, "uvu", True), (0, 1, 1, "uvu", True), (1, 1, 0, "uvu", True)],
    shared_weights=False,
)
UVW = TPProblem("4x0e+4x1o", "0e+1o", "3x0e", [(0, 0, 0, "uvw", True), (1, 1, 0, "uvw", True)], internal_weights=True)


class Layer(torch.nn.Module):
    """A convolution with weights of the edges, a contraction, and a convolution with shared weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = TensorProductConv(UVU)
        self.contraction = SymmetricContraction("4x0e+4x1o", "4x0e+4x1o", 3, num_elements=3)
        self.second = TensorProductConv(UVW)

    def forward(self, x, y, w, rows, cols):
        b = self.contraction(self.first(x, y, w, rows, cols), torch.arange(x.shape[0]) % 3)
        return torch.tanh(self.second(b, y, None, rows, cols))


# Run without trnqc: the model's results and their derivatives with respect to x, y, w and the parameters.
EVALUATE = """
import sys, torch
sys.path = [p for p in sys.path if "trnqc" not in p]
torch.ops.load_library(sys.argv[1])
model = torch.jit.load(sys.argv[2])
operands = [t.requires_grad_(t.is_floating_point()) for t in torch.load(sys.argv[3])]
torch.save(DERIVATIVES(model, operands), sys.argv[4])
assert "trnqc" not in sys.modules
"""
DERIVATIVES = """
def derivatives(model, operands):
    wrt = [*operands[:3], *model.parameters()]
    z = model(*operands)
    first = torch.autograd.grad(z.pow(3).sum(), wrt, create_graph=True)
    second = torch.autograd.grad(sum(g.pow(2).sum() for g in first), wrt)
    return [t.detach() for t in (z, *first, *second)]
"""


def operands(dtype):
    generator = torch.Generator().manual_seed(1)
    shapes = ((NODES, UVU.dims[0]), (EDGES, UVU.dims[1]), (EDGES, UVU.weight_numel))
    edges = torch.randint(NODES, (2, EDGES), generator=generator)
    return [*(torch.randn(shape, dtype=dtype, generator=generator) for shape in shapes), *edges]


def derivatives(model, arguments):
    names: dict[str, object] = {"torch": torch}
    exec(DERIVATIVES, names)
    return names["derivatives"](model, [t.requires_grad_(t.is_floating_point()) for t in arguments])


def run(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with the kernels of `Layer` in both precisions."""
    folder = tmp_path_factory.mktemp("kernels")
    for dtype in ("float64", "float32"):
        path = write_kernels(Layer(), folder, dtype=dtype, training=True)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
def test_torchscript_without_trnqc(written, tmp_path, dtype):
    torch.manual_seed(0)
    model = Layer().to(dtype)
    torch.jit.script(model).save(tmp_path / "model.pt")
    torch.save(operands(dtype), tmp_path / "operands.pt")
    code = DERIVATIVES.replace("def", "import torch\ndef", 1) + EVALUATE.replace("DERIVATIVES", "derivatives")
    done = run(code, written, tmp_path / "model.pt", tmp_path / "operands.pt", tmp_path / "results.pt")
    assert not done.returncode, done.stderr
    # Sums over the shares of a graph are the same in both, in the same order but for shared weights.
    tolerance = 1e-13 if dtype == torch.float64 else 1e-5
    for ours, expected in zip(torch.load(tmp_path / "results.pt"), derivatives(model, operands(dtype)), strict=True):
        assert (ours - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.slow
@pytest.mark.parametrize("change", ["index", "kernel", "machine", "feature", "version"])
def test_a_folder_that_cannot_be_used(written, tmp_path, change):
    """Each fault is one error that names it."""
    folder = shutil.copytree(written.parent, tmp_path / "kernels")
    index, (model, values) = folder / "index", (tmp_path / "model.pt", tmp_path / "operands.pt")
    header, *lines = index.read_text().splitlines()
    changed, expected = {
        "index": (None, "expected the index of the kernels"),
        "kernel": ([header], "has no kernel conv_forward in float64"),
        "machine": ([header.replace("\t2\t", "\t2\tother-"), *lines], "are for other-"),
        "feature": ([header + " avx1024", *lines], "unknown feature of CPUs: avx1024"),
        "version": ([header.replace("\t2\t", "\t99\t"), *lines], "expected the header 'trnqc-kernels 2'"),
    }[change]
    index.unlink() if changed is None else index.write_text("\n".join(changed) + "\n")
    torch.jit.script(Layer().double()).save(model)
    torch.save(operands(torch.float64), values)
    done = run(
        EVALUATE.replace("DERIVATIVES(model, operands)", "model(*operands)"), folder / written.name, model, values, ""
    )
    assert done.returncode
    assert expected in done.stderr


@pytest.mark.slow
def test_wrong_operands_are_named(written, tmp_path):
    code = f"""
import sys, torch
torch.ops.load_library(sys.argv[1])
x, y, w, rows, cols = torch.load(sys.argv[2])
text = {Layer().first._text!r}
for bad in ((x.half(), y, w, rows, cols), (x, y[:3], w, rows, cols), (x, y, w.float(), rows, cols),
            (x, y, w, rows.int(), cols), (x, y, w, rows + {NODES}, cols), (x, y, w, rows[:1], cols)):
    try:
        torch.ops.trnqc.cg_conv_forward(*bad, text, True, False)
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""
    torch.save(operands(torch.float64), tmp_path / "operands.pt")
    done = run(code, written, tmp_path / "operands.pt")
    starts = [line.split(":")[0] for line in done.stdout.splitlines()]
    assert starts == ["x", "y", "w", "rows", "rows", "expected as many receivers as senders, found 1 rows, 40 cols"]


@pytest.mark.slow
def test_wrong_operands_of_contractions_are_named(written, tmp_path):
    code = f"""
import sys, torch
torch.ops.load_library(sys.argv[1])
text = {Layer().contraction._text!r}
c, x, e = torch.zeros(2, {len(Layer().contraction.problem.terms)}, 4), torch.zeros(5, 4, 4), torch.zeros(5).long()
def evaluate(c=c, x=x, along=x[None][:0], e=e, text=text):
    try:
        print(torch.ops.trnqc.cg_contraction_value(c, x, along, e, text).shape)
    except RuntimeError as error:
        print(str(error).splitlines()[0])
evaluate()
evaluate(x=x[:0], along=x[None][:0, :0], e=e[:0])
evaluate(c=c[:, 1:])
evaluate(c=c.double())
evaluate(x=x[:, :3])
evaluate(e=e + 2)
evaluate(e=e[:3])
evaluate(text="4x0e -> 4x0e, 2")
"""
    done = run(code, written)
    expected = [
        "torch.Size([5, 4, 4])",
        "torch.Size([0, 4, 4])",
        "c: expected shape [2, ",
        "c: expected float, as x has, found Double",
        "x: expected shape [5, 4, 4], found [5, 3, 4]",
        "elements: expected numbers from 0 to 1, found 2",
        "elements: expected torch.int64 [5], one for each node",
        "has no kernel cg_contraction_value_0 in float32",
    ]
    for line, part in zip(done.stdout.splitlines(), expected, strict=True):
        assert part in line


@pytest.mark.slow
def test_the_library_gives_way_to_python(written):
    """Where trnqc is imported already, its operators stay those of Python."""
    code = "import sys, torch, trnqc.cg.torch.operators; torch.ops.load_library(sys.argv[1]); print('loaded')"
    assert run(code, written).stdout == "loaded\n"


def test_models_without_products_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"modules of trnqc\.cg"):
        write_kernels(torch.nn.Linear(2, 2), tmp_path, dtype="float64")
    with pytest.raises(InputError, match="float32 or float64"):
        write_kernels(Layer().half(), tmp_path)


def test_folders_of_other_machines_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_folder, "operators_library", lambda: Path(__file__))
    write_kernels(TensorProduct(UVU), tmp_path, dtype="float64")
    write_kernels(TensorProduct(UVU), tmp_path, dtype="float32")
    header, *lines = (tmp_path / "index").read_text().splitlines()
    assert [line.split("\t")[:2] for line in lines] == [
        [name, dtype] for dtype in ("float64", "float32") for name in ("forward", "backward")
    ]
    (tmp_path / "index").write_text(header.replace("trnqc-kernels\t2", "trnqc-kernels\t0"))
    with pytest.raises(InputError, match="for this machine"):
        write_kernels(TensorProduct(UVU), tmp_path, dtype="float64")


def test_scripts_call_one_operator():
    code = torch.jit.script(Layer()).first.code
    assert code.count("ops.trnqc.cg_conv_forward") == 1


def test_without_a_compiler(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(trnqc.errors.CompilerError, match="install one"):
        cpp_compiler()
