"""Rates of measured machines, with which a new machine starts until its own are measured."""

from __future__ import annotations

from trnqc.sparse.search.rates import WorkRates

# Bytes of a vector -> rates of a machine with such vectors, in seconds as documented in `WorkRates`: medians of four
# measurements by `run.measured_rates` on one core of an Intel Xeon (Sapphire Rapids), gcc 12.2, on 2026-11-22; with
# AVX-512, and with AVX-512 disabled (CC="gcc -mno-avx512f" OPENBLAS_CORETYPE=Haswell). `ordered_element` is that of an
# AMD EPYC on 2026-11-29, times the ratio of `sorted_element` on both machines.
SHIPPED = {
    64: WorkRates(
        source="shipped with trnqc, of an Intel Xeon (Sapphire Rapids) with AVX-512",
        dense_turn=3.8e-10,
        compressed_turn=1.14e-09,
        intersected_turn=7.1e-09,
        inner_start=3.72e-10,
        inner_dependence=4.87e-11,
        row_element=5.94e-11,
        dot_element=1.07e-10,
        strided_element=4.54e-10,
        gathered_element=6.28e-10,
        scattered_element=5.72e-10,
        cleared_element=3.92e-11,
        listed_update=1.59e-10,
        hashed_update=3.23e-09,
        ordered_element=4.6e-09,
        sorted_element=2.54e-08,
        appended_element=2.5e-09,
        allocated_element=1.79e-10,
        near_read=2.46e-12,
        near_update=6.83e-12,
        far=2.02e-11,
        far_scattered_read=3.47e-11,
        far_scattered_update=1.12e-10,
        matrix_product=4.22e-11,
    ),
    32: WorkRates(
        source="shipped with trnqc, of an Intel Xeon (Sapphire Rapids) with AVX2",
        dense_turn=3.73e-10,
        compressed_turn=6.79e-10,
        intersected_turn=6.77e-09,
        inner_start=2.69e-10,
        inner_dependence=0,
        row_element=7.79e-11,
        dot_element=7.3e-11,
        strided_element=3.63e-10,
        gathered_element=6.91e-10,
        scattered_element=6.04e-10,
        cleared_element=3.96e-11,
        listed_update=2.68e-10,
        hashed_update=3.38e-09,
        ordered_element=4.4e-09,
        sorted_element=2.4e-08,
        appended_element=2.74e-09,
        allocated_element=1.78e-10,
        near_read=3.91e-12,
        near_update=7.47e-12,
        far=2.03e-11,
        far_scattered_read=3.55e-11,
        far_scattered_update=1.15e-10,
        matrix_product=5.68e-11,
    ),
}


def shipped_rates(vector_bytes: int) -> WorkRates:
    """Return the rates of the measured machine whose vectors are closest in length to `vector_bytes`."""
    return SHIPPED[min(SHIPPED, key=lambda length: abs(length - vector_bytes))]
