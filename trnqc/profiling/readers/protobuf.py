"""Decoding of the protocol buffer wire format, as far as traces need it.

A message is a sequence of (field number, value). Varints and fields of 32 and 64 bits become ints, length-delimited
fields become memoryviews.
"""

from __future__ import annotations

from collections.abc import Iterator

# Wire types.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Field = int | memoryview


class Truncated(ValueError):
    """Raised if a message ends inside a field, or if the bytes are not a message."""


def fields(message: memoryview) -> Iterator[tuple[int, Field]]:
    """Yield (field number, value) of all fields in order.

    Raises Truncated if the message ends inside a field, or a field number or type is invalid.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at, end)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise Truncated("field number 0")
        if kind == VARINT:
            value, at = _varint(message, at, end)
            yield number, value
            continue
        if kind == BYTES:
            size, at = _varint(message, at, end)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise Truncated(f"wire type {kind}")
        if at + size > end:
            raise Truncated(f"a field of {size} bytes where {end - at} are left")
        chunk = message[at : at + size]
        yield number, chunk if kind == BYTES else int.from_bytes(chunk, "little")
        at += size


def _varint(message: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise Truncated("a number of more than ten bytes")
    raise Truncated("a number without its last byte")


def signed(value: int) -> int:
    """Return the signed 64-bit integer that an unsigned value represents."""
    return value - (1 << 64) if value >= 1 << 63 else value


def text(value: Field) -> str:
    """Return a field as UTF-8 text. Raises Truncated if it is a number."""
    if isinstance(value, int):
        raise Truncated("a number where text was expected")
    return bytes(value).decode("utf-8", "replace")


def message(value: Field) -> memoryview:
    """Return a field as the bytes of a message. Raises Truncated if it is a number."""
    if isinstance(value, int):
        raise Truncated("a number where a message was expected")
    return value


def number(value: Field) -> int:
    """Return a field as a number. Raises Truncated if it is bytes."""
    if not isinstance(value, int):
        raise Truncated("bytes where a number was expected")
    return value
