"""Arrays of a program. Reading an element gives a value; `statements.store` and `accumulate` write to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from trnqc.errors import ProgramError
from trnqc.gen.values import DTYPES, INTEGERS, Number, Value, as_value, cast


@dataclass(frozen=True)
class Array:
    """An array in row-major order. ``a[i, j]`` is the value of an element.

    Parameters
    ----------
    name : str
        The name of the array in the program.
    dtype : str
        The type of the elements: f64, f32, i64 or i32.
    shape : tuple
        The extents, as integers or i64 values. The first may be None, because no position depends on it.
    space : str
        "global" for a parameter, "local" for an array of one lane, "shared" for an array of all lanes of a group
        (shared memory on a GPU), or "constant" for a table.
    lanes : bool
        Whether each element holds one number for each lane. The lane is then the fastest index.
    data : tuple of numbers, optional
        The elements of a constant table.

    Raises
    ------
    ProgramError
        If the space or the type is unknown, if an array that is not global has an extent that is not a number, or if
        the data do not fit the shape.
    """

    name: str
    dtype: str
    shape: tuple[int | Value | None, ...] = (None,)
    space: str = "global"
    lanes: bool = False
    data: tuple[Number, ...] | None = None

    def __post_init__(self) -> None:
        if self.space not in ("global", "local", "shared", "constant"):
            raise ProgramError(f"array {self.name}: a space is global, local, shared or constant; found {self.space!r}")
        if self.dtype not in DTYPES or self.dtype == "bool":
            raise ProgramError(f"array {self.name}: elements are f64, f32, i64 or i32, found {self.dtype!r}")
        if self.space != "global" and not all(isinstance(n, int) and n > 0 for n in self.shape):
            raise ProgramError(
                f"array {self.name}: the extents of a {self.space} array are positive integers, found {self.shape}"
            )
        if (self.data is not None) != (self.space == "constant") or (self.data and len(self.data) != self.size):
            raise ProgramError(
                f"array {self.name}: a constant array needs one number for each element, other arrays none"
            )

    @cached_property
    def size(self) -> int | None:
        """The number of elements for one lane, or None if it is known only at run time."""
        size = 1
        for extent in self.shape:
            if not isinstance(extent, int):
                return None
            size *= extent
        return size

    def offset(self, *index: Value | int) -> Value:
        """The row-major position of an element, as an i64 value."""
        if len(index) != len(self.shape):
            raise ProgramError(f"array {self.name} has {len(self.shape)} indices, found {len(index)}")
        if None in self.shape[1:]:
            raise ProgramError(f"array {self.name}: only the first extent may be unknown")
        return row_major(index, [extent for extent in self.shape[1:] if extent is not None])

    def __str__(self) -> str:
        """The array without its data, as part of the keys of values that read it."""
        extents = ",".join(n.key if isinstance(n, Value) else str(n) for n in self.shape)
        return f"{self.name}:{self.dtype}:{extents}:{self.space}:{self.lanes}"

    def __getitem__(self, index: Value | int | tuple[Value | int, ...]) -> Value:
        return Value("load", self.dtype, (self.offset(*(index if isinstance(index, tuple) else (index,))),), self)


def row_major(index: Sequence[Value | int], extents: Sequence[Value | int]) -> Value:
    """The position of an element of a row-major array, as an i64 value; `extents` are of all axes but the first."""
    position = _position(index[0])
    for extent, i in zip(extents, index[1:], strict=True):
        position = position * extent + _position(i)
    return as_value(position, "i64")


def _position(index: Value | int) -> Value | int:
    """An index as an i64. Constants become Python integers, so that constant positions are computed here."""
    if not isinstance(index, Value):
        return index
    if index.dtype not in INTEGERS:
        raise ProgramError(f"an index is an i64 or an i32, found {index.dtype}")
    return index.attr if index.op == "const" else cast(index, "i64")
