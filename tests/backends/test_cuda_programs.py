"""The programs of MP2 on GPUs: by the interpreter, as C, and compiled by nvcc without a GPU."""

from __future__ import annotations

import shutil

import ml_dtypes
import numpy as np
import pytest

from trnqc.backends.cpu.formats import encode
from trnqc.backends.cuda import packing, programs
from trnqc.backends.cuda.formats import DEVICE_FORMATS
from trnqc.backends.cuda.programs import AMPLITUDES, ENERGIES, LANES, TILE, tiles_of
from trnqc.backends.cuda.threads import on_threads
from trnqc.errors import MemoryLimit
from trnqc.gen import emit_cuda, run
from trnqc.jit import compile_cuda, nvcc

PARTS_ERROR = {"fp64": 0.0, "fp32": 2.0**-24, "bf16x3": 2.0**-17, "bf16": 2.0**-8}
DTYPES = {"f64": np.float64, "f32": np.float32}
# i, j, rows, columns: one element; around a tile; two tiles of rows.
BLOCKS = [(1, 1, 1, 1), (1, 2, TILE, TILE), (2, 1, TILE + 1, TILE + 1)]


def arguments(m: int, n: int, rows: int, columns: int, dtype: str) -> tuple[dict, np.ndarray, np.ndarray]:
    """Arguments that all programs share, T[i, a, j, b] and D. Rows of T end with three elements that are NaN."""
    rng, kind, stride = np.random.default_rng([m, n, rows]), DTYPES[dtype], n * columns + 3
    t = np.full((m * rows, stride), np.nan)
    t[:, : n * columns] = rng.standard_normal((m * rows, n * columns))
    e_left, e_right = -1 - rng.random(m + 2), -1 - rng.random(n + 1)
    e_row = 0.1 + rng.random(rows)
    e_column = e_row if rows == columns else 0.1 + rng.random(columns)
    energies = {"e_row": e_row, "e_column": e_column, "e_left": e_left, "e_right": e_right}
    D = e_left[2:, None, None, None] + e_right[1:, None] - e_row[:, None, None] - e_column
    numbers = {"orbitals": n, "rows": rows, "columns": columns, "stride": stride, "i0": 2, "j0": 1}
    arrays = {name: x.astype(kind) for name, x in energies.items()} | {"t": np.append(t, 0.0).astype(kind)}
    return numbers | arrays, t[:, : n * columns].reshape(m, rows, n, columns), D


def same_spin(name: str) -> bool:
    return name.startswith("same")


@pytest.mark.parametrize("lanes", [TILE, LANES])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("name", ENERGIES)
def test_energies_by_the_interpreter(name, block, dtype, lanes):
    inputs, T, D = arguments(*block, dtype)
    m, n, rows, _ = block
    groups, place = m * n * tiles_of(rows), 3
    out = np.full((groups + place, 2), -1.0)
    run(
        programs.pair_program(name, dtype, lanes),
        inputs | {"out": out, "place": place},
        lanes=lanes,
        groups=(0, groups),
    )
    assert (out[:place] == -1).all()
    sums = out[place:].reshape(m, n, -1, 2).sum(axis=2)
    scale = np.einsum("iajb,iajb->ij", T, T / D)
    exchange = np.einsum("iajb,ibja->ij", T, T / D) if same_spin(name) else np.zeros((m, n))
    np.testing.assert_allclose(sums[..., 0], scale, rtol=1e-13 if dtype == "f64" else 1e-6)
    assert np.all(abs(sums[..., 1] - exchange) <= (1e-13 if dtype == "f64" else 1e-6) * abs(scale))


