"""The costs of instructions: every constant of the timeline model, by generation, with its unit and source.

The sources are:

- "documented": the vendor's published architecture, performance and DMA guides;
- "older documentation": the cost formulas of releases before NKI 0.2;
- "published profile": read off a profile that the vendor's guides show;
- "assumed": our own estimate, without a published source.

N is the number of elements per partition. Cycles are those of the executing engine's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trnqc.sim.machine.faults import NkiValidationError

DOC, OLD, SEEN, ASSUMED = "documented", "older documentation", "published profile", "assumed"


@dataclass(frozen=True)
class Constant:
    """A constant of the model; ``values`` holds one number for each of trn1, trn2 and trn3."""

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
    Constant("sync_ghz", (1.4, 1.2, 1.2), "GHz", ASSUMED, "clock of the sequencer that starts DMA (the base clock)"),
    _same("matmul_min_cycles", 64, "cycles", DOC, "shortest MultiplyMoving; otherwise one cycle per moving column"),
    _same("fp32_passes", 4, "passes", DOC, "passes of one fp32 matmul on TensorE"),
    Constant("fp32_transpose_passes", (4, 2, 2), "passes", OLD, "passes of one fp32 transpose on TensorE"),
    _same(
        "transpose_identity",
        0,
        "flag",
        DOC,
        "1: transposes on TensorE make an identity on GpSimd (source of the compiler, KLR); TRNQC_NKI=0.6 sets it",
    ),
    _same("weights_cycles", 32, "cycles", DOC, "LoadStationary of 128 rows per pass; overlaps the previous multiply"),
    _same("matmul_latency_cycles", 400, "cycles", SEEN, "from the last moving column until its sums are in PSUM"),
    _same("min_issue_cycles", 64, "cycles", OLD, "shortest Vector, Scalar or GpSimd instruction"),
    _same("short_cycles", 100, "cycles", DOC, "added to Vector and Scalar instructions with N < 128"),
    _same("dependent_cycles", 100, "cycles", DOC, "added where an instruction reads what its own engine wrote before"),
    _same("access_cycles", 60, "cycles", DOC, "from an engine's last element until its result is in memory"),
    _same("accumulator_cycles", 64, "cycles", DOC, "reading out the lane registers of a reduction"),
    _same("gpsimd_start_cycles", 150, "cycles", OLD, "added to every GpSimd instruction"),
    _same("gpsimd_partition_rate", 16, "cycles", ASSUMED, "tensor_partition_reduce, per element of N"),
    _same("dynamic_cycles", 600, "cycles", DOC, "shortest compute instruction with a runtime address"),
    Constant(
        "fast_modes", (0, 1, 1), "flag", DOC, "1: 16-bit copies and tensor_scalar run at 2 or 4 elements per cycle"
    ),
    _same("far_stride_bytes", 16, "bytes", DOC, "innermost stride above which SBUF and PSUM run at half rate"),
    Constant("vector_gpsimd_port", (1, 0, 0), "flag", DOC, "1: VectorE and GpSimd share one port to SBUF"),
    Constant("vector_scalar_port", (1, 0, 0), "flag", DOC, "1: VectorE and ScalarE share one port to PSUM"),
    _same("psum_bank_exclusive", 1, "flag", ASSUMED, "1: only one engine at a time accesses a PSUM bank"),
    _same("semaphore_ns", 50, "ns", ASSUMED, "from the signal of one engine to the start of another"),
    _same("dma_engines", 16, "engines", DOC, "number of DMA engines of a core"),
    _same("dma_partitions", 8, "partitions", DOC, "number of partitions that one DMA engine serves"),
    Constant("dma_bytes_per_ns", (17, 23, 33), "B/ns", DOC, "rate of one DMA engine on long rows"),
    _same("dma_row_ns", 5, "ns", SEEN, "added for every contiguous run of bytes in the share of a DMA engine"),
    _same(
        "dma_join_bytes", 256, "bytes", ASSUMED, "partition rows at least this long that adjoin in HBM count as one run"
    ),
    _same("dma_start_ns", 1300, "ns", DOC, "from the trigger to the first byte of the last lane"),
    _same("dma_finish_ns", 300, "ns", SEEN, "from the last byte to the start of a waiting instruction"),
    _same("dma_generate_ns", 600, "ns", DOC, "generation of the descriptors of one DMA instruction, lane after lane"),
    _same("dma_generators", 1, "units", SEEN, "number of descriptor generators that work in parallel"),
    Constant(
        "hardware_dge",
        (0, 1, 1),
        "flag",
        DOC,
        "1: hardware makes descriptors for scalar offsets; for gathers it never does",
    ),
    _same(
        "software_dge_ns",
        0,
        "ns",
        ASSUMED,
        "time of GpSimd for the descriptors of a DMA that hardware does not make; no source has it, 0 counts none",
    ),
    _same("dma_issue_cycles", 64, "cycles", ASSUMED, "time of the sequencer per DMA trigger"),
    _same("dma_transpose_rate", 0.9, "of rate", DOC, "highest rate of dma_transpose relative to dma_copy"),
    _same("register_load_ns", 150, "ns", ASSUMED, "load of one element from SBUF into a register"),
    _same("register_hbm_ns", 2000, "ns", ASSUMED, "load of one element from HBM into a register"),
    _same("register_move_cycles", 20, "cycles", ASSUMED, "move of a constant or a register into a register"),
    _same("loop_cycles", 100, "cycles", ASSUMED, "overhead of every engine per pass of a device loop"),
    _same("loop_barrier", 0, "flag", ASSUMED, "1: all engines synchronise after each pass of a device loop"),
    _same("rotate_addresses", 1, "flag", ASSUMED, "1: new tiles cycle through the memory before any byte is reused"),
    Constant(
        "hbm_bytes_per_ns", (410, 362, 600), "B/ns", DOC, "share of one core in the HBM rate; used for utilisation only"
    ),
    _same("program_start_ns", 17_000, "ns", SEEN, "set-up on the device before the first instruction of a launch"),
    _same("program_stop_ns", 5_000, "ns", SEEN, "tear-down on the device after the last instruction of a launch"),
    _same("launch_ns", 437_000, "ns", ASSUMED, "host time of one synchronous launch; one indirect published figure"),
)

_ORDER = ("trn1", "trn2", "trn3")


def constants_for(target: str, overrides: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the constants of a target ("trn1", "trn2" or "trn3") by name, of which ``overrides`` replaces some.

    Raises NkiValidationError if ``overrides`` names an unknown constant or holds a negative value.
    """
    values = {c.name: float(c.values[_ORDER.index(target)]) for c in TABLE}
    for name, value in (overrides or {}).items():
        if name not in values:
            raise NkiValidationError(f"timeline constant must be one of {', '.join(sorted(values))}; got {name!r}")
        if not value >= 0:
            raise NkiValidationError(f"timeline constant {name} must not be negative, got {value!r}")
        values[name] = float(value)
    return values


def listing(target: str) -> str:
    """Return the table of a target as text, one line per constant."""
    column = _ORDER.index(target)
    return "\n".join(f"{c.name:22} {c.values[column]:>9g} {c.unit:12} {c.source:20} {c.meaning}" for c in TABLE)
