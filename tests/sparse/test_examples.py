"""The factorisations of the examples converge as TensorLy's do, from the same start."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from examples.data.sparse_tensors import skewed
from trnqc import sparse

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CP, TUCKER = (runpy.run_path(str(EXAMPLES / name)) for name in ("cp_als.py", "tucker_hooi.py"))
# Of order four the solver takes all of its time for each of the networks.
SHAPES = pytest.mark.parametrize("shape", [(13, 7, 11), pytest.param((5, 7, 4, 6), marks=pytest.mark.slow)], ids=str)


@SHAPES
def test_cp_als(shape):
    pytest.importorskip("tensorly")
    tensor = skewed(shape, 90, exponent=1.5)
    start = CP["start"](shape, 3, seed=4)
    model = sparse.cp_als(tensor, 3, 8, init=start, tol=0)
    np.testing.assert_allclose(model.errors, CP["by_tensorly"](tensor.to_dense(), start, 8), rtol=1e-8)


@SHAPES
def test_tucker_hooi(shape):
    pytest.importorskip("tensorly")
    tensor, ranks = skewed(shape, 90, exponent=1.5), [3, 2, 3, 2][: len(shape)]
    start = TUCKER["start"](shape, ranks, seed=4)
    model = sparse.tucker_hooi(tensor, ranks, 8, init=start, tol=0)
    np.testing.assert_allclose(model.errors, TUCKER["by_tensorly"](tensor.to_dense(), start, 8), rtol=1e-8)


def test_files_and_made_up_tensors(tmp_path, capsys):
    path = tmp_path / "small.tns"
    path.write_text("1 1 1 2.0\n2 2 1 -1\n3 1 2 0.5\n2 3 2 1.5\n")
    CP["main"](["--tns", str(path), "--rank", "2", "--sweeps", "2"])
    TUCKER["main"](["--tns", str(path), "--ranks", "2", "2", "2", "--sweeps", "2"])
    lines = capsys.readouterr().out
    assert lines.count("SparseTensor 3x3x2, 4 elements") == 2 and lines.count("sweep   2: error") == 2
