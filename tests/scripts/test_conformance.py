"""The conformance script: how it judges results, and how it reads the parameter sets of the vendor's tests."""

import ml_dtypes
import numpy as np
import pytest


def judged(got, want, rtol=1e-3, atol=0.0):
    from scripts.conformance.cases import judge

    return judge([np.asarray(got)], [np.asarray(want)], rtol, atol)


def test_errors_are_measured_against_the_largest_value():
    want = np.array([1000.0, 1.0])
    near = judged([1000.5, 1.5], want)
    assert near.passed and near.error == pytest.approx(5e-4)
    far = judged([1000.0, 3.0], want)
    assert not far.passed and "largest error 2 where the largest value is 1e+03" in far.why


def test_absolute_tolerance_decides_where_zero_is_expected():
    assert judged([1e-9], [0.0], atol=1e-8).passed
    assert not judged([1e-7], [0.0], atol=1e-8).passed


@pytest.mark.parametrize(
    ("got", "want", "why"),
    [
        ([np.nan, 1.0], [1.0, 1.0], "50.0% of the elements are NaN"),
        ([1.0], [1.0, 2.0], "shape (2,) expected, (1,) found"),
        ([np.inf], [1.0], "largest error inf"),
    ],
)
def test_what_differs_is_said(got, want, why):
    verdict = judged(got, want)
    assert not verdict.passed and why in verdict.why


def test_equal_infinities_and_expected_nan_agree():
    assert judged([np.inf, np.nan, 1.0], [np.inf, np.nan, 1.0]).passed


def test_low_precision_and_torch_outputs_are_read():
    torch = pytest.importorskip("torch")
    assert judged(np.ones(2, ml_dtypes.bfloat16), [1.0, 1.0]).passed
    from scripts.conformance.cases import as_float

    assert as_float(torch.ones(2, dtype=torch.bfloat16)).tolist() == [1.0, 1.0]


def test_number_of_outputs_must_agree():
    from scripts.conformance.cases import judge

    assert judge([np.ones(1)], [], 1e-3, 0.0).why == "0 outputs expected, 1 found"


def test_parameter_sets_are_the_product_of_the_marks():
    from scripts.conformance.library import parameters

    @pytest.mark.parametrize("cores", [1, 2])
    @pytest.mark.parametrize("rows, columns", [(3, 4), pytest.param(5, 6, id="odd")])
    def sample(rows, columns, cores): ...

    assert parameters(sample)[:2] == [{"cores": 1, "rows": 3, "columns": 4}, {"cores": 1, "rows": 5, "columns": 6}]
    assert len(parameters(sample)) == 4


def test_outcomes_name_files_relative_to_the_checkout(tmp_path):
    """The interpreter of NKI 0.6 names files by their whole paths."""
    from scripts.conformance.__main__ import isolated
    from scripts.conformance.cases import Case

    def fails(root):
        raise ValueError(f"{root}/kernels/one.py:3: no such keyword")

    outcome = isolated(Case("own", "one", "2x2", "trn2", fails), tmp_path, 10.0, "0.6")
    assert outcome.outcome == "error" and outcome.why.startswith("ValueError: kernels/one.py:3: no such keyword")
