"""The report on kernels of the old namespace: each old form at its line, with what takes its place."""

from __future__ import annotations

import textwrap

import pytest

from trnqc.sim.lint.migration import INSTEAD, KEYWORDS, migrations

HEAD = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
"""
FIRST = 6  # line of what follows it


def changes(text, head=HEAD):
    """(line, new) of each change in a text that follows the imports."""
    found = migrations(head + textwrap.dedent(text).lstrip("\n"), "kernels.py")
    return [(change.line, change.new) for change in found if change.line >= FIRST or head is not HEAD]


CASES = {
    "result": ("t = nisa.tensor_tensor(a, b, op=nl.add)", "nisa.tensor_tensor(dst=..., ...) into a tile"),
    "returned": ("def f(a):\n    return nisa.reciprocal(a)", "nisa.reciprocal(dst=..., ...) into a tile"),
    "argument": ("nl.exp(nisa.tensor_copy(a))", "nisa.tensor_copy(dst=..., ...) into a tile"),
    "accumulated": ("psum += nisa.nc_matmul(a, b)", "accumulate=None), which adds to dst"),
    "mask": ("nl.exp(a, mask=i < n)", "without mask"),
    "mask_of_an_instruction": ("nisa.memset(a, 0, mask=i < n)", "without mask"),
    "dtype": ("nisa.tensor_copy(a, dtype=nl.float32)", "without dtype"),
    "read_modify_write": ("nisa.dma_copy(dst=a, src=b, dst_rmw_op=np.add)", "nisa.dma_compute"),
    "flag": ("nisa.nc_matmul(p, a, b, psumAccumulateFlag=3)", "accumulate=None, True or False"),
    "arange": ("i = nl.arange(128)[:, None]", "nl.ds(start, size)"),
    "mgrid": ("i, j = nl.mgrid[0:128, 0:512]", "nl.ds(start, size)"),
    "par_dim": ("nl.ndarray((4, nl.par_dim(128), 512), dtype=a.dtype)", "dimension 0 is always the partition"),
    "load": ("t = nl.load(x[i, j])", "nisa.dma_copy(dst=tile, src=...)"),
    "store": ("nl.store(x[i, j], value=t)", "nisa.dma_copy(dst=..., src=tile)"),
    "loop": ("for i in nl.affine_range(4):\n    pass", "range"),
    "cast": ("nl.static_cast(t, nl.bfloat16)", "the dtype of dst decides"),
    "limits": ("low = nl.fp32.min", "a constant"),
    "numpy_operator": ("nisa.tensor_scalar(a, b, np.subtract, 1.0)", "nl.subtract instead of np.subtract"),
    "benchmark": ("@nki.benchmark(warmup=2)\ndef f(a):\n    pass", "the profiler of Neuron"),
    "simulate": ("nki.simulate_kernel(f, a)", "nki.simulate(kernel)(...)"),
    "mode": ("@nki.jit(mode='simulation')\ndef f(a):\n    pass", "the framework is found from the arguments"),
    "platform": ("@nki.jit(platform_target='trn2')\ndef f(a):\n    pass", "NEURON_PLATFORM_TARGET_OVERRIDE"),
    "buffer": ("nl.ndarray((128, 4), a.dtype, buffer='sbuf')", "nl.sbuf, nl.psum, nl.hbm or nl.shared_hbm"),
    "operator": ("t = nl.exp(a)\nu = t[0:4] * 2", "tensors have no operators"),
    "gone": ("nisa.tensor_copy_dynamic_src(a, b)", "nisa.tensor_copy_dynamic_src does not exist any more"),
    "grid": ("@nki.jit\ndef f(a):\n    pass\nf[4, 2](a)", "the grid becomes a loop over tiles"),
    "nested": ("@nki.jit\ndef f(a):\n    pass\n@nki.jit\ndef g(a):\n    f(a)", "f as a plain function"),
}


@pytest.mark.parametrize("name", CASES)
def test_finds(name):
    text, new = CASES[name]
    found = changes(text)
    lines = [line for line, message in found if new in message]
    assert lines, found
    assert len(found) == len(set(found))


NEW = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    register = nisa.register_alloc(1)
    for i in range(x.shape[0] * 2):
        pass
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


def test_current_kernels_have_no_report():
    assert migrations(NEW, "kernels.py") == ()


def test_a_current_body_under_old_imports_only_changes_the_imports():
    text = NEW.replace("import nki", "import neuronxcc.nki").replace("neuronxcc.nki\n", "neuronxcc.nki as nki\n")
    assert [(m.line, m.new) for m in migrations(text, "kernels.py")] == [
        (2, "import nki"),
        (3, "import nki.isa as nisa"),
        (4, "import nki.language as nl"),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from neuronxcc import nki", "import nki"),
        ("from neuronxcc.nki import language as nl", "from nki import language as nl"),
        ("from neuronxcc.nki.typing import tensor", "from nki.typing import tensor"),
        ("from neuronxcc.nki.language import par_dim", "from nki.language import par_dim"),
        ("from neuronxcc.nki import benchmark", "nothing: benchmark is gone; see its uses"),
        ("import neuronxcc.nki.compiler as ncc", "nothing: addresses are an argument of nl.ndarray"),
        ("from neuronxcc.nki.kernels.attention import flash_fwd", "nkilib, the package of nki-library"),
    ],
)
def test_imports(old, new):
    assert changes(old, head="")[0] == (1, new)


def test_lines_and_source():
    (change,) = [m for m in migrations(f"{HEAD}x = 1\ni = nl.arange(128)\n", "kernels.py") if m.line >= FIRST]
    assert (change.file, change.line, change.old) == ("kernels.py", FIRST + 1, "nl.arange")


def test_other_files_of_the_compiler_are_none():
    assert migrations("from neuronxcc.starfish.support import util\nx = util.arange(3)\n", "kernels.py") == ()


def test_index_arithmetic_is_no_operator_on_tiles():
    found = changes("i = nl.arange(128)\nj = i * 4 + 1")
    assert not [new for _, new in found if "operators" in new]


def test_every_entry_of_the_tables_can_be_found():
    for name, new in INSTEAD.items():
        assert any(new == message for _, message in changes(f"x = {name}"))
    for keyword, new in KEYWORDS.items():
        assert (FIRST, new) in changes(f"nisa.memset(a, {keyword}=1)")
