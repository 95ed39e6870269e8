"""Totals of a timeline under the field names of the vendor's profiler.

Times are in seconds; percentages refer to the total time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trnqc.sim.machine.machine import Trace
from trnqc.sim.machine.targets import PARTITIONS
from trnqc.sim.timeline.totals import ENGINES, SCALAR, TENSOR, VECTOR

_WHO = (*ENGINES, "dma")


def stalls_of(sums: Mapping[Any, float]) -> dict[str, dict[str, float]]:
    """Return the idle time in ns by engine and cause."""
    stalls: dict[str, dict[str, float]] = {}
    for key, value in sums.items():
        if isinstance(key, tuple) and key[0] == "stall":
            stalls.setdefault(_WHO[key[1]], {})[key[2]] = value
    return stalls


def waits_of(sums: Mapping[Any, float]) -> dict[str, dict[str, float]]:
    """Return the idle time in ns by engine and by cause with the awaited engine, for example "raw on tensor"."""
    waits: dict[str, dict[str, float]] = {}
    for key, value in sums.items():
        if isinstance(key, tuple) and key[0] == "waits":
            waits.setdefault(_WHO[key[1]], {})[f"{key[2]} on {_WHO[key[3]]}"] = value
    return waits


def summarise(
    sums: Mapping[Any, float], total_ns: float, c: Mapping[str, float], trace: Trace
) -> dict[str, float | int | str]:
    """Return the summary of a timeline from the sums of a `Totals` and the time in ns without launch overhead.

    The following fields are not part of the vendor's profiler: ``measurement``; ``{engine}_engine_busy_time`` and its
    percentage, which count the issue time only, while the active time also includes writing the results to memory;
    ``overlap_time``, in which TensorE is busy together with VectorE or ScalarE; ``launch_overhead`` and
    ``total_time_with_launch``. `c` are from `constants_for`; `trace` has instruction counts and high-water marks.
    """
    total = max(total_ns, 1e-9)
    figures: dict[str, float | int | str] = {"measurement": "modelled", "total_time": total * 1e-9}
    for me, name in enumerate(ENGINES):
        active, busy = sums.get(("active", me), 0.0), sums.get(("busy", me), 0.0)
        figures[f"{name}_engine_active_time"] = active * 1e-9
        figures[f"{name}_engine_active_time_percent"] = 100 * active / total
        figures[f"{name}_engine_busy_time"] = busy * 1e-9
        figures[f"{name}_engine_busy_time_percent"] = 100 * busy / total
        figures[f"{name}_engine_instruction_count"] = int(sums.get(("count", me), 0))
    figures |= _arithmetic(sums, total, c, trace)
    figures |= _traffic(sums, total, c)
    tensor, others = sums.get(("busy", TENSOR), 0.0), sums.get("others", 0.0)
    overlap = sums.get("overlap", 0.0)
    figures["overlap_time"] = overlap * 1e-9
    figures["overlap_time_percent"] = 100 * overlap / max(1e-9, min(tensor, others)) if tensor and others else 0.0
    figures["binding_engine"] = binding(figures)
    figures["sbuf_high_water_bytes"] = trace.sbuf_high_water
    figures["psum_high_water_bytes"] = trace.psum_high_water
    overhead = c["launch_ns"] + c["program_start_ns"] + c["program_stop_ns"]
    figures["launch_overhead"] = overhead * 1e-9
    figures["total_time_with_launch"] = (total + overhead) * 1e-9
    return figures


def binding(summary: Mapping[str, Any]) -> str:
    """Return the engine with the longest busy time; "dma" stands for the DMA engines."""
    names = [ENGINES[TENSOR], ENGINES[VECTOR], ENGINES[SCALAR], ENGINES[3]]
    times = {name: float(summary[f"{name}_engine_busy_time"]) for name in names}
    times["dma"] = float(summary["dma_engine_busy_time"])
    return max(times, key=lambda name: times[name])


def _arithmetic(
    sums: Mapping[Any, float], total: float, c: Mapping[str, float], trace: Trace
) -> dict[str, float | int]:
    peak = 2.0 * PARTITIONS * PARTITIONS * c["tensor_ghz"]  # flop/ns of 16-bit operands
    flops, adjusted = sums.get("flops", 0.0), sums.get("adjusted", 0.0)
    moved = sums.get(("read", "hbm"), 0.0) + sums.get(("write", "hbm"), 0.0)
    return {
        "model_flops": flops,
        "hardware_flops": flops,
        "adjusted_hardware_flops": adjusted,
        "matmul_instruction_count": int(trace.executed.get("nc_matmul", 0)),
        "activate_instruction_count": int(
            trace.executed.get("activation", 0) + trace.executed.get("activation_reduce", 0)
        ),
        "mfu_estimated_percent": 100 * flops / (peak * total),
        "hfu_estimated_percent": 100 * adjusted / (peak * total),
        "mm_arithmetic_intensity": flops / moved if moved else 0.0,
        "peak_flops_bandwidth_ratio": peak / c["hbm_bytes_per_ns"],
        "weights_load_time": sums.get("weights", 0.0) * 1e-9,
    }


def _traffic(sums: Mapping[Any, float], total: float, c: Mapping[str, float]) -> dict[str, float | int]:
    lanes = [sums.get(("dma", lane), 0.0) for lane in range(int(c["dma_engines"]))]
    traffic: dict[str, float | int] = {}
    for space in ("hbm", "sbuf", "psum"):
        for way in ("read", "write"):
            traffic[f"{space}_{way}_bytes"] = int(sums.get((way, space), 0.0))
    transfers, moved = sums.get("transfers", 0.0), sums.get("moved", 0.0)
    return traffic | {
        "dma_active_time": sums.get("dma_active", 0.0) * 1e-9,
        "dma_active_time_percent": 100 * sums.get("dma_active", 0.0) / total,
        "dma_packet_time": sum(lanes) * 1e-9,
        "dma_engine_busy_time": max(lanes, default=0.0) * 1e-9,
        "dma_transfer_count": int(transfers),
        "dma_transfer_average_bytes": moved / transfers if transfers else 0.0,
        "dma_queue_count": 2,
        "mbu_estimated_percent": 100
        * (traffic["hbm_read_bytes"] + traffic["hbm_write_bytes"])
        / (c["hbm_bytes_per_ns"] * total),
        "spill_save_bytes": 0,
        "spill_reload_bytes": 0,
    }
