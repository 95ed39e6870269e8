"""Utilisation and the position under the roofline, by the vendor's definitions, from whatever figures a profile has.

With F the Tensor engine's flop (F_t of them transposes), T the total time, P the dense bf16 peak, W the rate of one HBM
stack and H the bytes read from and written to HBM:

    HFU = F / (P T)        MFU = (F - F_t) / (P T)        MBU = H / (W T)        intensity = (F - F_t) / H

An fp32 product holds the array for four bf16 ones, so its flops count four times in the bf16-equivalent F' and its own
roof lies at P F / F'.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.profiling import activity
from trnqc.profiling.machines import MACHINES, Machine
from trnqc.profiling.profile import ENGINES, Profile, Value

MATMULS = ("MATMUL", "MATMULT", "nc_matmul", "nc_matmul_mx")


@dataclass(frozen=True)
class Roofline:
    """intensity: flop/byte; achieved, peak, attainable: flop/s; bandwidth: bytes/s that the roof's slope stands for.

    peak: of the precision mix that ran. bound: ``memory`` left of the ridge, else ``compute``.
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
    """The machine that a profile names as its target, if it is a known one."""
    return MACHINES.get(profile.target or "")


def completed(profile: Profile) -> tuple[dict[str, Value], frozenset[str]]:
    """(all summary fields, names of those computed here). A field that the source gives is never replaced."""
    given = dict(profile.summary)
    made = {k: v for k, v in _from_events(profile).items() if k not in given}
    made |= {k: v for k, v in _from_counts(given | made, machine_of(profile)).items() if k not in given}
    return given | made, frozenset(made)


def _from_events(profile: Profile) -> dict[str, Value]:
    """Times and counts by engine, as means over the cores that the profile shows; none where events are missing."""
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

    made: dict[str, Value] = {}
    flops, time = get("hardware_flops"), get("total_time")
    useful = None if flops is None else flops - (get("transpose_flops") or 0.0)
    hbm = _hbm(get("hbm_read_bytes"), get("hbm_write_bytes"))
    if useful is not None and hbm:
        made["mm_arithmetic_intensity"] = useful / hbm
    if machine is None:
        return made
    made["peak_flops_bandwidth_ratio"] = machine.peak / machine.hbm_stack
    if flops is not None and useful is not None and time:
        model = get("model_flops")
        made["hfu_estimated_percent"] = 100 * flops / (machine.peak * time)
        made["mfu_inst_estimated_percent"] = 100 * useful / (machine.peak * time)
        # Kernels called directly have no graph to count model flops in: the vendor then reports 0.
        made["mfu_estimated_percent"] = 100 * (model or useful) / (machine.peak * time)
        if hbm:
            made["mfu_max_achievable_estimated_percent"] = (
                100 * (model or useful) / hbm * machine.hbm_stack / machine.peak
            )
    if hbm is not None and time:
        made["mbu_estimated_percent"] = 100 * hbm / (machine.hbm_stack * time)
    return made


def _hbm(read: float | None, written: float | None) -> float | None:
    return None if read is None and written is None else (read or 0.0) + (written or 0.0)


def roofline(profile: Profile) -> Roofline | None:
    """None where flops, HBM traffic, time or target are unknown or zero."""
    fields, _ = completed(profile)
    machine = machine_of(profile)
    numbers = [fields.get(name) for name in ("mm_arithmetic_intensity", "hardware_flops", "total_time")]
    if machine is None or any(not isinstance(n, int | float) or n <= 0 for n in numbers):
        return None
    intensity, flops, time = (float(n) for n in numbers)  # type: ignore[arg-type]
    adjusted = profile.number("adjusted_hardware_flops") or flops
    useful = flops - (profile.number("transpose_flops") or 0.0)
    return Roofline(intensity, useful / time, machine.peak * flops / adjusted, machine.hbm_share, machine)
