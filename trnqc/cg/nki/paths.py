"""The paths of a problem as blocks of terms for the NKI kernels, with their coupling matrices.

    TPProblem -> units (one slot of z, some of its channels) -> blocks that fit PSUM -> terms, results, couplings

The kernels take x and z with the channel as the fastest index of a slot (ir_mul), and y with the component (mul_ir).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np

from nki_kernels.cg.blocks import COLUMNS, RUN, P, range_of
from nki_kernels.cg.memory import fits, sbuf_bytes, usable_bytes, widest_window
from trnqc.cg.problem.instructions import PathInstruction
from trnqc.cg.problem.irreps import Irreps
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.coupling import by_pair
from trnqc.errors import MemoryLimit, UnsupportedError, UnsupportedMode

# Integers that describe a term and a result; nki_kernels/cg/blocks.py names them.
Term = tuple[int, ...]
Result = tuple[int, ...]
# Coefficients of a path: degrees and path weight.
Key = tuple[tuple[int, int, int], float]
# Most coupling matrices of a block; each takes 512 bytes of SBUF on every partition.
MATRICES = 64


@dataclass(frozen=True)
class PathBlock:
    """The part of a tensor product that one launch computes.

    Terms are sorted by their channel of y; no other block has these slots of z, or parts of their channels. `paths` has
    degrees and path weight of the coupling matrices for each set of components i.
    """

    terms: tuple[Term, ...]
    results: tuple[Result, ...]
    paths: tuple[Key, ...]

    @property
    def matrices(self) -> int:
        """Number of coupling matrices."""
        return sum(2 * degrees[0] + 1 for degrees, _ in self.paths)

    def couplings(self, window: int) -> np.ndarray:
        """Return K_i = C[i] ⊗ 1 of all paths, fp32 [matrices, 128, 128], for windows of this many receivers."""
        matrices = np.zeros((self.matrices, P, P), np.float32)
        first = 0
        for degrees, weight in self.paths:
            for (i, k), coefficients in by_pair(degrees).items():
                for j, c in coefficients:
                    rows, columns = (slice(a * window, (a + 1) * window) for a in (j, k))
                    matrices[first + i, rows, columns] = weight * c * np.eye(window)
            first += 2 * degrees[0] + 1
        return matrices


@cache
def blocks_of(problem: TPProblem, target: str = "trn2") -> tuple[PathBlock, ...]:
    """Divide a problem into blocks whose gradients fit the chip, as far as this is possible.

    Raises UnsupportedMode for other paths than uvu; UnsupportedError for degrees whose couplings do not fit the
    partitions, or too many paths to one slot; MemoryLimit for a slot of z whose paths read more columns than fit SBUF.
    """
    for path in problem.instructions:
        if path.connection_mode != "uvu":
            raise UnsupportedMode(f"NKI kernels: expected paths of mode uvu, found {path.connection_mode}")
        if max(problem.degrees(path)) > (P - 1) // 2:
            raise UnsupportedError(f"NKI kernels: expected degrees up to {(P - 1) // 2}, found {problem.degrees(path)}")
    blocks: list[PathBlock] = []
    for unit in (unit for slot in range(len(problem.irreps_out)) for unit in _units(problem, slot)):
        joined = _joined(blocks[-1], unit) if blocks else None
        if joined is not None and _may_be_joined(joined, target):
            blocks[-1] = joined
        else:
            blocks.append(unit)
    blocks = [_sorted(block) for block in blocks]
    require_fit(problem, blocks, target)
    return tuple(blocks)


def require_fit(problem: TPProblem, blocks: Sequence[PathBlock], target: str, backward: bool = False) -> None:
    """Check that the tiles of all blocks fit the chip, in windows of one receiver with one tile of edges.

    Raises MemoryLimit if tiles take more SBUF than the chip has, and UnsupportedError if gradients of the columns of y
    do not fit a bank of PSUM; the `backward` kernel takes more memory than the convolution.
    """
    what, usable = "gradients" if backward else "convolution", usable_bytes(target)
    for block in blocks:
        y, x, w = (last - first for first, last in (range_of(block.terms, kind) for kind in range(3)))
        slot = _slot_of(problem, block)
        if widest_window(block.terms, block.results, backward) == 0:
            raise UnsupportedError(
                f"NKI kernels: expected paths to a slot of z that read at most {RUN} columns of y, found {y} for "
                f"the {what} of {slot}"
            )
        needed = sbuf_bytes(block.terms, block.results, 1, 1, backward)
        if needed > usable:
            raise MemoryLimit(
                f"NKI kernels: expected tiles of at most {usable} bytes of SBUF per partition, which {target} has, "
                f"found {needed} for the {what} of {slot}, whose paths read rows of {x} columns of x, {y} of y and {w} "
                "of weights; divide the channels among several slots"
            )


def _slot_of(problem: TPProblem, block: PathBlock) -> str:
    first = block.results[0][0]
    slots = zip(problem.irreps_out, problem.slices3, strict=True)
    return next(str(irrep) for irrep, place in slots if place.start <= first < place.stop)


def _may_be_joined(block: PathBlock, target: str) -> bool:
    return (
        _columns(block) <= COLUMNS
        and block.matrices <= MATRICES
        and fits(_sorted(block).terms, block.results, 1, 1, True, target)
    )


def _columns(block: PathBlock) -> int:
    return sum(term[4] * term[7] for term in block.terms)


def _joined(block: PathBlock, unit: PathBlock) -> PathBlock:
    """Return a block with the paths and results of both."""
    paths = (*block.paths, *(key for key in unit.paths if key not in block.paths))
    terms = [(*term[:8], len(block.results), _position(paths, unit.paths, term[9])) for term in unit.terms]
    return PathBlock((*block.terms, *terms), (*block.results, *unit.results), paths)


def _position(paths: tuple[Key, ...], own: tuple[Key, ...], first: int) -> int:
    """Return the number of a path's first matrix among those of `paths`, from that among those of `own`."""
    starts = {sum(2 * d[0] + 1 for d, _ in own[:n]): key for n, key in enumerate(own)}
    return sum(2 * d[0] + 1 for d, _ in paths[: paths.index(starts[first])])


