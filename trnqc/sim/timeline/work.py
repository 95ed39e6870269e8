"""The time for which each instruction occupies its engine, from the table of ``costs``; waits are not considered."""

from __future__ import annotations

from typing import Any, NamedTuple

from trnqc.sim.timeline.record import Operand, Step

# Operand types that can use the double-row mode of TensorE.
_FP8 = ("float8_e4m3", "float8_e5m2", "float8_e4m3fn")
# Instructions that read two full operands, one element per cycle in total.
_TWICE = ("tensor_tensor", "scalar_tensor_tensor", "tensor_tensor_scan", "select_reduce", "tensor_copy_predicated")
# Instructions that read out the lane registers of a reduction at their end.
_LANES_OUT = ("activation_reduce", "tensor_scalar_reduce")
# Instructions with a fast mode for 16-bit data.
_FAST = ("tensor_copy", "tensor_scalar", "memset")
# Weight of fp32 flops in the vendor's adjusted_hardware_flops.
_FP32_RATE = 4


class Work(NamedTuple):
    """Time (ns) and traffic of one instruction: `busy` on the engine, `late` from then until the results are in memory,
    and `weights` for the LoadStationary that precedes a matmul.

    `flops` of a matmul are plain, and `adjusted` weights fp32 by its number of passes. `moved` are the bytes of a DMA,
    `rows` the contiguous runs that they form, and `shares` (DMA engine, time in ns) for each DMA engine that takes
    part.
    """

    busy: float
    late: float
    weights: float = 0.0
    flops: float = 0.0
    adjusted: float = 0.0
    moved: int = 0
    shares: tuple[tuple[int, float], ...] = ()
    rows: int = 0


