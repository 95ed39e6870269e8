"""What an instruction costs: every number of the timeline, by generation, with its source. The only table of them.

Sources: "documented" is the vendor's published architecture, performance and DMA guides; "older documentation" is the
cost formulas of releases before NKI 0.2; "published profile" was read off a profile that the vendor's guides show;
"assumed" is nobody's figure. N is elements per partition, cycles are of the executing engine's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trnqc.sim.faults import NkiValidationError

DOC, OLD, SEEN, ASSUMED = "documented", "older documentation", "published profile", "assumed"


@dataclass(frozen=True)
class Constant:
    """One number for each of trn1, trn2, trn3."""

    name: str
    values: tuple[float, float, float]
    unit: str
    source: str
    meaning: str

    @property
    def assumed(self) -> bool:
        return self.source == ASSUMED


def _same(name: str, value: float, unit: str, source: str, meaning: str) -> Constant:
    return Constant(name, (value, value, value), unit, source, meaning)


TABLE = (
    Constant("tensor_ghz", (2.8, 2.4, 2.4), "GHz", DOC, "clock of TensorE"),
    Constant("vector_ghz", (1.12, 0.96, 1.2), "GHz", DOC, "clock of VectorE"),
    Constant("scalar_ghz", (1.4, 1.2, 1.2), "GHz", DOC, "clock of ScalarE"),
    Constant("gpsimd_ghz", (1.4, 1.2, 1.2), "GHz", DOC, "clock of GpSimd"),
    Constant("sync_ghz", (1.4, 1.2, 1.2), "GHz", ASSUMED, "clock of the sequencer that starts DMA; the base clock"),
    _same("matmul_min_cycles", 64, "cycles", DOC, "shortest MultiplyMoving; else one cycle a moving column"),
    _same("fp32_passes", 4, "passes", DOC, "passes of an fp32 multiplication"),
    Constant("fp32_transpose_passes", (4, 2, 2), "passes", OLD, "passes of an fp32 transpose on TensorE"),
    _same("weights_cycles", 32, "cycles", DOC, "LoadStationary of 128 rows, a pass; behind the multiply before it"),
    _same("matmul_latency_cycles", 400, "cycles", SEEN, "from the last moving column to its sums in PSUM"),
    _same("min_issue_cycles", 64, "cycles", OLD, "shortest Vector, Scalar or GpSimd instruction"),
    _same("short_cycles", 100, "cycles", DOC, "added to Vector and Scalar instructions with N < 128"),
    _same("dependent_cycles", 100, "cycles", DOC, "added where an instruction reads what its own engine wrote before"),
    _same("access_cycles", 60, "cycles", DOC, "from an engine's last element to its result in memory"),
    _same("accumulator_cycles", 64, "cycles", DOC, "reading the lane registers out"),
    _same("gpsimd_start_cycles", 150, "cycles", OLD, "added to every GpSimd instruction"),
    _same("gpsimd_partition_rate", 16, "cycles", ASSUMED, "tensor_partition_reduce, cycles an element of N"),
    _same("dynamic_cycles", 600, "cycles", DOC, "shortest compute instruction with a runtime address"),
    Constant("fast_modes", (0, 1, 1), "flag", DOC, "16-bit copies and tensor_scalar at 2 or 4 elements a cycle"),
    _same("far_stride_bytes", 16, "bytes", DOC, "innermost stride beyond which SBUF and PSUM run at half rate"),
    Constant("vector_gpsimd_port", (1, 0, 0), "flag", DOC, "VectorE and GpSimd take turns on SBUF"),
    Constant("vector_scalar_port", (1, 0, 0), "flag", DOC, "VectorE and ScalarE take turns on PSUM"),
    _same("psum_bank_exclusive", 1, "flag", ASSUMED, "one engine at a time in a PSUM bank"),
    _same("semaphore_ns", 50, "ns", ASSUMED, "one engine's signal to another engine's start"),
    _same("dma_engines", 16, "engines", DOC, "DMA engines of a core"),
    _same("dma_partitions", 8, "partitions", DOC, "partitions that one DMA engine serves"),
    Constant("dma_bytes_per_ns", (17, 23, 33), "B/ns", DOC, "rate of one DMA engine on long rows"),
    _same("dma_row_ns", 5, "ns", SEEN, "added for every contiguous run of bytes of a DMA engine's share"),
    _same("dma_join_bytes", 256, "bytes", ASSUMED, "rows of partitions from here on that adjoin in HBM are one run"),
    _same("dma_start_ns", 1300, "ns", DOC, "from the trigger to the first byte of the last lane"),
    _same("dma_finish_ns", 300, "ns", SEEN, "from the last byte to the start of what waited for it"),
    _same("dma_generate_ns", 600, "ns", DOC, "descriptors of one DMA instruction, lane after lane"),
    _same("dma_generators", 1, "units", SEEN, "descriptor generators that work at once"),
    _same("dma_issue_cycles", 64, "cycles", ASSUMED, "of the sequencer for one DMA trigger"),
    _same("dma_transpose_rate", 0.9, "of rate", DOC, "dma_transpose against dma_copy, at best"),
    _same("register_load_ns", 150, "ns", ASSUMED, "one element of SBUF into a register"),
    _same("register_hbm_ns", 2000, "ns", ASSUMED, "one element of HBM into a register"),
    _same("register_move_cycles", 20, "cycles", ASSUMED, "a constant or a register into a register"),
    _same("loop_cycles", 100, "cycles", ASSUMED, "of every engine for one turn of a device loop"),
    _same("loop_barrier", 0, "flag", ASSUMED, "all engines meet at each turn of a device loop"),
    _same("rotate_addresses", 1, "flag", ASSUMED, "fresh tiles go round the memory before any byte is used again"),
    Constant("hbm_bytes_per_ns", (410, 362, 600), "B/ns", DOC, "a core's share of the HBM rate; for utilisation only"),
    _same("program_start_ns", 17_000, "ns", SEEN, "set-up on the device before the first instruction, per launch"),
    _same("program_stop_ns", 5_000, "ns", SEEN, "tear-down after the last instruction, per launch"),
    _same("launch_ns", 437_000, "ns", ASSUMED, "host time of one synchronous launch; one indirect published figure"),
)  # fmt: skip

_ORDER = ("trn1", "trn2", "trn3")


def constants_for(target: str, overrides: Mapping[str, float] | None = None) -> dict[str, float]:
    """The table's column for a target, with ``overrides``; an unknown name or a negative value is an error."""
    values = {c.name: float(c.values[_ORDER.index(target)]) for c in TABLE}
    for name, value in (overrides or {}).items():
        if name not in values:
            raise NkiValidationError(f"timeline constant must be one of {', '.join(sorted(values))}; got {name!r}")
        if not value >= 0:
            raise NkiValidationError(f"timeline constant {name} must not be negative, got {value!r}")
        values[name] = float(value)
    return values


def listing(target: str) -> str:
    """The table as text, one line a constant."""
    column = _ORDER.index(target)
    return "\n".join(f"{c.name:22} {c.values[column]:>9g} {c.unit:12} {c.source:20} {c.meaning}" for c in TABLE)