def _sorted(block: PathBlock) -> PathBlock:
    return replace(block, terms=tuple(sorted(block.terms)))


def _units(problem: TPProblem, slot: int) -> list[PathBlock]:
    """Return a slot of z as blocks of as many channels as fit."""
    paths = [path for path in problem.instructions if path.i_out == slot]
    columns = sum(problem.irreps_in1[p.i_in1].ir.dim * problem.irreps_in2[p.i_in2].mul for p in paths)
    mul = problem.irreps_out[slot].mul
    if columns == 0 or mul == 0:
        return []
    most = min(RUN, COLUMNS // columns)
    if most == 0:
        raise UnsupportedError(
            f"NKI kernels: expected at most {COLUMNS} products of components to one slot of z, found {columns} to "
            f"{problem.irreps_out[slot]}"
        )
    parts = -(-mul // most)
    cuts = [mul * n // parts for n in range(parts + 1)]
    return [_unit(problem, slot, paths, u, end - u) for u, end in pairwise(cuts)]


def _unit(problem: TPProblem, slot: int, paths: list[PathInstruction], u: int, width: int) -> PathBlock:
    keys = tuple(dict.fromkeys((problem.degrees(path), path.path_weight) for path in paths))
    terms = []
    for path in paths:
        one, two = problem.irreps_in1[path.i_in1], problem.irreps_in2[path.i_in2]
        x0, y0 = problem.slices1[path.i_in1].start + u, problem.slices2[path.i_in2].start
        at = keys.index((problem.degrees(path), path.path_weight))
        matrix = sum(2 * degrees[0] + 1 for degrees, _ in keys[:at])
        for v in range(two.mul):
            w0 = path.weight_offset + u * two.mul + v if path.has_weight else -1
            y = (y0 + v * two.ir.dim, two.ir.dim)
            terms.append((*y, x0, one.mul, one.ir.dim, w0, two.mul, width, 0, matrix))
    out = problem.irreps_out[slot]
    return PathBlock(tuple(terms), ((problem.slices3[slot].start + u, out.mul, out.ir.dim, width),), keys)


def to_ir_mul(irreps: Irreps, layout: str) -> np.ndarray | None:
    """Return the columns of a row in the order of ir_mul, or None if the row has it already."""
    return _order(irreps, layout, "ir_mul")


def to_mul_ir(irreps: Irreps, layout: str) -> np.ndarray | None:
    """Return the columns of a row in the order of mul_ir, or None if the row has it already."""
    return _order(irreps, layout, "mul_ir")


def _order(irreps: Irreps, layout: str, wanted: str) -> np.ndarray | None:
    if layout == wanted or all(slot.mul == 1 or slot.ir.dim == 1 for slot in irreps):
        return None
    columns = []
    for slot, place in zip(irreps, irreps.slices):
        inner = (slot.mul, slot.ir.dim) if layout == "mul_ir" else (slot.ir.dim, slot.mul)
        columns.append(np.arange(place.start, place.stop).reshape(inner).T.ravel())
    return np.concatenate(columns)
