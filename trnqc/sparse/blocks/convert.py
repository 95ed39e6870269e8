"""Block tensors of other programs: ITensor's block-sparse storage, arrays of symmray.

indices with charges, blocks by numbers or charges -> `BlockTensor`; `BlockTensor` -> array of symmray
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trnqc.errors import OperandError, UnsupportedError
from trnqc.sparse.blocks.charges import BlockCharges, Charge
from trnqc.sparse.blocks.tensor import BlockTensor, Coordinates

# symmray's symmetries by the modulus of `BlockCharges`; Z3, Z4, ... are those of other integers.
SYMMETRIES: dict[Any, str] = {None: "U1", 2: "Z2", (None, None): "U1U1", (2, 2): "Z2Z2"}


def from_itensor(data: Mapping[str, Any]) -> BlockTensor:
    """Return the tensor of ITensor's block-sparse storage, with the names of its HDF5 files.

    Parameters
    ----------
    data
        ``inds``: for each index a mapping with ``space``, pairs of charge and size, and ``dir``, +1 (Out) or -1 (In);
        charges are None if there are none. Either ``blocks``, arrays by the numbers of the block, counted from 1, or
        ``blockoffsets``, rows of these numbers and an offset, and ``data``, all blocks in Fortran order. Optionally
        ``flux``, the total charge, by default zero, and ``modulus``; see `BlockCharges`.

    Raises
    ------
    OperandError
        If something is missing or does not fit; see `BlockTensor.from_blocks`.
    """
    missing = {"inds"} - set(data) or ({"blocks"} - set(data) and {"blockoffsets", "data"} - set(data))
    if missing:
        raise OperandError(
            f"an ITensor has inds, and blocks or blockoffsets and data; {sorted(missing)} of {sorted(data)} missing"
        )
    sizes = [tuple(int(size) for _, size in index["space"]) for index in data["inds"]]
    modes = tuple(tuple(charge for charge, _ in index["space"]) for index in data["inds"])
    items = list(data["blocks"].items()) if "blocks" in data else _stored(sizes, data)
    blocks = [(tuple(int(n) - 1 for n in at), block) for at, block in items]
    if not modes or None in modes[0]:
        return BlockTensor.from_blocks(blocks, sizes)
    directions = tuple(int(index["dir"]) for index in data["inds"])
    several = isinstance(modes[0][0], Sequence)
    zero: Charge = (0,) * len(modes[0][0]) if several else 0
    charges = BlockCharges(modes, directions, data.get("flux", zero), data.get("modulus"))
    return BlockTensor.from_blocks(blocks, sizes, charges)


def _stored(sizes: Sequence[tuple[int, ...]], data: Mapping[str, Any]) -> list[tuple[Coordinates, np.ndarray]]:
    """Return blocks by their numbers from 1, out of columns of data that begin at the offsets."""
    rows = np.asarray(data["blockoffsets"], np.int64).reshape(-1, len(sizes) + 1)
    values, items = np.asarray(data["data"]), []
    for *at, begin in rows.tolist():
        if any(not 0 < n <= len(mode) for n, mode in zip(at, sizes)):
            raise OperandError(f"numbers of blocks are 1 to {[len(mode) for mode in sizes]}; found {tuple(at)}")
        shape = tuple(mode[n - 1] for n, mode in zip(at, sizes))
        end = begin + int(np.prod(shape))
        if begin < 0 or end > len(values):
            raise OperandError(f"block {tuple(at)} is data {begin} to {end}; found {len(values)} numbers")
        items.append((tuple(at), values[begin:end].reshape(shape, order="F")))
    return items


def from_symmray(array: Any) -> BlockTensor:
    """Return the tensor of a block-sparse abelian array of symmray; a dual index has the direction -1.

    Raises OperandError for other objects, and UnsupportedError for fermions and other symmetries than U1, Zn, U1U1 and
    Z2Z2.
    """
    name = type(array).__name__
    if not all(hasattr(array, x) for x in ("indices", "charge", "symmetry", "get_sector_block_pairs")):
        raise OperandError(f"from_symmray takes block-sparse arrays of symmray; found {name}")
    if getattr(array, "fermionic", False):
        raise UnsupportedError(f"signs of fermions are not supported: take an abelian array; found {name}")
    modes = tuple(tuple(index.chargemap) for index in array.indices)
    sizes = [tuple(index.chargemap.values()) for index in array.indices]
    symmetry = str(array.symmetry)
    known = {label: modulus for modulus, label in SYMMETRIES.items()}
    if symmetry not in known and not (symmetry[:1] == "Z" and symmetry[1:].isdigit()):
        raise UnsupportedError(f"symmetries are {sorted(known)} and Zn; found {symmetry}")
    modulus = known[symmetry] if symmetry in known else int(symmetry[1:])
    directions = tuple(-1 if index.dual else 1 for index in array.indices)
    number = [{charge: n for n, charge in enumerate(mode)} for mode in modes]
    blocks = [
        (tuple(own[charge] for own, charge in zip(number, sector)), np.asarray(block))
        for sector, block in array.get_sector_block_pairs()
    ]
    return BlockTensor.from_blocks(blocks, sizes, BlockCharges(modes, directions, array.charge, modulus))


def to_symmray(tensor: BlockTensor) -> Any:
    """Return an ``AbelianArray`` of symmray with copies of the blocks.

    Raises OperandError if there are no quantum numbers, or several blocks of a mode have the same charge, and
    UnsupportedError if symmray does not have the symmetry.
    """
    import symmray

    charges = tensor.charges
    if charges is None:
        raise OperandError("an array of symmray has quantum numbers; the tensor has none")
    for axis, mode in enumerate(charges.modes):
        if len(set(mode)) < len(mode):
            raise OperandError(f"an index of symmray has one block for each charge; mode {axis} has the charges {mode}")
    modulus, names = charges.modulus, sorted(SYMMETRIES.values())
    if modulus not in SYMMETRIES and not isinstance(modulus, int):
        raise UnsupportedError(f"symmray has the symmetries {names} and Zn; found the moduli {modulus}")
    symmetry = SYMMETRIES.get(modulus, f"Z{modulus}")
    indices = [
        symmray.BlockIndex(dict(zip(mode, sizes)), dual=sign < 0)
        for mode, sizes, sign in zip(charges.modes, tensor.sizes, charges.directions)
    ]
    blocks = {tuple(mode[n] for n, mode in zip(at, charges.modes)): block.copy() for at, block in tensor.blocks.items()}
    return symmray.AbelianArray(indices, charge=charges.total, blocks=blocks, symmetry=symmetry)
