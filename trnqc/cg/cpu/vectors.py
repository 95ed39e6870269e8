"""Arrays and vectors of CPU programs: arrays in memory, scratch arrays, and loads and stores of partial vectors."""

from __future__ import annotations

from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder


def index(number: Value | int) -> Value:
    """Return a number as a constant of the type of indices; values are returned unchanged."""
    return const(number, "i64") if isinstance(number, int) else number


ZERO = index(0)


def memory(name: str, dtype: str) -> Array:
    """Return an array in memory, a parameter of a function."""
    return Array(name, dtype)


def vectors(name: str, size: int, dtype: str) -> Array:
    """Return an array of at least `size` vectors, of which each lane sees its own element."""
    return Array(name, dtype, (max(1, size),), "local", lanes=True)


def shared(name: str, size: int, dtype: str) -> Array:
    """Return a scratch array of at least `size` elements that all lanes can read."""
    return Array(name, dtype, (max(1, size),), space="shared")


def declare_vectors(b: Builder, name: str, size: int, dtype: str) -> Array:
    """Declare an array of at least `size` vectors with a fresh name."""
    return b.array(name, dtype, (max(1, size),), lanes=True)


def declare_shared(b: Builder, name: str, size: int, dtype: str) -> Array:
    """Declare a scratch array of at least `size` elements that all lanes can read."""
    array = shared(name, size, dtype)
    b.add(st.DeclareArray(array))
    return array


def clear(b: Builder, array: Array, size: int) -> None:
    """Set the first `size` vectors of an array to zero."""
    if size:
        with b.loop("at", size) as at:
            b.store(array[at], 0)


def load_vector(b: Builder, source: Array, place: Value | int, rows: int, stride: int = 1) -> Value:
    """Load `rows` elements, `stride` apart, from `place` into the lanes of a vector; the other lanes are zero."""
    vector = b.array("read", source.dtype, (1,), lanes=True)
    b.add(st.Unpack(vector, ZERO, source, index(place), stride, 1, rows))
    return vector[0]


def store_vector(b: Builder, to: Array, place: Value | int, value: Value, rows: int, stride: int = 1) -> None:
    """Store the first `rows` lanes of a vector in memory; for the arguments see `load_vector`."""
    vector = b.array("write", to.dtype, (1,), lanes=True)
    b.store(vector[0], value)
    b.add(st.Pack(to, index(place), vector, ZERO, stride, 1, rows))


def view(array: Array, place: int = 0) -> st.View:
    """Return the part of an array that begins at a constant position."""
    return st.View(array, index(place))