@pytest.mark.parametrize("lanes", [TILE, LANES])
@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("name", AMPLITUDES)
def test_amplitudes_by_the_interpreter(name, block, lanes):
    inputs, T, D = arguments(*block, "f64")
    m, n, rows, columns = block
    inputs |= {"direct": 1.5, "exchange": 0.5}
    before = inputs["t"].copy()
    run(programs.pair_program(name, "f64", lanes), inputs, lanes=lanes, groups=(0, m * n * tiles_of(rows)))
    result = inputs["t"][:-1].reshape(m * rows, -1)
    exchange = 0.5 * T.transpose(0, 3, 2, 1) if same_spin(name) else 0.0
    exact = ((1.5 * T - exchange) / D).reshape(m * rows, n * columns)
    np.testing.assert_allclose(result[:, : n * columns], exact, rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(result[:, n * columns :], before[:-1].reshape(result.shape)[:, n * columns :])


def test_numbers_are_split_into_bf16():
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(150) * 10.0 ** rng.integers(-25, 30, 150)).astype(np.float32)
    special = np.array([0.0, -0.0, 1.0, -255.5, np.inf, -np.inf, np.nan, -np.nan], np.float32)
    # NaN as CUDA writes it, and the one with all bits set.
    x = np.concatenate((x, special, np.array([0x7FFFFFFF, -1], np.int32).view(np.float32)))
    high, low = np.zeros((2, x.size // 2), np.int32)
    words = {"words": x.size // 2, "x": x, "high": high, "low": low}
    run(packing.split(TILE), words, lanes=TILE, groups=(0, -(-high.size // TILE)))
    high, low = (word.view(ml_dtypes.bfloat16).astype(float) for word in (high, low))
    finite = np.isfinite(x)
    np.testing.assert_array_equal(high, x.astype(ml_dtypes.bfloat16).astype(float))
    assert np.all(abs(high + low - x)[finite] <= 2.0**-17 * abs(x[finite]))
    assert not np.isfinite((high + low)[~finite]).any()


@pytest.mark.parametrize("naux", [1, 7, 8, 67])
@pytest.mark.parametrize("precision", DEVICE_FORMATS)
def test_rows_of_B_are_packed(precision, naux):
    """The copies are those of the CPU's format, each padded with zeros, and begin where they should."""
    form, rows = DEVICE_FORMATS[precision], np.random.default_rng(0).standard_normal((3, naux))
    a_word, before = 2 if form.halves else 1, 4
    packed = np.full(before + 3 * form.row(naux) // a_word, 3, form.stored)
    numbers = {"elements": naux, "width": form.padded(naux) // a_word, "place": before}
    run(packing.pack(form, TILE), numbers | {"rows": rows, "packed": packed}, lanes=TILE, groups=(0, 3))
    copies = packed[before:].view(form.operand).reshape(3, -1, form.padded(naux)).astype(float)
    expected = encode(rows, precision).reshape(3, -1, naux)
    np.testing.assert_allclose(copies[:, :, :naux], expected, rtol=2.0**-7 if precision == "bf16x3" else 0)
    # The rounding error of the lower part is that of all parts together.
    assert np.all(abs(sum(copies[:, k, :naux] for k in form.parts) - rows) <= PARTS_ERROR[precision] * abs(rows))
    assert (packed[:before] == 3).all() and not copies[:, :, naux:].any()


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs the CUDA compiler")
@pytest.mark.parametrize(("arch", "dtype"), [("sm_80", "f32"), pytest.param("sm_90", "f64", marks=pytest.mark.slow)])
def test_nvcc_compiles_them_without_spills(arch, dtype):
    functions = [programs.pair_program(name, dtype, LANES) for name in (*ENERGIES, *AMPLITUDES)]
    functions += [packing.split(LANES), packing.pack(DEVICE_FORMATS["bf16x3" if dtype == "f32" else "fp64"], LANES)]
    text = emit_cuda(*functions, lanes=LANES, accumulate="plain")
    flags = (*nvcc.DEFAULT_FLAGS, "-Werror=all-warnings")
    for kernel in compile_cuda(text, name="cuda_mp2", arch=arch, flags=flags).kernels:
        assert kernel.spill_stores == 0 and kernel.registers * LANES <= 65536 // 2, kernel


def test_threads_take_turns_and_end_with_the_first_error():
    def numbers(first: int, fails: bool = False):
        for n in range(3):
            if fails and n == 1:
                raise MemoryLimit("full")
            yield 10 * first + n

    assert list(on_threads([numbers(0), numbers(1), ()])) == [0, 10, 1, 11, 2, 12]
    endless, results = iter(int, 1), []
    with pytest.raises(MemoryLimit, match="full"):
        results += on_threads([endless, numbers(1, fails=True)])
    assert results == [0, 10, 0]
