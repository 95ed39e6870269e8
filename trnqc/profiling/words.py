"""Grouping, names and number formats of fields, shared by the terminal report and the HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterable

from trnqc.profiling.profile import ENGINES

# Fields that exist for every engine.
_PER_ENGINE = ("active_time_percent", "active_time", "instruction_time", "instruction_count")
# Fields of each group in reading order. Fields that belong to no group are listed last.
GROUPS: dict[str, tuple[str, ...]] = {
    "Time": (
        *("total_time", "total_exec_time", "total_active_time", "total_active_time_percent"),
        "neuroncore_cycle_count",
    ),
    "Utilisation": (
        *("mfu_estimated_percent", "mfu_max_achievable_estimated_percent", "mfu_inst_estimated_percent"),
        *("mfu_hlo_estimated_percent", "hfu_estimated_percent", "mbu_estimated_percent", "mbu_min_read_util_percent"),
        "vector_scalar_hidden_percent",
    ),
    "Engines": (
        *(f"{engine}_engine_{field}" for engine in ENGINES for field in _PER_ENGINE),
        *("matmul_instruction_count", "activate_instruction_count", "activate_instruction_time"),
    ),
    "Arithmetic": (
        *("model_flops", "hardware_flops", "adjusted_hardware_flops", "transpose_flops"),
        *("mm_arithmetic_intensity", "peak_flops_bandwidth_ratio"),
    ),
    "Memory": (
        *("hbm_read_bytes", "hbm_write_bytes", "sbuf_read_bytes", "sbuf_write_bytes"),
        *("psum_read_bytes", "psum_write_bytes", "spill_save_bytes", "spill_reload_bytes"),
    ),
    "DMA": (
        *("dma_active_time_percent", "dma_active_time", "dma_transfer_count", "dma_transfer_average_bytes"),
        *("dma_transfer_total_bytes", "dma_queue_count"),
    ),
}
# A value that rounds to 1000 of a unit is shown as 1 of the next unit.
ROUNDS_UP = 1 - 5e-5
# Units of time, and their lengths in ns.
UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))
# Fields that reports show first.
HEADLINES = (
    *("total_time", "tensor_engine_active_time_percent", "vector_engine_active_time_percent"),
    *("scalar_engine_active_time_percent", "gpsimd_engine_active_time_percent", "dma_active_time_percent"),
    *("mfu_estimated_percent", "hfu_estimated_percent", "mbu_estimated_percent", "mm_arithmetic_intensity"),
    *("hbm_read_bytes", "hbm_write_bytes", "vector_scalar_hidden_percent"),
)
# Field -> its label in reports.
LABELS = {
    "total_time": "Total time",
    "tensor_engine_active_time_percent": "Tensor engine active",
    "vector_engine_active_time_percent": "Vector engine active",
    "scalar_engine_active_time_percent": "Scalar engine active",
    "gpsimd_engine_active_time_percent": "GpSimd engine active",
    "dma_active_time_percent": "DMA active",
    "mfu_estimated_percent": "Model flops utilisation",
    "hfu_estimated_percent": "Hardware flops utilisation",
    "mbu_estimated_percent": "HBM bandwidth utilisation",
    "mm_arithmetic_intensity": "Arithmetic intensity",
    "hbm_read_bytes": "Read from HBM",
    "hbm_write_bytes": "Written to HBM",
    "vector_scalar_hidden_percent": "Vector and Scalar time behind Tensor",
}
# Cause of a stall -> its meaning.
CAUSES = {
    "raw": "waits for a value to be written",
    "war": "waits for a reader before overwriting",
    "waw": "waits for an earlier write to the same bytes",
    "psum_bank": "PSUM bank in use",
    "shared_port": "memory port in use by another engine",
    "dma_queue": "DMA queue full",
    "issue": "instruction not issued yet",
    "register": "waits for a register value",
    "semaphore": "waits for a semaphore",
}
# Engine -> its printed name.
ENGINE_WORDS = {
    "tensor": "Tensor",
    "vector": "Vector",
    "scalar": "Scalar",
    "gpsimd": "GpSimd",
    "sync": "Sync",
    "dma": "DMA",
}


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Return names by group in reading order, with the rest under ``Other`` and without empty groups."""
    names = list(names)
    known = {field for fields in GROUPS.values() for field in fields}
    table = {title: [field for field in fields if field in names] for title, fields in GROUPS.items()}
    table["Other"] = [name for name in names if name not in known]
    return {title: fields for title, fields in table.items() if fields}


def engine(name: str) -> str:
    """Return the printed name of an engine or DMA queue."""
    if name in ENGINE_WORDS:
        return ENGINE_WORDS[name]
    return f"DMA {name.removeprefix('dma').strip()}" if name.startswith("dma") else name


def duration(ns: float) -> str:
    """Format a time in ns with four significant digits and a suitable unit."""
    unit, size = next(((u, s) for u, s in UNITS if abs(ns) >= s * ROUNDS_UP), UNITS[-1])
    return f"{_four(ns / size)} {unit}"


def moment(ns: float, step: float, largest: float) -> str:
    """Format a time so that times ``step`` apart differ, in a unit suitable for ``largest``. All are in ns."""
    unit, size = next(((u, s) for u, s in UNITS if abs(largest) >= s * ROUNDS_UP), UNITS[-1])
    digits = max(0, math.ceil(-math.log10(step / size) - 1e-9))
    return f"{ns / size:.{digits}f} {unit}"


def amount(value: float, unit: str, base: float = 1000.0) -> str:
    """Format a value with a unit prefix: kB, MB ... or, for base 1024, KiB, MiB ..."""
    prefixes = ("", "Ki", "Mi", "Gi", "Ti", "Pi") if base == 1024 else ("", "k", "M", "G", "T", "P")
    power = 0
    while abs(value) >= base * ROUNDS_UP and power < len(prefixes) - 1:
        value /= base
        power += 1
    return f"{_four(value)} {prefixes[power]}{unit}"


def value(name: str, number: float | int | str | None) -> str:
    """Format a summary field. Its unit follows from the ending of its name."""
    if number is None:
        return "–"
    if isinstance(number, str):
        return number
    if name.endswith("_percent"):
        return f"{number:.2f} %"
    if name.endswith("_time"):
        return duration(1e9 * number)
    if name.endswith(("_bytes", "_size")):
        return amount(number, "B")
    if name.endswith("_flops"):
        return amount(number, "flop")
    if name.endswith(("_intensity", "_bandwidth_ratio")):
        return f"{_four(number)} flop/B"
    if number == int(number):
        return f"{int(number):,}".replace(",", "\u202f")
    return _four(number)


def _four(number: float) -> str:
    """Return a number with four significant digits, without an exponent between 0.001 and 100 000."""
    if number == 0:
        return "0"
    text = f"{number:.4g}"
    return f"{number:.0f}" if "e+" in text and abs(number) < 1e6 else text
