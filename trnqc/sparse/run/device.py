"""A nest on a device: the CUDA text of its kernels, launched over arrays in the device's memory.

nest -> kernels (lower/concurrent.py) -> compiled by the device -> launched for operands that are uploaded once
     -> a dense result, or the parts of a sparse one (device_results.py), which are joined
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trnqc.arrays import is_tensor
from trnqc.errors import MemoryLimit, OperandError, ProgramError
from trnqc.gen import Array
from trnqc.jit import NUMPY, Recipe
from trnqc.jit.device import BuiltKernel, Device, DeviceArray
from trnqc.sparse.lower.concurrent import BLOCKS, TURNS, ConcurrentPiece, concurrent_program
from trnqc.sparse.lower.tensors import OUT
from trnqc.sparse.network.nest import Nest
from trnqc.sparse.run.arguments import Arguments, arguments_of, turns_of
from trnqc.sparse.run.device_results import DeviceParts, Rooms
from trnqc.sparse.run.plan import Plan, arrays, result_type, typed
from trnqc.sparse.run.results import ResultPart, joined
from trnqc.sparse.tensors.checks import is_complex
from trnqc.sparse.tensors.diagonals import viewed
from trnqc.sparse.tensors.libraries import as_operands_are
from trnqc.sparse.tensors.storage import SparseTensor

# Lanes of a block: those of a warp, which adds its partial sums in registers.
LANES = 32
# Blocks for each that a device can run at once, so that turns of different length even out.
WAVES = 4
# Part of the free memory of a device that workspaces may take.
SHARE = 0.5


@dataclass(eq=False)
class DeviceNest:
    """The kernels of a nest on a device.

    Raises
    ------
    ProgramError
        If kernels for GPUs cannot compute the nest, see `trnqc.sparse.lower.concurrent.concurrent_program`.
    """

    nest: Nest
    device: Device

    def __post_init__(self) -> None:
        self.program = concurrent_program(self.nest, LANES)
        # The operands whose arrays are on the device, and these arrays by operand.
        self._held: list[SparseTensor | None] = [None] * len(self.program.tensors.operands)
        self._arrays: list[dict[str, DeviceArray]] = [{} for _ in self._held]
        # The entries of a sparse result for which each block has memory.
        self._rooms: Rooms | None = None

    @cached_property
    def kernels(self) -> tuple[BuiltKernel, ...]:
        """The compiled kernels."""
        recipes = (Recipe.of(piece.kernel, name="sparse") for piece in self.program.pieces)
        return tuple(self.device.build(recipe, LANES) for recipe in recipes)

    def __call__(self, operands: Sequence[SparseTensor]) -> np.ndarray | SparseTensor:
        """Compute the nest from operands packed in its formats, with axes in the order of their subscripts.

        Arrays of an operand stay on the device until another tensor takes its place, or `release` is called. Blocks add
        to dense results, and to workspaces of several kernels, in any order, so that two calls may differ in the last
        digits. If the memory of a sparse result was too small, all kernels run again with more.

        Returns
        -------
        numpy.ndarray or SparseTensor
            An array in the order of the output if the format of the result is dense, else a tensor in this format.

        Raises
        ------
        OperandError
            For operands of other shapes or formats.
        MemoryLimit
            If operands, workspaces or the result do not fit into the memory of the device.
        """
        arguments = self._uploaded(operands)
        while True:
            held: list[DeviceArray] = []
            try:
                result = self._result(operands, dict(arguments), held)
            finally:
                self.device.release(*held)
            if result is not None:
                return result

    def _result(
        self, operands: Sequence[SparseTensor], arguments: Arguments, held: list[DeviceArray]
    ) -> np.ndarray | SparseTensor | None:
        """Run all kernels; None if the memory of a sparse result was too small, which grows for the next run.

        The arrays that are allocated are appended to `held`.
        """
        nest, appended = self.program.tensors.nest, self.program.tensors.appended
        network, f = nest.network, nest.formats[-1]
        shape = network.shape(f.order)
        for name, size, dtype in self._of_all_turns(math.prod(shape)):
            arguments[name] = self.device.zeros(size, dtype=dtype)
            held.append(arguments[name])
        for piece, kernel in zip(self.program.pieces, self.kernels):
            entries = self._listed(kernel, arguments)
            over = piece.piece.over
            turns = entries[int(piece.piece.of)] if over == "list" else turns_of(piece.piece, network, operands)
            if piece.piece.appends:
                part = self._appended(piece, kernel, turns, operands, arguments, held)
            elif turns:
                self._launch(piece, kernel, turns, self._blocks(piece, kernel, turns), arguments, held)
        if appended is None:
            out = self.device.download(arguments[OUT.name])
            return out[: math.prod(shape)].reshape(shape).transpose([f.order.index(x) for x in network.output])
        if part is None:
            return None
        modes = tuple(network.output.index(x) for x in f.order)
        return joined(network.shape(network.output), modes, [part]).repack(modes, f.kinds)

    def _appended(
        self,
        piece: ConcurrentPiece,
        kernel: BuiltKernel,
        turns: int,
        operands: Sequence[SparseTensor],
        arguments: Arguments,
        held: list[DeviceArray],
    ) -> ResultPart | None:
        """Run the kernel that appends to a sparse result, and return the joined parts; None if one was too small."""
        nest, appended = self.program.tensors.nest, self.program.tensors.appended
        assert appended is not None
        shape = nest.network.shape(nest.formats[-1].order)
        blocks = self._blocks(piece, kernel, max(1, turns)) if piece.piece.divisible else 1
        rooms = self._rooms
        if rooms is None or len(rooms.now) != blocks:
            each = sum(np.dtype(NUMPY[array.dtype]).itemsize for array, _ in appended.of_entries)
            edges = turns * np.arange(blocks + 1) // blocks
            free = int(SHARE * self.device.free_memory()) // each
            rooms = self._rooms = Rooms.first(nest, operands, piece.piece, edges, free)
        parts = DeviceParts(self.device, appended, rooms.now, math.prod(shape[: appended.first]))
        try:
            parts.reserve()
            self._launch(piece, kernel, turns, blocks, arguments | parts.arrays, held)
            full = parts.full()
            if full.any():
                self._rooms = rooms.grown(full)
                return None
            return parts.joined(LANES)
        finally:
            parts.release()

    def release(self) -> None:
        """Free the memory that operands take on the device."""
        for t, held in enumerate(self._arrays):
            self.device.release(*held.values())
            self._held[t], self._arrays[t] = None, {}

    def _uploaded(self, operands: Sequence[SparseTensor]) -> Arguments:
        """Return the arguments with the arrays of operands on the device; those that are there are not copied again."""
        arguments = arguments_of(self.program.tensors, operands)
        for t, (operand, tensor) in enumerate(zip(self.program.tensors.operands, operands)):
            if self._held[t] is not tensor:
                self.device.release(*self._arrays[t].values())
                self._held[t], self._arrays[t] = None, {}
                names = [array.name for array in operand.arrays if array.name in arguments]
                copies = self.device.upload_all([_at_least_one(arguments[name]) for name in names])
                self._arrays[t] = dict(zip(names, copies))
                self._held[t] = tensor
            arguments |= self._arrays[t]
        return arguments

    def _listed(self, kernel: BuiltKernel, arguments: Arguments) -> dict[int, int]:
        """Make the lists that a kernel reads of elements that kernels before it have marked; return their lengths."""
        names, lengths = {p.name for p in kernel.parameters}, {}
        for w in self.program.tensors.workspaces.values():
            if w.listed_later and w.touched.name in names:
                places = np.flatnonzero(self.device.download(arguments[w.mark.name]))
                lengths[w.tensor] = len(places)
                self.device.write(arguments[w.counts.name], np.array([len(places)]))
                if len(places):
                    self.device.write(arguments[w.touched.name], places)
        return lengths

    def _of_all_turns(self, elements: int) -> list[tuple[str, int, str]]:
        """Return names, sizes and types of the arrays that all turns add to: the result and kept workspaces."""
        sizes = [] if self.program.tensors.appended else [(OUT.name, max(1, elements), NUMPY[OUT.dtype])]
        for w in self.program.tensors.workspaces.values():
            sizes += [(array.name, w.length(array), NUMPY[array.dtype]) for array in w.arrays if w.kept]
        return sizes

    def _blocks(self, piece: ConcurrentPiece, kernel: BuiltKernel, turns: int) -> int:
        """Return the number of blocks that share turns. Raises MemoryLimit if the workspaces of one do not fit."""
        each = sum(size * np.dtype(NUMPY[array.dtype]).itemsize for array, size in _private(piece).items())
        room = int(SHARE * self.device.free_memory()) // each if each else turns
        if room < 1:
            raise MemoryLimit(
                f"workspaces of {self.nest.network} take {each} bytes for each block of {self.device.name}, which has "
                f"{self.device.free_memory()} left: choose another nest, or run it on the CPU"
            )
        return min(turns, room, WAVES * self.device.multiprocessors * max(1, kernel.blocks))

    def _launch(
        self,
        piece: ConcurrentPiece,
        kernel: BuiltKernel,
        turns: int,
        blocks: int,
        arguments: Arguments,
        held: list[DeviceArray],
    ) -> None:
        own = dict(arguments)
        for array, size in _private(piece).items():
            own[array.name] = self.device.zeros(blocks * size, dtype=NUMPY[array.dtype])
            held.append(own[array.name])
        self.device.launch(kernel, blocks, own | {TURNS.attr: turns, BLOCKS.attr: blocks})


class DevicePlan:
    """A plan of one nest on a GPU, with kernels in CUDA.

    Parameters
    ----------
    plan
        What `trnqc.sparse.plan` returns with ``form="fused"``.
    device
        One of `trnqc.jit.device.cuda_devices()`, or a simulated one.

    Raises
    ------
    ProgramError
        If the plan is not one nest, or kernels for GPUs cannot compute it.
    """

    def __init__(self, plan: Plan, device: Device) -> None:
        if len(plan.steps) != 1:
            raise ProgramError(
                f"a plan on a device is one nest; {plan.network} is planned as {len(plan.steps)} steps ({plan.form}): "
                "plan it with form='fused'"
            )
        self.plan, self.nest = plan, DeviceNest(plan.steps[0].nest, device)

    def run(self, *operands: Any) -> Any:
        """Compute the result on the device.

        Parameters
        ----------
        *operands
            Real operands of the same shapes, as for `Plan.run`. A `SparseTensor` that was used before is not copied to
            the device again, arrays are.

        Returns
        -------
        numpy.ndarray, SparseTensor, sparse array of SciPy or PyData
            The result as `Plan.run` returns it, of the common type of the operands. It is computed in float64.

        Raises
        ------
        OperandError
            For operands of other shapes or another number, complex ones, and tensors of PyTorch.
        MemoryLimit
            If operands, workspaces or the result do not fit into the memory of the device.
        """
        plan = self.plan
        given = arrays(operands) if operands else plan.arguments
        if len(given) != len(plan.views):
            raise OperandError(f"the plan {plan.network} takes {len(plan.views)} operands; found {len(given)}")
        for number, x in enumerate(given):
            if is_tensor(x) or is_complex(x):
                what = "a tensor of PyTorch" if is_tensor(x) else "a complex operand"
                raise OperandError(
                    f"a plan on a device takes real operands of NumPy, SciPy or this package; operand {number} is "
                    f"{what}: run the plan on the CPU"
                )
        packed = plan.exchanged(viewed(given, plan.views)) if operands else plan.operands
        step = plan.steps[0]
        inputs = [packed.packed(t, layout) for t, layout in zip(step.operands, step.nest.formats)]
        return as_operands_are(typed(plan.as_planned(self.nest(inputs)), result_type(given)), given)

    def release(self) -> None:
        """Free the memory that operands take on the device."""
        self.nest.release()


def _private(piece: ConcurrentPiece) -> dict[Array, int]:
    """Return the elements of each array of which every block has its own."""
    return {array: w.length(array) for w in piece.private for array in w.arrays}


def _at_least_one(array: np.ndarray) -> np.ndarray:
    """Return an array as it lies in memory; an empty one, which has no address on a device, with one element."""
    return np.ascontiguousarray(array) if len(array) else np.zeros(1, array.dtype)
