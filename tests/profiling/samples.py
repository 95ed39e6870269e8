"""Small profiles in every form that is read, made from one schedule laid out as the forms' documentation describes.

The schedule, in ns: Tensor works in [0, 400) and [500, 900), Vector in [300, 600), Scalar in [850, 1000), two DMA
engines in [0, 200) and [100, 300). So Vector and Scalar work 450 ns, of which 250 lie behind the Tensor engine.
"""

from __future__ import annotations

import json
from pathlib import Path

EPOCH = 1_729_888_371_056_597_613  # a clock since 1970: larger than 2^53
SCHEDULE = (
    # engine, op, start, end, name, stall before it
    ("tensor", "nc_matmul", 0, 200, "kernel.py:10", "none", 0),
    ("tensor", "nc_matmul", 200, 400, "kernel.py:10", "none", 0),
    ("tensor", "nc_matmul", 500, 900, "kernel.py:11", "raw", 100),
    ("vector", "tensor_tensor", 300, 600, "kernel.py:14", "raw", 300),
    ("scalar", "activation", 850, 1000, "kernel.py:15", "psum_bank", 250),
    ("dma0", "dma_copy", 0, 200, "kernel.py:7", "none", 0),
    ("dma1", "dma_copy", 100, 300, "kernel.py:7", "dma_queue", 40),
)
TENSOR, VECTOR, SCALAR, DMA, TOTAL = 800, 300, 150, 300, 1000
OVERLAP = {"tensor": 800, "helpers": 450, "both": 250}
FLOPS, HBM = 2 * 128 * 128 * 512 * 3, 3 << 18
OPCODES = {"nc_matmul": "MATMUL", "tensor_tensor": "TENSOR_TENSOR", "activation": "ACTIVATE"}
COMPUTE = tuple(row for row in SCHEDULE if not row[0].startswith("dma"))
TRANSFERS = tuple(row for row in SCHEDULE if row[0].startswith("dma"))


def summary(scale: float = 100.0) -> dict:
    """Vendor fields of the schedule; scale 1 writes percentages as the vendor's tools do."""
    seconds = 1e-9
    return {
        "total_time": TOTAL * seconds,
        "tensor_engine_active_time": TENSOR * seconds,
        "tensor_engine_active_time_percent": TENSOR / TOTAL * scale,
        "vector_engine_active_time": VECTOR * seconds,
        "vector_engine_active_time_percent": VECTOR / TOTAL * scale,
        "dma_active_time_percent": DMA / TOTAL * scale,
        "hardware_flops": FLOPS,
        "hbm_read_bytes": HBM,
        "hbm_write_bytes": 0,
    }


def timeline(**changes: object) -> dict:
    keys = ("engine", "op", "start_ns", "end_ns", "name", "stall", "stall_ns")
    events = [
        dict(zip(keys, row)) | {"queue": row[0], "static_id": k, "iteration": [k]} for k, row in enumerate(SCHEDULE)
    ]
    return {
        "schema": "trnqc.timeline/1",
        "measurement": "modelled",
        "kernel": "gemm",
        "target": "trn2",
        "constants": {"launch_ns": 0},
        "versions": {"trnqc": "0.1"},
        "summary": summary() | {"measurement": "modelled"},
        "events": events,
        "stalls": {"tensor": {"raw": 100}, "vector": {"raw": 300}, "scalar": {"psum_bank": 250}},
        "extrapolation": "every iteration was timed",
        "high_water": {"sbuf": 4096, "psum": 2048},
    } | changes


def summary_json() -> dict:
    return {"n_0123abcd": summary(scale=1.0) | {"mbu_min_read_util_percent": -1.0}}


def vendor_json() -> dict:
    labels = {"tensor": "TensorMatrix", "vector": "Vector", "scalar": "Scalar"}
    instructions = [
        {
            "timestamp": EPOCH + start,
            "duration": end - start,
            "label": labels[engine],
            "hlo_name": "%dot.1",
            "opcode": OPCODES[op],
            "operands": "src=fp32@0x5600[1,0,0][3,1,1]",
        }
        for engine, op, start, end, *_ in COMPUTE
    ]
    return {"summary": [summary(scale=1.0) | {"event_count": 7}], "instruction": instructions}


def system_json() -> dict:
    event = {"duration": 27094, "group": "nrt-nc-000", "id": 1, "name": "nrt_tensor_write", "timestamp": EPOCH}
    return {"trace_events": [event, event | {"name": "nrt_execute", "timestamp": EPOCH + 30000}], "mem_usage": []}


