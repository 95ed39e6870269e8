"""The rates with which plans are made on this machine.

    rates measured by an earlier process ──────────────────────────────► rates
    none ─► shipped rates of a machine with equally long vectors, at once ─► rates
         └► a process of low priority measures, and keeps the result in the user's cache directory for later processes

All plans of a process use the same rates, which decide only which plan is chosen, never what it computes.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path

from trnqc.errors import CompilerError, InputError, StorageError
from trnqc.host.files import locked, write_aside
from trnqc.host.memory import data_caches
from trnqc.host.rates import rates_file, read_rates
from trnqc.jit import find_compiler
from trnqc.sparse.search.rates import WorkRates
from trnqc.sparse.search.shipped_rates import shipped_rates
from trnqc.version import __version__

# Environment variable that says whether a process waits for compiled integral kernels, and here for measured rates.
VARIABLE = "TRNQC_KERNELS"
WORDS = ("background", "wait", "cached")
# Seconds after the start of a measurement before another process of the same machine may start one.
RETRY = 600.0
# Measurements that are tried, and seconds between two of them, while other programs disturb them.
ATTEMPTS, PAUSE = 5, 10.0
# Niceness of the measuring process, the lowest priority.
NICE = 19
# Part of the second cache that counts, since code and other data use it as well.
USABLE = 0.75
# Rates that no processor with the same vectors differs in by more than FACTOR from the shipped ones. The other rates
# may come out as zero, because the fit cannot tell them from others.
TYPICAL = ("dense_turn", "compressed_turn", "row_element", "gathered_element", "scattered_element", "matrix_product")
FACTOR = 10.0

_START = """
import sys
sys.path[:] = sys.argv[1:]
from trnqc.sparse.run.machine_rates import main
main()
"""
_processes: list[subprocess.Popen[bytes]] = []


@cache
def machine_rates() -> WorkRates:
    """Return the rates of this machine, see the module; the defaults without a C compiler, as then no nest can run.

    Raises
    ------
    InputError
        If the environment variable TRNQC_KERNELS is neither ``"background"`` (the default), nor ``"wait"`` (measure
        before the first plan), nor ``"cached"`` (do not measure).
    """
    word = os.environ.get(VARIABLE) or WORDS[0]
    if word not in WORDS:
        raise InputError(f"{VARIABLE} is one of {', '.join(WORDS)}, found {word!r}")
    try:
        typical, path = _typical_rates(), _kept_file()
    except CompilerError:
        return WorkRates()
    rates = read_rates(path, WorkRates)
    if rates is not None and is_plausible(rates, typical):
        return rates
    if word == "wait":
        return measure_and_keep(attempts=1) or typical
    if word == "background" and _may_start(path):
        _start()
    return typical


def measure_and_keep(attempts: int = ATTEMPTS) -> WorkRates | None:
    """Measure the rates of this machine, and keep them in the user's cache directory.

    Returns the rates, also if another process has kept them meanwhile, or None if other programs disturbed all
    attempts.
    """
    typical, path = _typical_rates(), _kept_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_suffix(".lock")):
            kept = read_rates(path, WorkRates)
            if kept is not None and is_plausible(kept, typical):
                return kept
            rates = _measure(typical, attempts)
            if rates is not None:
                write_aside(path, json.dumps(asdict(rates)))
            return rates
    except (OSError, StorageError):
        # The directory cannot be written: the rates serve this process only.
        return _measure(typical, attempts)


def is_plausible(rates: WorkRates, typical: WorkRates) -> bool:
    """Return whether all rates are finite, and the rates in TYPICAL within FACTOR of their typical values."""
    numbers = [getattr(rates, field.name) for field in fields(WorkRates) if field.name != "source"]
    if not all(isinstance(x, (int, float)) and math.isfinite(x) and x >= 0 for x in numbers):
        return False
    return all(
        getattr(typical, name) / FACTOR <= getattr(rates, name) <= getattr(typical, name) * FACTOR for name in TYPICAL
    )


def main() -> None:
    """Measure at the lowest priority: the work of the process that `machine_rates` starts."""
    with suppress(OSError):
        os.nice(NICE)
    measure_and_keep()


def _measure(typical: WorkRates, attempts: int) -> WorkRates | None:
    from trnqc.sparse.run.measured_rates import measured_rates

    for attempt in range(attempts):
        time.sleep(PAUSE if attempt else 0.0)
        rates = measured_rates(typical)
        if rates is not None and is_plausible(rates, typical):
            return rates
    return None


def _typical_rates() -> WorkRates:
    """Return the shipped rates for the vectors of this machine, with the sizes of its caches."""
    rates, caches = shipped_rates(find_compiler().vector_bytes), data_caches()
    second = USABLE * caches["L2"] if "L2" in caches else rates.second_cache
    return replace(rates, first_cache=caches.get("L1", rates.first_cache), second_cache=second)


def _kept_file() -> Path:
    compiler = find_compiler()
    return rates_file("sparse-rates", compiler.label, f"{compiler.vector_bytes}B", __version__)


def _may_start(path: Path) -> bool:
    """Return whether no measurement was started within RETRY seconds, and note that one is started now.

    The time of the last start is that of the lock file. If it cannot be written, neither can the rates.
    """
    lock = path.with_suffix(".lock")
    try:
        if lock.exists() and time.time() - lock.stat().st_mtime < RETRY:
            return False
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    except OSError:
        return False
    return True


def _start() -> None:
    """Start the measuring process, in a process group of its own, so that Ctrl-C interrupts only the job."""
    command = [sys.executable, "-c", _START, *(os.path.abspath(path) for path in sys.path)]
    with suppress(OSError):
        _processes.append(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        )


@atexit.register
def _leave() -> None:
    """Let the measuring process outlive this one without a warning of Popen."""
    for process in _processes:
        process.returncode = 0


def _forget() -> None:
    """In a forked process, drop the process of its parent."""
    _leave()
    _processes.clear()


os.register_at_fork(after_in_child=_forget)
