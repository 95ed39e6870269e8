"""Timing small programs on the modelled engines."""

from trnqc.sim import timeline
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl
from trnqc.sim.timeline.costs import constants_for

P = 128


def timed(body, *args, target="trn2", **options):
    """Timeline of ``body(*args)``."""
    return timeline(body, target=target, **options)(*args)


def bars(timeline, engine, queue=None):
    """Events of an engine in order of time."""
    events = [e for e in timeline.events if e.engine == engine and queue in (None, e.queue)]
    return sorted(events, key=lambda e: e.start_ns)


def cycles(timeline, event):
    """Length of an event in cycles of its engine."""
    return (event.end_ns - event.start_ns) * constants_for(timeline.target)[f"{event.engine}_ghz"]


def sbuf(columns, rows=P, dtype=nl.float32):
    """A fresh SBUF tile, with nothing to wait for."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def psum(columns, rows=P):
    return nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)


def add(dst, a, b, **kwargs):
    nisa.tensor_tensor(dst=dst, data1=a, data2=b, op=nl.add, **kwargs)


def output(shape=(P, 1)):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)