def chrome() -> dict:
    """As torch.profiler and Chrome write: microseconds, complete events, names as metadata."""
    lanes = list(dict.fromkeys(row[0] for row in SCHEDULE))
    names = [{"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "NeuronCore 0"}}]
    names += [
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": k, "args": {"name": lane}} for k, lane in enumerate(lanes)
    ]
    events = [
        {
            "ph": "X",
            "pid": 7,
            "tid": lanes.index(row[0]),
            "ts": row[2] / 1000,
            "dur": (row[3] - row[2]) / 1000,
            "name": row[1],
        }
        for row in SCHEDULE
    ]
    return {"traceEvents": names + events}


def nsight() -> list:
    row = {"Start (ns)": EPOCH, "Duration (ns)": 1500, "CorrId": 1, "GrdX": 8, "Device": "GPU (0)", "Ctx": 1, "Strm": 7}
    copy = {"Start (ns)": EPOCH + 1000, "Duration (ns)": "2,000", "Device": "GPU (0)", "Ctx": 1, "Strm": 13}
    return [row | {"Name": "gemm_kernel"}, copy | {"Name": "[CUDA memcpy HtoD]"}]


def parquet(folder: Path) -> Path:
    """A directory of tables with the columns of the vendor's schema reference."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    here = folder / "my-profile@latest"
    here.mkdir()
    instructions = [
        {
            "start_ts": EPOCH + start,
            "end_ts": EPOCH + end,
            "duration_ns": end - start,
            "engine": engine.capitalize(),
            "opcode": OPCODES[op],
            "operands": "",
            "id": k,
            "pc": k,
            "bir_id": f"sg0000:{k}",
            "pcore_idx": 0,
            "evt_wait_time_ns": wait or None,
            "nki_source_location": name,
        }
        for k, (engine, op, start, end, name, _, wait) in enumerate(COMPUTE)
    ]
    packets = [
        {
            "start_ts": EPOCH + start,
            "end_ts": EPOCH + end,
            "duration_ns": end - start,
            "packet_idx": k,
            "engine_idx": int(engine[3:]),
            "transfer_bytes": 1024,
            "queue_type": "hardware_dynamic",
            "queue_name": "qSyncIO0",
            "variable": "input_tensor",
            "pcore_idx": 0,
        }
        for k, (engine, _, start, end, *_) in enumerate(TRANSFERS)
    ]
    metadata = {
        "profile_schema_version": "7.4.0",
        "ntff_version": 6,
        "instance_type": "trn2.48xlarge",
        "profile_name": "gemm on a device",
        "is_simulation": False,
        "compiler_version": "2.21",
    }
    usage = [
        {"timestamp": EPOCH + t, "avg_util_percent": v, "partition_0_util_percent": v, "pcore_idx": 0}
        for t, v in ((0, 0.1), (500, 0.4))
    ]
    tables = {"Instruction": instructions, "DmaPacket": packets, "Summary": [summary(1.0)]}
    tables |= {"Metadata": [metadata], "SbufUsage": usage}
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows), here / f"{name}.parquet")
    return here


def write(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def pftrace() -> bytes:
    """Track descriptors, interned names and begin-end pairs, written by Perfetto's own package."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

    trace = pb.Trace()
    process, uuid = 1000, {lane: k for k, lane in enumerate(dict.fromkeys(row[0] for row in SCHEDULE), start=1)}
    packet = trace.packet.add()
    packet.track_descriptor.uuid = process
    packet.track_descriptor.process.pid = 7
    packet.track_descriptor.process.process_name = "nc0"
    for lane, k in uuid.items():
        packet = trace.packet.add()
        packet.track_descriptor.uuid, packet.track_descriptor.parent_uuid = k, process
        packet.track_descriptor.name = lane
    packet = trace.packet.add()
    packet.trusted_packet_sequence_id, packet.sequence_flags = 1, pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    ops = list(dict.fromkeys(row[1] for row in SCHEDULE))
    for k, op in enumerate(ops, start=1):
        entry = packet.interned_data.event_names.add()
        entry.iid, entry.name = k, op
    marks = [(row[2], 1, k) for k, row in enumerate(SCHEDULE)] + [(row[3], 0, k) for k, row in enumerate(SCHEDULE)]
    for time, begins, k in sorted(marks):
        lane, op, *_, name, _, _ = SCHEDULE[k]
        packet = trace.packet.add()
        packet.timestamp, packet.trusted_packet_sequence_id = EPOCH + time, 1
        packet.track_event.track_uuid = uuid[lane]
        packet.track_event.type = pb.TrackEvent.TYPE_SLICE_BEGIN if begins else pb.TrackEvent.TYPE_SLICE_END
        if begins:
            packet.track_event.name_iid = ops.index(op) + 1
            note = packet.track_event.debug_annotations.add()
            note.name, note.string_value = "name", name
    packet = trace.packet.add()
    packet.track_descriptor.uuid, packet.track_descriptor.parent_uuid = 50, process
    packet.track_descriptor.name = "SBUF in use"
    packet.track_descriptor.counter.unit_name = "%"
    packet = trace.packet.add()
    packet.timestamp, packet.trusted_packet_sequence_id = EPOCH + 500, 1
    packet.track_event.type, packet.track_event.track_uuid = pb.TrackEvent.TYPE_COUNTER, 50
    packet.track_event.double_counter_value = 12.5
    return trace.SerializeToString()
