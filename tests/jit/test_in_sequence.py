"""Functions are called in their order, with numbers and addresses from one array."""

from __future__ import annotations

import numpy as np

from trnqc import jit

TEXT = """
#include <stdint.h>
void add(double *x, const float *y, int64_t n) { for (int64_t i = 0; i < n; i++) x[i] += y[i]; }
void scale(int64_t n, int32_t by, double *x) { for (int64_t i = 0; i < n; i++) x[i] *= by; }
"""


def test_functions_are_called_in_sequence():
    numbers = jit.Parameter("n", "i64")
    x = jit.Parameter("x", "f64", array=True, written=True)
    signatures = (
        jit.Signature("add", (x, jit.Parameter("y", "f32", array=True), numbers)),
        jit.Signature("scale", (numbers, jit.Parameter("by", "i32"), x)),
    )
    library = jit.compile_c(TEXT, signatures, name="steps")
    together = jit.in_sequence([library.add, library.scale, library.add])
    values, added = np.arange(5.0), np.full(5, 2, np.float32)
    places = values.ctypes.data, added.ctypes.data
    adding = library.add.address, *places, 5
    together(a=np.array([*adding, library.scale.address, 5, -3, places[0], *adding], np.int64))
    np.testing.assert_array_equal(values, -3 * (np.arange(5) + 2) + 2)
