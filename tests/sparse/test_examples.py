"""The factorisations of the examples converge as TensorLy's do, from the same start."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from examples.data.sparse_tensors import skewed

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CP, TUCKER = (runpy.run_path(str(EXAMPLES / name)) for name in ("cp_als.py", "tucker_hooi.py"))
# Of order four the solver takes all of its time for each of the networks.
SHAPES = pytest.mark.parametrize("shape", [(13, 7, 11), pytest.param((5, 7, 4, 6), marks=pytest.mark.slow)], ids=str)


@SHAPES
def test_cp_als(shape):
    pytest.importorskip("tensorly")
    tensor = skewed(shape, 90, exponent=1.5)
    start = CP["start"](shape, 3, seed=4)
    factors, errors = CP["cp_als"](tensor, start, 8)
    np.testing.assert_allclose(errors, CP["by_tensorly"](tensor.to_dense(), start, 8), rtol=1e-8)
    letters = "ijkl"[: len(shape)]
    model = np.einsum(",".join(f"{x}z" for x in letters) + f"->{letters}", *factors)
    array = tensor.to_dense()
    assert errors[-1] == pytest.approx(np.linalg.norm(array - model) / np.linalg.norm(array), rel=1e-10)


@SHAPES
def test_tucker_hooi(shape):
    pytest.importorskip("tensorly")
    tensor, ranks = skewed(shape, 90, exponent=1.5), [3, 2, 3, 2][: len(shape)]
    start = TUCKER["start"](shape, ranks, seed=4)
    core, factors, errors = TUCKER["hooi"](tensor, start, 8)
    np.testing.assert_allclose(errors, TUCKER["by_tensorly"](tensor.to_dense(), start, 8), rtol=1e-8)
    model = core
    for factor in factors:
        np.testing.assert_allclose(factor.T @ factor, np.eye(factor.shape[1]), atol=1e-13)
        model = np.tensordot(model, factor, axes=(0, 1))
    array = tensor.to_dense()
    assert errors[-1] == pytest.approx(np.linalg.norm(array - model) / np.linalg.norm(array), rel=1e-8)


def test_files_and_made_up_tensors(tmp_path, capsys):
    path = tmp_path / "small.tns"
    path.write_text("1 1 1 2.0\n2 2 1 -1\n3 1 2 0.5\n2 3 2 1.5\n")
    CP["main"](["--tns", str(path), "--rank", "2", "--sweeps", "2"])
    TUCKER["main"](["--tns", str(path), "--ranks", "2", "2", "2", "--sweeps", "2"])
    lines = capsys.readouterr().out
    assert lines.count("SparseTensor 3x3x2, 4 elements") == 2 and lines.count("sweep   2: error") == 2
