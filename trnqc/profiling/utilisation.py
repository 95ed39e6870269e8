"""Utilisation and roofline position, by the vendor's definitions, from the figures that a profile contains.

With F the Tensor engine's flop (F_t of them transposes), T the total time, P the dense bf16 peak, W the rate of one HBM
stack and H the bytes read from and written to HBM:

    HFU = F / (P T)        MFU = (F - F_t) / (P T)        MBU = H / (W T)        intensity = (F - F_t) / H

An fp32 product occupies the array four times as long as a bf16 product. Its flops therefore count four times in the
bf16-equivalent F', and its roof is P F / F'.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.profiling import activity
from trnqc.profiling.machines import MACHINES, Machine
from trnqc.profiling.profile import ENGINES, Profile, Value

# Names of matmul instructions in the formats that are read.
MATMULS = ("MATMUL", "MATMULT", "nc_matmul", "nc_matmul_mx")


@dataclass(frozen=True)
class Roofline:
    """The position of a profile in the roofline model: rates in flop/s, intensity and ridge in flop/byte.

    ``peak`` is that of the mix of precisions that ran, `bandwidth` the slope of the roof in bytes/s, which meets the
    peak at the ridge; `bound` is "memory" below the ridge, otherwise "compute".
    """

    intensity: float
    achieved: float
    peak: float
    bandwidth: float
    machine: Machine

    @property
    def ridge(self) -> float:
        return self.peak / self.bandwidth

    @property
    def bound(self) -> str:
        return "memory" if self.intensity < self.ridge else "compute"

    @property
    def attainable(self) -> float:
        return min(self.peak, self.bandwidth * self.intensity)

    @property
    def reached_percent(self) -> float:
        return 100 * self.achieved / self.attainable


def machine_of(profile: Profile) -> Machine | None:
    """Return the machine of the target of a profile, or None if the target is unknown."""
    return MACHINES.get(profile.target or "")


def completed(profile: Profile) -> tuple[dict[str, Value], frozenset[str]]:
    """Return all summary fields, and the names of those that are computed here.

    A field that the source states is never replaced.
    """
    stated = dict(profile.summary)
    computed = {k: v for k, v in _from_events(profile).items() if k not in stated}
    computed |= {k: v for k, v in _from_counts(stated | computed, machine_of(profile)).items() if k not in stated}
    return stated | computed, frozenset(computed)


def _from_events(profile: Profile) -> dict[str, Value]:
    """Return times and counts by engine, averaged over the cores; empty if events are missing."""
    start, end = profile.span
    if end <= start or activity.unlisted(profile):
        return {}
    cores = len(profile.cores)
    fields: dict[str, Value] = {"total_time": (end - start) * 1e-9}
    rows = activity.activities(profile)
    for engine in ENGINES:
        mine = [row for row in rows if row.engine == engine]
        if mine:
            fields |= {
                f"{engine}_engine_instruction_time": sum(row.total for row in mine) * 1e-9 / cores,
                f"{engine}_engine_active_time": sum(row.active for row in mine) * 1e-9 / cores,
                f"{engine}_engine_active_time_percent": sum(row.percent for row in mine) / cores,
                f"{engine}_engine_instruction_count": sum(row.count for row in mine),
            }
    dma = [row for row in rows if row.engine == activity.DMA]
    if dma:
        fields |= {
            "dma_active_time": sum(row.active for row in dma) * 1e-9 / cores,
            "dma_active_time_percent": sum(row.percent for row in dma) / cores,
        }
    multiplies = sum(row.count for row in activity.ops(profile) if row.op in MATMULS and row.engine == "tensor")
    return fields | ({"matmul_instruction_count": multiplies} if multiplies else {})


def _from_counts(fields: dict[str, Value], machine: Machine | None) -> dict[str, Value]:
    def get(name: str) -> float | None:
        value = fields.get(name)
        return None if value is None or isinstance(value, str) else float(value)

    computed: dict[str, Value] = {}
    flops, time = get("hardware_flops"), get("total_time")
    useful = None if flops is None else flops - (get("transpose_flops") or 0.0)
    hbm = _hbm(get("hbm_read_bytes"), get("hbm_write_bytes"))
    if useful is not None and hbm:
        computed["mm_arithmetic_intensity"] = useful / hbm
    if machine is None:
        return computed
    computed["peak_flops_bandwidth_ratio"] = machine.peak / machine.hbm_stack
    if flops is not None and useful is not None and time:
        model = get("model_flops")
        computed["hfu_estimated_percent"] = 100 * flops / (machine.peak * time)
        computed["mfu_inst_estimated_percent"] = 100 * useful / (machine.peak * time)
        # The vendor reports 0 model flops for kernels that are called directly, because they have no graph.
        computed["mfu_estimated_percent"] = 100 * (model or useful) / (machine.peak * time)
        if hbm:
            computed["mfu_max_achievable_estimated_percent"] = (
                100 * (model or useful) / hbm * machine.hbm_stack / machine.peak
            )
    if hbm is not None and time:
        computed["mbu_estimated_percent"] = 100 * hbm / (machine.hbm_stack * time)
    return computed


def _hbm(read: float | None, written: float | None) -> float | None:
    return None if read is None and written is None else (read or 0.0) + (written or 0.0)


def roofline(profile: Profile) -> Roofline | None:
    """Return the roofline position, or None if flops, HBM traffic, time or target are unknown or zero."""
    fields, _ = completed(profile)
    machine = machine_of(profile)
    numbers = [fields.get(name) for name in ("mm_arithmetic_intensity", "hardware_flops", "total_time")]
    if machine is None or any(not isinstance(n, int | float) or n <= 0 for n in numbers):
        return None
    intensity, flops, time = (float(n) for n in numbers)  # type: ignore[arg-type]
    adjusted = profile.number("adjusted_hardware_flops") or flops
    useful = flops - (profile.number("transpose_flops") or 0.0)
    return Roofline(intensity, useful / time, machine.peak * flops / adjusted, machine.hbm_share, machine)
