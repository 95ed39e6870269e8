"""The arguments of the functions of a nest by name, extents and arrays of packed operands, and how often they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trnqc.errors import OperandError
from trnqc.sparse.lower.pieces import Piece
from trnqc.sparse.lower.tensors import ProgramTensors
from trnqc.sparse.network.nest import Format
from trnqc.sparse.network.network import Indices, Network
from trnqc.sparse.tensors.levels import Compressed
from trnqc.sparse.tensors.storage import SparseTensor

Arguments = dict[str, Any]


def arguments_of(tensors: ProgramTensors, operands: Sequence[SparseTensor]) -> Arguments:
    """Return the arguments for operands that are packed in the formats of the nest.

    Raises
    ------
    OperandError
        If there is another number of operands, or one has another shape or format.
    """
    network = tensors.nest.network
    if len(operands) != len(tensors.operands):
        raise OperandError(f"{network} has {len(tensors.operands)} operands; found {len(operands)}")
    arguments: Arguments = {tensors.extents.argument(index): extent for index, extent in network.sizes}
    for operand, tensor, labels in zip(tensors.operands, operands, network.inputs):
        _check(operand.number, tensor, operand.format, labels, network.shape(labels))
        for (positions, coordinates), level in zip(operand.level_names, tensor.levels):
            if isinstance(level, Compressed):
                arguments[positions], arguments[coordinates] = level.positions, level.coordinates
        if tensor.values is not None:
            arguments[operand.values.name] = tensor.values
    return arguments


def turns_of(piece: Piece, network: Network, operands: Sequence[SparseTensor]) -> int:
    """Return the turns of a function's outermost loop over packed operands; that over a list is known in a run only."""
    if piece.over == "index":
        return network.extents[str(piece.of)]
    return operands[int(piece.of)].sizes[0] if piece.over == "level" else 1


def _check(t: int, tensor: SparseTensor, wanted: Format, labels: Indices, shape: tuple[int, ...]) -> None:
    order = tuple(labels[mode] for mode in tensor.order)
    if tensor.shape != shape:
        raise OperandError(f"operand {t} ({''.join(labels)}) must have the shape {shape}; found {tensor.shape}")
    if order != wanted.order or tensor.kinds != wanted.kinds:
        raise OperandError(f"operand {t} must be packed as {wanted}; found {Format(order, tensor.kinds)}: repack it")
    if tensor.values is None and not wanted.ones:
        raise OperandError(f"operand {t} needs values; found a 0/1 map")
