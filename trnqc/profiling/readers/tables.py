"""Reader of the vendor's Parquet tables, from a directory (``name@latest/``) or a single file.

The kind of a table is recognised from its columns and not from its name, so renamed and numbered files are read, too.
The files are read by pyarrow, an optional dependency.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.errors import InputError, UnsupportedError
from trnqc.profiling.machines import target_of
from trnqc.profiling.profile import NO_STALL, Labels, Profile, Series, Value
from trnqc.profiling.readers.fields import normal
from trnqc.profiling.readers.lanes import Columns, columns, lanes

# Kind of table -> columns that only it has (schema 7.4 of the vendor's reference).
KINDS: dict[str, frozenset[str]] = {
    "Instruction": frozenset({"engine", "opcode", "start_ts", "end_ts", "pc"}),
    "DmaPacket": frozenset({"start_ts", "end_ts", "packet_idx", "transfer_bytes"}),
    "DmaPacketAggregated": frozenset({"start_ts", "end_ts", "queue_name", "transfer_bytes", "block_id"}),
    "Summary": frozenset({"total_time"}),
    "Metadata": frozenset({"ntff_version", "profile_schema_version"}),
    "SbufUsage": frozenset({"timestamp", "partition_0_util_percent"}),
    "PsumUsage": frozenset({"timestamp", "bank_0_util_percent"}),
    "DmaUsage": frozenset({"timestamp", "current_throughput"}),
}
# Kinds of tables of which a profile needs at least one.
NEEDED = ("Instruction", "DmaPacket", "DmaPacketAggregated", "Summary")
# Columns of the metadata that are kept as provenance.
VERSIONS = ("runtime_version", "driver_version", "explorer_version", "compiler_version", "profile_schema_version")


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UnsupportedError(
            "Parquet tables need pyarrow, which is not installed: pip install 'trnqc[profiles]' "
            "(or export with --output-format json)"
        ) from error
    return pyarrow.parquet


def read(path: Path) -> tuple[Profile, ...]:
    """Return the profile of the tables.

    Raises UnsupportedError if pyarrow is not installed, InputError if a file is not Parquet or truncated, or no table
    is of a known kind.
    """
    parquet = _pyarrow()
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    tables: dict[str, list[Any]] = {}
    for file in files:
        kind = _kind(parquet, file)
        if kind:
            tables.setdefault(kind, []).append(_table(parquet, file))
    if not any(kind in tables for kind in NEEDED):
        raise InputError(
            f"{path}: expected the vendor's tables {', '.join(NEEDED)}, found "
            f"{', '.join(file.stem for file in files) or 'no Parquet file'} without their columns"
        )
    return (_profile(tables, path),)


def _open(action: Callable[[], Any], file: Path) -> Any:
    import pyarrow

    try:
        return action()
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{file}: expected a whole Parquet file, found one that cannot be read: {error}") from error


def _kind(parquet: Any, file: Path) -> str | None:
    names = set(_open(lambda: parquet.read_schema(file), file).names)
    return next((kind for kind, marks in KINDS.items() if marks <= names), None)


def _table(parquet: Any, file: Path) -> Any:
    # Files are opened one by one, because the dataset layer would parse "@" and "=" in paths as partition keys.
    return _open(lambda: parquet.ParquetFile(file).read(), file)


def _profile(tables: Mapping[str, list[Any]], path: Path) -> Profile:
    fields, notes = normal(_one_row(tables.get("Summary", []), path, "Summary"))
    metadata = _one_row(tables.get("Metadata", []), path, "Metadata")
    events = [_instructions(table, path) for table in tables.get("Instruction", [])]
    # Packets and their aggregates describe the same traffic, so only the finer table is used.
    packets = tables.get("DmaPacket") or tables.get("DmaPacketAggregated", [])
    events += [_transfers(table, path) for table in packets]
    return Profile(
        title=str(metadata.get("profile_name") or path.name.removesuffix("@latest").removesuffix(".parquet")),
        path=str(path),
        format="vendor Parquet tables",
        measurement="modelled" if metadata.get("is_simulation") else "device",
        target=target_of(str(metadata.get("instance_type") or "")),
        summary=fields | _peaks(fields, metadata),
        lanes=lanes(events, path, "table row"),
        series=_series(tables, _origin(events)),
        provenance={k: str(metadata[k]) for k in ("instance_type", *VERSIONS) if metadata.get(k) is not None},
        notes=notes,
    )


def _one_row(tables: list[Any], path: Path, kind: str) -> dict[str, Any]:
    rows = [row for table in tables for row in table.to_pylist()]
    if len(rows) > 1:
        raise InputError(f"{path}: expected one row in {kind}, found {len(rows)}; read one profile at a time")
    return {k: v for k, v in rows[0].items() if v is not None} if rows else {}


def _peaks(fields: Mapping[str, Value], metadata: Mapping[str, Any]) -> dict[str, Value]:
    """Return the ridge point from the machine figures in the metadata, if the summary lacks it."""
    rows, cols = metadata.get("tensor_engine_num_rows"), metadata.get("tensor_engine_num_cols")
    clock, stack = metadata.get("tensor_engine_clock_freq"), metadata.get("hbm_ddr_bandwidth")
    if "peak_flops_bandwidth_ratio" in fields or not (rows and cols and clock and stack):
        return {}
    return {"peak_flops_bandwidth_ratio": 2.0 * rows * cols * clock * 1e9 / stack}


def _numbers(table: Any, name: str, path: Path, default: float | None = None) -> np.ndarray:
    """Return one column as int64 or float64. Nulls are replaced by the default and are an error without one."""
    if name not in table.column_names:
        if default is None:
            raise InputError(f"{path}: expected the column {name!r}, found {', '.join(table.column_names[:8])}, ...")
        return np.full(table.num_rows, default)
    column = table[name].combine_chunks()
    if column.null_count:
        if default is None:
            raise InputError(f"{path}: column {name!r}: expected a number in every row, {column.null_count} lack it")
        column = column.fill_null(int(default))
    return column.to_numpy(zero_copy_only=False)


def _strings(table: Any, *names: str) -> Labels:
    """Return the first of these columns that the table has, with nulls as empty strings."""
    name = next((name for name in names if name in table.column_names), None)
    if name is None:
        return Labels.same("", table.num_rows)
    column = table[name].combine_chunks().cast("string").fill_null("").dictionary_encode()
    return Labels(column.indices.to_numpy(zero_copy_only=False).astype(np.int32), tuple(column.dictionary.to_pylist()))


def _instructions(table: Any, path: Path) -> Columns:
    waits = _numbers(table, "evt_wait_time_ns", path, 0.0)
    return columns(
        _strings(table, "engine"),
        _numbers(table, "start_ts", path),
        _numbers(table, "end_ts", path),
        _strings(table, "opcode"),
        _strings(table, "nki_source_location", "bir_instruction_name", "operands"),
        core=_numbers(table, "pcore_idx", path, 0),
        stall=Labels((waits > 0).astype(np.int32), (NO_STALL, "semaphore")),
        stall_ns=waits,
    )


def _transfers(table: Any, path: Path) -> Columns:
    queue = _strings(table, "queue_name")
    queue = Labels(queue.codes, tuple(f"dma {name}".strip() for name in queue.names))
    if "engine_idx" in table.column_names and not table["engine_idx"].null_count:
        index = _numbers(table, "engine_idx", path).astype(np.int32)
        engines, codes = np.unique(index, return_inverse=True)
        queue = Labels(codes.astype(np.int32), tuple(f"dma{k}" for k in engines))
    return columns(
        queue,
        _numbers(table, "start_ts", path),
        _numbers(table, "end_ts", path),
        _strings(table, "queue_type", "op"),
        _strings(table, "variable"),
        core=_numbers(table, "pcore_idx", path, 0),
    )


def _origin(events: list[Columns]) -> int:
    return min((int(table.start.min()) for table in events if len(table)), default=0)


def _series(tables: Mapping[str, list[Any]], origin: int) -> list[Series]:
    """Return the SBUF use, PSUM use and DMA throughput of the first core over time, one series per quantity."""
    wanted = (
        ("SbufUsage", "avg_util_percent", "SBUF in use", "%"),
        ("PsumUsage", "avg_util_percent", "PSUM in use", "%"),
        ("DmaUsage", "current_throughput", "DMA throughput", "B/s"),
    )
    series = []
    for kind, column, name, unit in wanted:
        for table in tables.get(kind, [])[:1]:
            if column not in table.column_names:
                continue
            core = _numbers(table, "pcore_idx", Path(kind), 0)
            keep = core == core.min() if len(core) else slice(None)
            value = _numbers(table, column, Path(kind), 0.0)[keep].astype(np.float64)
            # As in the summary, the vendor's percentages are fractions of one.
            scale = 100.0 if unit == "%" and len(value) and value.max() <= 1.5 else 1.0
            time = (_numbers(table, "timestamp", Path(kind))[keep] - origin).astype(np.float64)
            series.append(Series(name, unit, time, scale * value))
    return series
