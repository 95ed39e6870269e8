"""mp2_energy on plain arrays: the formula, invariances, and refused inputs."""

from __future__ import annotations

import warnings

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyscf import lib

import trnqc
from trnqc import backends
from trnqc.backends import base
from trnqc.errors import BackendUnavailable, InputError, MemoryLimit, PrecisionError, TrnqcError, UnsupportedPrecision
from trnqc.mp2 import execution
from trnqc.mp2.execution import BackendChoice, Execution, choose
from trnqc.mp2.factors.factors import Factors, checked_factors
from trnqc.mp2.pairs import pairs
from trnqc.mp2.pairs.accuracy import pair_energy
from trnqc.mp2.pairs.pairs import ResultWarning
from trnqc.types import PairEnergies

# Relative to the energy: what a format keeps of B, with room for its accumulation.
RTOL = {"fp64": 1e-12, "fp32": 1e-5, "bf16x3": 1e-4}


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 17), st.integers(1, 33), st.sampled_from(sorted(RTOL)))
def test_any_sizes_and_precision_give_the_formula(factors_like, formula, nocc, nvir, naux, precision):
    B, o, v = factors_like(nocc, nvir, naux)
    result = trnqc.mp2_energy(B, o, v, precision=precision, backend="cpu")
    os, ss = formula(B, o, v)
    atol = RTOL[precision] * abs(os.sum())
    np.testing.assert_allclose(result.pair_energies.os, os, rtol=0, atol=atol)
    np.testing.assert_allclose(result.pair_energies.ss, ss, rtol=0, atol=atol)
    assert result.e_corr == result.e_corr_os + result.e_corr_ss
    assert (result.e_hf, result.e_tot, result.system) == (None, None, None)


def test_the_result_says_which_energy_expression_ran(factors_like, monkeypatch):
    B, o, v = factors_like(2, 5, 7)
    assert trnqc.mp2_energy(B, o, v, backend="cpu").run.fused
    assert not trnqc.mp2_energy(B, o, v, backend="cpu", fused=False).run.fused
    monkeypatch.setenv("CC", "no-such-compiler")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # The first of a process says that NumPy computes.
        assert not trnqc.mp2_energy(B, o, v, backend="cpu").run.fused


@pytest.mark.parametrize("fused", [True, False])
def test_fused_and_apart_agree(factors_like, formula, fused):
    B, o, v = factors_like(4, 13, 29)
    assert trnqc.mp2_energy(B, o, v, fused=fused).e_corr_os == pytest.approx(formula(B, o, v)[0].sum(), rel=1e-12)


def test_rotating_the_auxiliary_index_changes_nothing(factors_like):
    B, o, v = factors_like(4, 7, 19)
    q, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((19, 19)))
    assert trnqc.mp2_energy(B @ q, o, v).e_corr == pytest.approx(trnqc.mp2_energy(B, o, v).e_corr, rel=1e-12)


def test_layouts_and_dtypes_are_taken_as_they_come(factors_like):
    B, o, v = factors_like(4, 7, 19)
    whole = trnqc.mp2_energy(B, o, v).e_corr
    assert trnqc.mp2_energy(np.asfortranarray(B), list(o), tuple(v)).e_corr == pytest.approx(whole, rel=1e-14)
    single = trnqc.mp2_energy(B.astype(np.float32), o, v).e_corr
    assert single == pytest.approx(whole, rel=1e-6)
    assert single != whole
    assert trnqc.mp2_energy(B.astype(">f8"), o, v).e_corr == whole


def test_tensors(factors_like):
    torch = pytest.importorskip("torch")
    B, o, v = factors_like(3, 5, 11)
    tensors = (torch.tensor(B, requires_grad=True), torch.tensor(o), torch.tensor(v))
    with torch.no_grad():
        assert trnqc.mp2_energy(*tensors).e_corr == trnqc.mp2_energy(B, o, v).e_corr
    with pytest.raises(InputError, match="B requires a gradient, which is lost here"):
        trnqc.mp2_energy(*tensors)
    with pytest.raises(InputError, match=r"eps_occ is transformed by torch\.func"):
        torch.func.vmap(lambda e: trnqc.mp2_energy(B, e, v).e_corr)(torch.tensor(o)[None])
    level = torch.autograd.forward_ad
    with level.dual_level(), pytest.raises(InputError, match="eps_vir carries a tangent"):
        trnqc.mp2_energy(B, o, level.make_dual(tensors[2], tensors[2]))
    with pytest.raises(InputError, match="B must be an array"):
        trnqc.mp2_energy(torch.tensor(B).bfloat16(), o, v)