class WorkTable:
    """The work of instructions for one set of constants. Equal instructions are evaluated once."""

    def __init__(self, constants: dict[str, float]):
        self.c = constants
        self._known: dict[tuple[Any, ...], Work] = {}

    def of(self, step: Step) -> Work:
        facts = [(o.space, o.p0, o.p1, o.dtype, o.run, o.far, o.shape, o.dynamic) for o in step.outputs + step.inputs]
        key = (step.op, step.engine, len(step.outputs), step.indices, *facts)
        work = self._known.get(key)
        if work is None:
            work = self._known[key] = self._measure(step)
        return work

    def _measure(self, step: Step) -> Work:
        if step.engine == "dma":
            return self._dma(step)
        if step.engine == "tensor":
            return self._tensor(step)
        if step.engine == "sync":
            return self._sync(step)
        return self._elementwise(step)

    # -- TensorE ------------------------------------------------------------------------------------------------

    def _tensor(self, step: Step) -> Work:
        c, ghz = self.c, self.c["tensor_ghz"]
        dst = step.outputs[0]
        if step.op != "nc_matmul":
            data = step.inputs[0]
            passes = c["fp32_transpose_passes"] if data.dtype == "float32" else 1
            cycles = max(c["matmul_min_cycles"], dst.width) * passes
            weights = c["weights_cycles"] * passes / ghz
            flops = 2.0 * data.rows * data.width * dst.width
            return Work(cycles / ghz, c["matmul_latency_cycles"] / ghz, weights, 0.0, flops * passes)
        stationary, moving = step.inputs[0], step.inputs[1]
        passes = c["fp32_passes"] if stationary.dtype == "float32" or moving.dtype == "float32" else 1
        columns = dst.width
        cycles = max(min(c["matmul_min_cycles"], dst.rows), columns) * passes
        if moving.dtype in _FP8 and stationary.width == 2 * dst.rows:
            flops = 4.0 * stationary.rows * dst.rows * columns  # double-row mode: two contraction rows per partition
        else:
            flops = 2.0 * stationary.rows * dst.rows * columns
        adjusted = flops * (_FP32_RATE if passes > 1 else 1)
        weights = c["weights_cycles"] * passes / ghz
        return Work(cycles / ghz, c["matmul_latency_cycles"] / ghz, weights, flops, adjusted)

    # -- Vector, Scalar, GpSimd ---------------------------------------------------------------------------------

    def _elementwise(self, step: Step) -> Work:
        c, engine = self.c, step.engine
        ghz = c[f"{engine}_ghz"]
        tiles = [o for o in step.outputs + step.inputs if o.space != "hbm"]
        n = max((o.width for o in tiles), default=1)
        cycles = n * self._rate(step, tiles)
        if any(o.far > c["far_stride_bytes"] and o.width > 1 for o in tiles):
            cycles *= 2
        if step.op in _LANES_OUT or (step.op == "activation" and len(step.outputs) > 1):
            cycles += c["accumulator_cycles"]
        cycles = max(cycles, c["min_issue_cycles"])
        if any(o.dynamic for o in tiles):
            cycles = max(cycles, c["dynamic_cycles"])
        if engine == "gpsimd":
            cycles += c["gpsimd_start_cycles"]
        elif n < 128:
            cycles += c["short_cycles"]
        return Work(cycles / ghz, c["access_cycles"] / ghz)

    def _rate(self, step: Step, tiles: list[Operand]) -> float:
        """Return the number of cycles per element."""
        op, c = step.op, self.c
        if op == "reciprocal":
            return 8.0
        if op == "bn_aggr":
            return 13.0 / 3.0
        if op == "tensor_partition_reduce":
            return c["gpsimd_partition_rate"]
        small = all(o.itemsize <= 2 for o in tiles)
        if op in _TWICE:
            full = [o for o in step.inputs if o.width > 1]
            relieved = op == "tensor_tensor" and any(o.space == "psum" for o in full)
            narrow = small and op != "tensor_tensor_scan"
            return 1.0 if relieved or narrow or len(full) < 2 else 2.0
        if op == "tensor_reduce":
            return 0.5 if small else 1.0
        if op in _FAST and c["fast_modes"] and step.engine == "vector" and small:
            plain = all(o.space == "sbuf" and o.far <= o.itemsize for o in tiles)
            return 0.25 if plain else 0.5
        return 1.0

    # -- DMA and registers --------------------------------------------------------------------------------------

    def _dma(self, step: Step) -> Work:
        c = self.c
        sides = step.outputs + step.data
        chip = next((o for o in sides if o.space != "hbm"), None)
        src = step.data[0] if step.data else step.outputs[0]
        dst = step.outputs[0]
        copies = max(1, len(step.data)) if step.op == "dma_compute" else 1
        rate = c["dma_bytes_per_ns"] * (c["dma_transpose_rate"] if step.op == "dma_transpose" else 1.0)
        if chip is None:
            total = dst.width * dst.itemsize
            run = max(1, min(src.run, dst.run))
            share = copies * (total / rate + -(-total // run) * c["dma_row_ns"]) / c["dma_engines"]
            shares = tuple((e, share) for e in range(int(c["dma_engines"])))
            return Work(0.0, 0.0, moved=total * copies, shares=shares, rows=-(-total // run))
        row = chip.width * chip.itemsize
        runs = [max(1, o.run) for o in sides if not (step.op == "dma_transpose" and o.space == "hbm")]
        pieces = max(1, -(-row // min(runs)))  # contiguous runs per partition
        joined = 1  # number of partitions that are contiguous in HBM
        if min(runs) >= row >= c["dma_join_bytes"] and step.op != "dma_transpose":
            joined = max(1, min((o.run for o in sides if o.space == "hbm"), default=row) // row)
        lanes_shares: list[tuple[int, float]] = []
        rows = 0
        span = int(c["dma_partitions"])
        for e in range(int(c["dma_engines"])):
            lanes = min(chip.p1, (e + 1) * span) - max(chip.p0, e * span)
            if lanes > 0:
                mine = -(-lanes // joined) * pieces
                rows += mine
                lanes_shares.append((e, copies * (lanes * row / rate + mine * c["dma_row_ns"])))
        moved = (chip.p1 - chip.p0) * row * copies
        return Work(0.0, 0.0, moved=moved, shares=tuple(lanes_shares), rows=rows)

    def _sync(self, step: Step) -> Work:
        c = self.c
        if step.op in ("register_load", "scalar_load"):
            return Work(c["register_hbm_ns"] if step.inputs[0].space == "hbm" else c["register_load_ns"], 0.0)
        return Work(c["register_move_cycles"] / c["sync_ghz"], 0.0)
