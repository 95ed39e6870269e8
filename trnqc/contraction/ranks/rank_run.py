"""One rank's part of a distributed contraction: its blocks of the operands, its messages, and its block of the result.

Every rank derives all messages from the plan without negotiation, and receives exactly as many elements as the plan
predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from trnqc.contraction.distribute.distribution import Placed, TreeDistribution
from trnqc.contraction.distribute.placement import COPY, FIRST, Box, Coordinates, Placement, box, processors, transfers
from trnqc.contraction.tree import union
from trnqc.errors import CommunicationError, InputError
from trnqc.expression.operand import Leaf

Operand = Tensor | Callable[..., Any]


@dataclass(frozen=True)
class Distributed:
    """The result of a run: the tensor, placed as planned, and the number of elements that this rank received."""

    tensor: DTensor
    received: int


def dtensor_placements(where: Placement, labels: Sequence[str]) -> list[Shard | Replicate]:
    """Convert a placement to placements of DTensor. Raises InputError for "1", which DTensor does not have."""
    if FIRST in where:
        raise InputError(f"DTensor has no placement on one rank of a line; found <{','.join(where)}>")
    return [Replicate() if entry == COPY else Shard(list(labels).index(entry)) for entry in where]


class RankRun:
    """One run on this rank; the mesh has the shape of the plan's grid."""

    def __init__(self, plan: TreeDistribution, operands: Mapping[str, Operand], mesh: DeviceMesh) -> None:
        self.plan = plan
        self.operands = operands
        self.mesh = mesh
        self.extents = {label: index.extent for label, index in plan.tree.indices.items()}
        coordinate = mesh.get_coordinate()
        if coordinate is None:
            raise InputError("this rank is not in the mesh")
        self.here: Coordinates = tuple(coordinate)
        self.ranks = {at: int(mesh.mesh[at]) for at in processors(plan.grid)}
        self.dtype = self._dtype()
        self.received = 0

    def result(self) -> Distributed:
        """Run all steps and return the result."""
        plan = self.plan
        placed: dict[str, tuple[Tensor | None, Placement]] = {}
        for step in plan.steps:
            try:
                operands = [self._operand(step, k, placed) for k in range(len(step.node.operands))]
                local = self._added(step, self._local(step, operands))
                if step.node is plan.tree.root:
                    local = self._move(step.node.indices, local, step.result, plan.final)
            except RuntimeError as error:
                self._lost(step, error)
            placed[step.node.name] = (local, step.result)
        return Distributed(self._dtensor(local), self.received)

    def _lost(self, step: Placed, error: RuntimeError) -> NoReturn:
        """Raise CommunicationError for an error of torch.distributed, and any other error unchanged."""
        if isinstance(error, (CommunicationError, dist.DistError)) or "peer" in str(error) or "imed out" in str(error):
            raise CommunicationError(
                f"rank {dist.get_rank()} of {dist.get_world_size()} lost another rank in step {step.node}: "
                f"{str(error).splitlines()[0]}; look for the first error of the other ranks and start all of them again"
            ) from error
        raise error

    def _dtype(self) -> torch.dtype:
        tensors = [x.dtype for x in self.operands.values() if isinstance(x, Tensor)]
        return reduce(torch.promote_types, tensors) if tensors else torch.get_default_dtype()

    def _operand(self, step: Placed, k: int, placed: dict[str, tuple[Tensor | None, Placement]]) -> Tensor | None:
        operand, wanted, source = step.node.operands[k], step.wanted[k], step.sources[k]
        if not isinstance(operand, Leaf):
            local, where = placed.pop(operand.name)
            return self._move(operand.indices, local, where, wanted)
        labels = union(operand.indices)
        local = self._block(operand, labels, source or wanted)
        return local if source is None else self._move(labels, local, source, wanted)

    def _block(self, leaf: Leaf, labels: Sequence[str], where: Placement) -> Tensor | None:
        block = self._box(labels, where)
        if block is None:
            return None
        cuts = dict(zip(labels, (slice(*interval) for interval in block)))
        operand = self.operands[leaf.name]
        slices = tuple(cuts[label] for label in leaf.indices)
        part = operand[slices] if isinstance(operand, Tensor) else torch.as_tensor(operand(*slices))
        numbers = [list(labels).index(label) for label in leaf.indices]
        part = torch.einsum(part.to(self.dtype), numbers, list(range(len(labels))))
        return 1 / part if leaf.reciprocal else part

    def _local(self, step: Placed, operands: Sequence[Tensor | None]) -> Tensor | None:
        """Return this rank's part of the result, without the contributions of other ranks."""
        labels = step.node.loops
        shown = tuple(COPY if entry in step.node.summed else entry for entry in step.loops)
        mine = self._box(step.node.indices, shown)
        if mine is None:
            return None
        if any(x is None for x in operands):
            return torch.zeros([stop - start for start, stop in mine], dtype=self.dtype, device=self._device)
        terms: list[Any] = []
        for operand, value in zip(step.node.operands, operands):
            names = union(operand.indices)
            terms += [value, [labels.index(label) for label in names]]
        return torch.einsum(*terms, [labels.index(label) for label in step.node.indices])

    def _added(self, step: Placed, local: Tensor | None) -> Tensor | None:
        """Add the partial sums along each summed grid dimension, to coordinate 0 or with copies at all coordinates."""
        for d, entry in enumerate(step.loops):
            if entry in step.node.summed and local is not None:
                local = self._add_along(d, local.contiguous(), step.result[d] == COPY)
        return local

    def _add_along(self, d: int, local: Tensor, copy: bool) -> Tensor | None:
        line = [(*self.here[:d], k, *self.here[d + 1 :]) for k in range(self.plan.grid[d])]
        first, others = line[0], line[1:]
        if self.here == first:
            for at in others:
                part = torch.empty_like(local)
                self._exchange([(at, first, part)])
                local = local + part
        else:
            self._exchange([(self.here, first, local)])
        if copy:
            target = local if self.here == first else torch.empty_like(local)
            self._exchange([(first, at, target) for at in others if self.here in (first, at)])
            return target
        return local if self.here == first else None

    def _move(self, labels: Sequence[str], local: Tensor | None, source: Placement, target: Placement) -> Tensor | None:
        if source == target:
            return local
        have, want = self._box(labels, source), self._box(labels, target)
        device = self._device
        result = None if want is None else torch.empty([b - a for a, b in want], dtype=self.dtype, device=device)
        messages, arriving = [], []
        for sender, receiver, part in transfers(labels, self.extents, source, target, self.plan.grid):
            if sender == self.here:
                assert local is not None and have is not None
                messages.append((sender, receiver, local[_within(part, have)].contiguous()))
            elif receiver == self.here:
                buffer = torch.empty([b - a for a, b in part], dtype=self.dtype, device=device)
                messages.append((sender, receiver, buffer))
                arriving.append((part, buffer))
        self._exchange(messages)
        if result is None or want is None:
            return None
        if local is not None and have is not None:
            kept = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(have, want))
            if all(start < stop for start, stop in kept):
                result[_within(kept, want)] = local[_within(kept, have)]
        for part, buffer in arriving:
            result[_within(part, want)] = buffer
        return result

    def _exchange(self, messages: Sequence[tuple[Coordinates, Coordinates, Tensor]]) -> None:
        operations = []
        for sender, receiver, tensor in messages:
            sends = sender == self.here
            operation = dist.isend if sends else dist.irecv
            operations.append(dist.P2POp(operation, tensor, self.ranks[receiver if sends else sender]))
            self.received += 0 if sends else tensor.numel()
        if operations:
            for work in dist.batch_isend_irecv(operations):
                work.wait()

    def _box(self, labels: Sequence[str], where: Placement) -> Box | None:
        return box(labels, self.extents, where, self.plan.grid, self.here)

    @property
    def _device(self) -> torch.device:
        kind = self.mesh.device_type
        return torch.device(kind, torch.cuda.current_device()) if kind == "cuda" else torch.device(kind)

    def _dtensor(self, local: Tensor | None) -> DTensor:
        labels, final = self.plan.tree.root.indices, self.plan.final
        shape = torch.Size([self.extents[label] for label in labels])
        if local is None:
            # A block beyond the end of a short index has no elements along this index.
            local = torch.empty([0 if label in final else n for label, n in zip(labels, shape)], dtype=self.dtype)
            local = local.to(self._device)
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(
            local, self.mesh, dtensor_placements(final, labels), run_check=False, shape=shape, stride=stride
        )


def _within(part: Box, whole: Box) -> tuple[slice, ...]:
    """Return the slices of `part` in an array that contains the box `whole`."""
    return tuple(slice(start - first, stop - first) for (start, stop), (first, _) in zip(part, whole))