def test_arrays_of_subclasses(factors_like):
    B, o, v = factors_like(3, 5, 11)
    expected = trnqc.mp2_energy(B, o, v).e_corr
    assert trnqc.mp2_energy(lib.tag_array(B, note="test"), lib.tag_array(o, x=1), v).e_corr == expected
    assert trnqc.mp2_energy(np.ma.array(B), o, v).e_corr == expected
    with pytest.raises(InputError, match="B is a masked array with 1 masked elements"):
        trnqc.mp2_energy(np.ma.masked_equal(B, B[0, 0, 0]), o, v)


def test_a_memory_map_is_not_counted_as_memory(factors_like, tmp_path):
    B, o, v = factors_like(12, 9, 40)
    kept = np.memmap(tmp_path / "B", np.float64, "w+", shape=B.shape)
    kept[...] = B
    checked = checked_factors(kept, o, v)
    assert isinstance(checked.B, np.memmap) and checked.bytes_in_memory == 0
    limit = 0.9 * B.nbytes / 1e6
    assert trnqc.mp2_energy(kept, o, v, max_memory=limit).e_corr == pytest.approx(trnqc.mp2_energy(B, o, v).e_corr)


def test_factors_on_disk(factors_like, tmp_path):
    B, o, v = factors_like(5, 7, 19)
    with h5py.File(tmp_path / "B.h5", "w") as file:
        file["B"] = B
        assert trnqc.mp2_energy(file["B"], o, v).e_corr == pytest.approx(trnqc.mp2_energy(B, o, v).e_corr, rel=1e-13)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda B, o, v: (B[0], o, v), "B must have 3 dimensions"),
        (lambda B, o, v: (B, o[None], v), "eps_occ must have 1 dimension,"),
        (lambda B, o, v: (B, o, v[:-1]), r"\(3, 5, 11\).*3 occupied and 4 virtual"),
        (lambda B, o, v: (B.transpose(1, 0, 2), o, v), r"\(5, 3, 11\)"),
        (lambda B, o, v: (B[:, :, :0], o, v), "at least one of each"),
        (lambda B, o, v: (B.astype(int), o, v), "B must hold float64 or float32.*int64"),
        (lambda B, o, v: (B.astype(complex), o, v), "complex128"),
        (lambda B, o, v: (B.astype(np.float16), o, v), "float16"),
        (lambda B, o, v: (B, ["a", "b", "c"], v), "eps_occ must hold"),
        (lambda B, o, v: ([[[1.0, 2.0], [1.0]]], o, v), "B must be an array"),
        (lambda B, o, v: (B, o, np.append(v[1:], np.nan)), r"eps_vir must be finite, found nan at index \[4\]"),
        (lambda B, o, v: (B, np.append(-np.inf, o[1:]), v), "eps_occ must be finite, found -inf"),
    ],
)
def test_arrays_that_do_not_fit(factors_like, change, words):
    with pytest.raises(InputError, match=words):
        trnqc.mp2_energy(*change(*factors_like(3, 5, 11)))


def test_nan_in_the_factors_is_located(factors_like):
    B, o, v = factors_like(3, 5, 11)
    B[2, 4, 9] = B[2, 4, 10] = np.nan
    with pytest.raises(InputError, match=r"B\[2\] must be finite, found nan at index \[4, 9\] \(2 such"):
        trnqc.mp2_energy(B, o, v)


def test_no_gap_warns(factors_like):
    B, o, v = factors_like(3, 5, 11)
    with pytest.warns(ResultWarning, match="below the highest occupied"):
        result = trnqc.mp2_energy(B, o, v - v.min() + o.max() - 0.01)
    assert any("below" in message for message in result.warnings)


@pytest.mark.filterwarnings("error:invalid value")
def test_vanishing_denominator_is_an_error():
    with pytest.raises(TrnqcError, match=r"not finite.*the denominator of the pair \(0, 0\)"):
        trnqc.mp2_energy(np.ones((1, 1, 1)), [0.5], [0.5])


@pytest.mark.filterwarnings("ignore:the estimated error")
def test_bf16_only_by_name_and_with_a_warning(factors_like):
    B, o, v = factors_like(3, 5, 11)
    with pytest.warns(ResultWarning, match="screening"):
        result = trnqc.mp2_energy(B, o, v, precision="bf16")
    exact = trnqc.mp2_energy(B, o, v)
    assert 0 < abs(result.e_corr - exact.e_corr) <= 1.001 * result.error.corr


@pytest.mark.filterwarnings("ignore:bf16 keeps 8 bits")
def test_a_large_estimated_error_is_told(factors_like):
    B, o, v = factors_like(3, 5, 11)
    with pytest.warns(ResultWarning, match="estimated error of precision bf16"):
        trnqc.mp2_energy(10 * B, o, v, precision="bf16")


