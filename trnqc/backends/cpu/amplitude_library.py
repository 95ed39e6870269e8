"""The functions of pair_amplitudes.c as `trnqc.backends.cpu.pair_amplitudes` calls them."""

from __future__ import annotations

import functools

from trnqc import jit
from trnqc.backends.cpu.pair_products import integers, source_of


@functools.cache
def amplitude_library() -> jit.Library:
    """The library compiled from pair_amplitudes.c. Raises CompilerError."""

    def numbers(*names: str) -> tuple[jit.Parameter, ...]:
        return tuple(jit.Parameter(name, "f64") for name in names)

    def vectors(*names: str, written: bool = False) -> tuple[jit.Parameter, ...]:
        return tuple(jit.Parameter(name, "f64", array=True, ndim=1, written=written) for name in names)

    def elements(name: str) -> jit.Parameter:
        return jit.Parameter(name, "i64", array=True, ndim=2)

    slab, amplitudes = (jit.Parameter("k", "f64", array=True, ndim=2), jit.Parameter("w", "f64", array=True, ndim=4))
    written = jit.Parameter("w", "f64", array=True, ndim=4, written=True)
    same_spin = (
        slab,
        *integers("pairs", "nvir", "k_stride", "column", "symmetric"),
        *vectors("e_vir", "e_pair"),
        *numbers("direct", "exchange"),
        *vectors("os", "x", "norm", "rows", "columns", written=True),
        written,
        *integers("first", "stride"),
    )
    opposite_spin = (
        slab,
        *integers("pairs", "rows", "columns", "k_stride", "column"),
        *vectors("e_row", "e_column", "e_pair"),
        *numbers("direct"),
        *vectors("os", "norm", "left", "right", written=True),
        written,
        *integers("first", "stride"),
    )
    virtual_sums = (
        amplitudes,
        *integers("pairs", "rows", "columns", "first", "stride", "symmetric"),
        *numbers("same", "swapped"),
        *integers("lefts"),
        elements("left_elements"),
        *integers("rights"),
        elements("right_elements"),
        *integers("orbitals"),
        jit.Parameter("transposed", "i64", array=True, ndim=1),
        *vectors("left", "right", written=True),
        jit.Parameter("scratch", "f64", array=True, ndim=2, written=True),
    )
    overlap = (amplitudes, *integers("v0", "w0", "rows", "columns", "stride"), *numbers("same", "swapped"))
    signatures = (
        jit.Signature("amplitudes", same_spin),
        jit.Signature("opposite_spin_amplitudes", opposite_spin),
        jit.Signature("virtual_sums", virtual_sums),
        jit.Signature("pair_overlap", overlap, returns="f64"),
    )
    text = source_of("pair_energy.c") + source_of("pair_amplitudes.c")
    return jit.compile_c(text, signatures, name="pair_amplitudes", defines=("REAL=double",))
