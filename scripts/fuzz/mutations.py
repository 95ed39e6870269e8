"""Random damage of bytes and of text."""

from __future__ import annotations

import random

# What number parsers and size checks get wrong most often.
NASTY = ["-1", "0", "1e400", "nan", "inf", "99999999999999999999", "1.5", "", '"', "null", "[]", "{}", "\x00", "é", "١"]


def mutated(seed: bytes, rng: random.Random) -> bytes:
    """`seed` with one to four changes: bytes flipped, cut out, doubled or replaced, numbers replaced, lines swapped."""
    data = bytearray(seed)
    for _ in range(rng.randint(1, 4)):
        rng.choice(CHANGES)(data, rng)
    return bytes(data)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _cut(data: bytearray, rng: random.Random) -> None:
    begin = rng.randint(0, len(data))
    del data[begin : begin + rng.choice((1, 8, 64, len(data)))]


def _double(data: bytearray, rng: random.Random) -> None:
    begin = rng.randint(0, len(data))
    part = data[begin : begin + rng.choice((1, 8, 64))]
    data[begin:begin] = part


def _nasty(data: bytearray, rng: random.Random) -> None:
    begin = rng.randint(0, len(data))
    data[begin:begin] = rng.choice(NASTY).encode()


def _number(data: bytearray, rng: random.Random) -> None:
    digits = [n for n, byte in enumerate(data) if 48 <= byte <= 57]
    if digits:
        at = rng.choice(digits)
        data[at : at + 1] = rng.choice(NASTY).encode()


def _lines(data: bytearray, rng: random.Random) -> None:
    lines = bytes(data).splitlines(keepends=True)
    rng.shuffle(lines)
    data[:] = b"".join(lines)


CHANGES = (_flip, _cut, _double, _nasty, _number, _number, _lines)
