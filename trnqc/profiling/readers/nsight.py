"""``nsys stats --report cuda_gpu_trace --format json``: a list of kernels and copies on the streams of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trnqc.errors import InputError
from trnqc.profiling.profile import Profile
from trnqc.profiling.readers.tracks import Track, to_lanes

START, DURATION = "Start (ns)", "Duration (ns)"


def matches(data: Any) -> bool:
    """Return whether decoded JSON is a GPU trace of Nsight Systems."""
    return isinstance(data, list) and bool(data) and isinstance(data[0], Mapping) and {START, DURATION} <= set(data[0])


def read(data: list[Any], path: Path) -> tuple[Profile, ...]:
    """Return the profile of a trace. Raises InputError if a row has no start or duration."""
    tracks: dict[str, Track] = {}
    for k, row in enumerate(data):
        if not isinstance(row, Mapping):
            raise InputError(f"{path}: row {k}: expected an object, found {row!r:.80}")
        stream = f"stream {row.get('Strm', '?')}"
        device = str(row.get("Device", "GPU"))
        track = tracks.setdefault(f"{device}/{stream}", Track(device, stream))
        start, duration = _whole(row, START, path, k), _whole(row, DURATION, path, k)
        track.add(start, start + duration, str(row.get("Name", "")))
    stream_lanes = to_lanes(list(tracks.values()), path)
    return (Profile(path.stem, str(path), "Nsight Systems GPU trace JSON", "device", lanes=stream_lanes),)


def _whole(row: Mapping[str, Any], key: str, path: Path, k: int) -> int:
    """Return a field as an integer. It may be a number, or text with or without thousands separators."""
    value = row.get(key)
    text = str(value).replace(",", "")
    if not text.isdecimal() or not text.isascii() or len(text) > 19 or int(text) >= 2**63:
        raise InputError(f"{path}: row {k}: {key}: expected a whole number, found {value!r:.80}")
    return int(text)
