"""A nest on a device: the CUDA text of its kernels, launched over arrays in the device's memory.

nest -> kernels (lower/concurrent.py) -> compiled by the device -> launched for operands that are uploaded once
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
from trnqc.jit import NUMPY, Recipe
from trnqc.jit.device import BuiltKernel, Device, DeviceArray
from trnqc.sparse.lower.concurrent import BLOCKS, TURNS, ConcurrentPiece, concurrent_program
from trnqc.sparse.lower.tensors import OUT
from trnqc.sparse.network.nest import Nest
from trnqc.sparse.run.arguments import Arguments, arguments_of, turns_of
from trnqc.sparse.run.plan import Plan, arrays, result_type
from trnqc.sparse.tensors.checks import is_complex
from trnqc.sparse.tensors.diagonals import viewed
from trnqc.sparse.tensors.storage import SparseTensor, rounded

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

    @cached_property
    def kernels(self) -> tuple[BuiltKernel, ...]:
        """The compiled kernels."""
        recipes = (Recipe.of(piece.kernel, name="sparse") for piece in self.program.pieces)
        return tuple(self.device.build(recipe, LANES) for recipe in recipes)

    def __call__(self, operands: Sequence[SparseTensor]) -> np.ndarray:
        """Compute the nest from operands packed in its formats, with axes in the order of their subscripts.

        Arrays of an operand stay on the device until another tensor takes its place, or `release` is called. Sums are
        formed in any order, so that results of two calls may differ in the last digits.

        Returns
        -------
        numpy.ndarray
            The result in the order of the output.

        Raises
        ------
        OperandError
            For operands of other shapes or formats.
        MemoryLimit
            If operands, workspaces or the result do not fit into the memory of the device.
        """
        arguments = self._uploaded(operands)
        nest = self.program.tensors.nest
        shape = nest.network.shape(nest.formats[-1].order)
        held: list[DeviceArray] = []
        try:
            for name, size, dtype in self._of_all_turns(math.prod(shape)):
                arguments[name] = self.device.zeros(size, dtype=dtype)
                held.append(arguments[name])
            for piece, kernel in zip(self.program.pieces, self.kernels):
                if turns := turns_of(piece.piece, nest.network, operands):
                    self._launch(piece, kernel, turns, arguments, held)
            out = self.device.download(arguments[OUT.name])
        finally:
            self.device.release(*held)
        order = nest.formats[-1].order
        return out[: math.prod(shape)].reshape(shape).transpose([order.index(x) for x in nest.network.output])

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

    def _of_all_turns(self, elements: int) -> list[tuple[str, int, str]]:
        """Return names, sizes and types of the arrays that all turns add to: the result and kept workspaces."""
        sizes = [(OUT.name, max(1, elements), NUMPY[OUT.dtype])]
        for w in self.program.tensors.workspaces.values():
            sizes += [(array.name, w.elements, NUMPY[array.dtype]) for array in w.arrays if w.kept]
        return sizes

    def _launch(
        self, piece: ConcurrentPiece, kernel: BuiltKernel, turns: int, arguments: Arguments, held: list[DeviceArray]
    ) -> None:
        sizes = {array: w.elements for w in piece.private for array in w.arrays}
        each = sum(size * np.dtype(NUMPY[array.dtype]).itemsize for array, size in sizes.items())
        room = int(SHARE * self.device.free_memory()) // each if each else turns
        if room < 1:
            raise MemoryLimit(
                f"workspaces of {self.nest.network} take {each} bytes for each block of {self.device.name}, which has "
                f"{self.device.free_memory()} left: choose another nest, or run it on the CPU"
            )
        blocks = min(turns, room, WAVES * self.device.multiprocessors * max(1, kernel.blocks))
        own = dict(arguments)
        for array, size in sizes.items():
            own[array.name] = self.device.zeros(blocks * size, dtype=NUMPY[array.dtype])
            held.append(own[array.name])
        self.device.launch(kernel, blocks, own | {TURNS.attr: turns, BLOCKS.attr: blocks})


class DevicePlan:
    """A plan of one nest on a GPU, with kernels in CUDA.

    Parameters
    ----------
    plan
        What `trnqc.sparse.plan` returns with ``form="fused"`` and ``out="dense"``.
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

    def run(self, *operands: Any) -> np.ndarray:
        """Compute the result on the device.

        Parameters
        ----------
        *operands
            Real operands of the same shapes, as for `Plan.run`. A `SparseTensor` that was used before is not copied to
            the device again, arrays are.

        Returns
        -------
        numpy.ndarray
            The result, of the common type of the operands. It is computed in float64.

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
        return rounded(self.nest(inputs), result_type(given))

    def release(self) -> None:
        """Free the memory that operands take on the device."""
        self.nest.release()


def _at_least_one(array: np.ndarray) -> np.ndarray:
    """Return an array as it lies in memory; an empty one, which has no address on a device, with one element."""
    return np.ascontiguousarray(array) if len(array) else np.zeros(1, array.dtype)