def test_memory_limit(factors_like):
    with pytest.raises(MemoryLimit, match="limit"):
        trnqc.mp2_energy(*factors_like(3, 5, 11), max_memory=1e-3)


def test_unknown_precision_and_backend(factors_like):
    arrays = factors_like(1, 1, 1)
    with pytest.raises(InputError, match="fp64, fp32, bf16x15, bf16x6, bf16x3, bf16, got 'fp16'"):
        trnqc.mp2_energy(*arrays, precision="fp16")
    with pytest.raises(InputError, match="no backend is called 'gpu'"):
        trnqc.mp2_energy(*arrays, backend="gpu")


class FakeBackend:
    """Computes like the formula, but wrongly by a known amount; stands where a device would."""

    def __init__(self, name, precisions, add=0.0):
        self.name, self.precisions, self.add = name, precisions, add

    def pair_step(self, *options):
        self.options = options
        return self

    def block_bytes(self, m, n, nvir, naux):
        return 0

    def triangle(self, B, eps_occ, eps_vir, max_memory=None):
        self.max_memory = max_memory
        n = len(eps_occ)
        es = np.zeros((2, n, n))
        for i in range(n):
            for j in range(i + 1):
                es[:, i, j] = pair_energy(B, eps_occ, eps_vir, i, j)
        return PairEnergies(es[0] + self.add, es[1], "a fake")


def test_precision_none_is_the_best_of_the_backend_taken():
    assert choose("cpu", None).precision == "fp64"


def test_precision_none_on_a_device_without_fp64(monkeypatch):
    device = FakeBackend("neuron", ("fp32", "bf16x3", "bf16"))
    monkeypatch.setattr(execution.backends, "select", lambda name, precision: base.Selection(device, "fake"))
    assert choose("auto", None).precision == "fp32"


def test_a_backend_that_computes_wrongly_is_found_out(factors_like):
    B, o, v = factors_like(3, 5, 11)
    device = FakeBackend("neuron", ("fp32",), add=np.tril(np.full((3, 3), 1e-4)))
    words = r"promises an error of 1\.0e-06 .* by a fake is estimated as 6\.0e-04 from 6 of 6 .* use the precision fp64"
    with pytest.raises(PrecisionError, match=words):
        pairs.run_pairs(Factors(B, o, v), Execution(BackendChoice(device, "fp32", ""), memory=2e6))
    assert device.max_memory == 2e6


def test_a_backend_that_is_absent_says_why(monkeypatch, factors_like):
    absent = base.BackendStatus(usable=False, reason="no device", hint="use one")
    monkeypatch.setattr(backends, "_status", lambda name: absent)
    with pytest.raises(BackendUnavailable, match=r"'neuron' cannot run here: no device\. use one"):
        trnqc.mp2_energy(*factors_like(1, 1, 1), precision="fp32", backend="neuron")


def test_a_backend_without_the_precision_says_what_it_has():
    with pytest.raises(UnsupportedPrecision, match="fp32"):
        base.check_precision(FakeBackend("neuron", ("fp32",)), "fp64")


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_are_counted_from_one(factors_like, threads):
    with pytest.raises(InputError, match=f"threads must be a positive number, or None for all, got {threads}"):
        trnqc.mp2_energy(*factors_like(2, 3, 5), threads=threads)


@pytest.mark.parametrize("options", [{"scs": (np.nan, 1.0)}, {"scs": 3}, {"scs": (1, 2, 3)}, {"sos": np.inf}])
def test_scaling_factors_are_finite(factors_like, options):
    with pytest.raises(InputError, match="two finite factors"):
        trnqc.mp2_energy(*factors_like(2, 3, 5), **options)


def test_a_tensor_without_data(factors_like):
    torch = pytest.importorskip("torch")
    B, o, v = factors_like(2, 3, 5)
    with pytest.raises(InputError, match="B must be an array of real numbers"):
        trnqc.mp2_energy(torch.empty(B.shape, device="meta"), o, v)


def test_options_are_numbers(factors_like, tmp_path):
    arrays = factors_like(2, 3, 5)
    with pytest.raises(InputError, match=r"threads must be a positive number, or None for all, got 1\.5"):
        trnqc.mp2_energy(*arrays, threads=1.5)
    with pytest.raises(InputError, match="max_memory is a number of MB"):
        trnqc.mp2_energy(*arrays, max_memory="1G")
    result = trnqc.mp2_energy(*arrays, threads=np.int64(2), scs=np.array([1.2, 0.3]), sos=np.float32(1.5))
    result.save(tmp_path / "result.json")
    assert trnqc.MP2Result.load(tmp_path / "result.json").scs == (1.2, 0.3)
