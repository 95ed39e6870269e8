"""Jobs where clock, disk, memory, processors, locale or time zone are not as usual."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from scripts.soak.case import Broken, Case, NotTried, refused, right, run, trnqc, work

# Jobs that need neither PyTorch nor a new kernel, if the cache has those of STO-3G.
JOBS = ("einsum", "sparse", "scf", "mp2")
# Where Debian and Fedora have the library that shifts the clock of a process.
FAKETIME = ("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "/usr/lib64/faketime/libfaketime.so.1")
# Bytes of memory that the jobs have, by the system's limit and by a control group.
ADDRESSES, GROUP = 2 << 30, 400 << 20
CONTROL_GROUPS = Path("/sys/fs/cgroup")


def mounted(script: str, *places: Path | str) -> list[str]:
    """A command that runs a shell script with its own mounts, which nobody else sees; $1, $2, ... are the places."""
    command = ["unshare", "--mount", "--map-root-user", "sh", "-ec"]
    try:
        able = subprocess.run([*command, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode == 0
    except OSError:
        able = False
    if not able:
        raise NotTried("unshare cannot mount a file system here")
    return [*command, script, "sh", *map(str, places)]


def clock(shift: str) -> Callable[[Path], str]:
    """All jobs with a clock that is shifted, such as "-400d", or that runs at another speed, such as "+0 x1000"."""

    def tried(place: Path) -> str:
        library = next((path for path in FAKETIME if os.path.exists(path)), None)
        if library is None:
            raise NotTried("libfaketime is not installed")
        facts = {"LD_PRELOAD": library, "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        right(run(trnqc("mp2", "water", "--basis", "sto-3g", "--checkpoint", str(place / "kept")), facts))
        return right(run(work(*JOBS), facts))

    return tried


def clock_goes_back(place: Path) -> str:
    """A job of a checkpoint is finished a year before it was begun."""
    library = next((path for path in FAKETIME if os.path.exists(path)), None)
    if library is None:
        raise NotTried("libfaketime is not installed")
    job = trnqc("mp2", "water", "--basis", "sto-3g", "--checkpoint", str(place / "kept"), "--verbose")
    right(run(job))
    again = run(job, {"LD_PRELOAD": library, "FAKETIME": "-1y"})
    right(again, "the job continues after")
    return "right results, from the records of the future"


def read_only_home(place: Path) -> str:
    """HOME on a file system that cannot be written, and no other cache named."""
    script = 'mount -t tmpfs none "$1"; mount -o remount,ro "$1"; shift; exec "$@"'
    facts = {"HOME": str(place), "TRNQC_CACHE_DIR": "", "XDG_CACHE_HOME": ""}
    return right(run([*mounted(script, place), *work("einsum", "sparse")], facts), "is not writable")


def full_disk_of_checkpoint(place: Path) -> str:
    """A checkpoint on a disk of 16 kB, too small for its orbitals; then the disk grows, and the job continues."""
    kept = place / "kept"
    command = trnqc("mp2", "water", "--basis", "sto-3g", "--checkpoint", str(kept), "--quiet")
    script = (
        'mount -t tmpfs -o size=16k none "$1"; place="$1"; shift; if "$@"; then echo finished >&2; exit 3; fi; '
        'mount -o remount,size=64m "$place"; exec "$@"'
    )
    done = run([*mounted(script, place), *command])
    if "trnqc: error:" not in done.stderr or "Traceback" in done.stderr:
        raise Broken(f"expected one error: {done.stderr[-300:]}")
    right(done)
    return f"one error ({done.stderr.split('cannot be')[-1].strip()[:60]}), then right results"


def full_disk_of_cache(place: Path) -> str:
    """A cache of kernels on a disk of 64 kB."""
    script = 'mount -t tmpfs -o size=64k,mode=700 none "$1"; shift; exec "$@"'
    return refused(run([*mounted(script, place), *work("sparse")], {"TRNQC_CACHE_DIR": str(place)}), "No space left")


def limited_files(place: Path) -> str:
    """No file may be larger than 4 kB (RLIMIT_FSIZE), as with a quota."""
    limit = 4 << 10
    command = trnqc("mp2", "water", "--basis", "sto-3g", "--checkpoint", str(place / "kept"))
    done = run(command, prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    happened = refused(done, "cannot be written")
    right(run(command))
    return f"{happened}; right results without the limit"


def in_locale(name: str, charset: str = "UTF-8") -> Callable[[Path], str]:
    """All jobs in a locale, which is built for the case."""

    def tried(place: Path) -> str:
        if not shutil.which("localedef"):
            raise NotTried("localedef is not installed")
        full = f"{name}.{charset}"
        done = run(["localedef", "-i", name, "-f", charset, str(place / full)])
        if not (place / full).exists():
            raise NotTried(f"localedef knows no {full}: {done.stderr.strip()[:100]}")
        facts = {"LOCPATH": str(place), "LC_ALL": full, "LANG": full, "TRNQC_CACHE_DIR": str(place / "cache")}
        right(run(work("einsum", "sparse", "--localised"), facts))
        return right(
            run(work(*JOBS, "--localised"), facts | {"TRNQC_CACHE_DIR": os.environ.get("TRNQC_CACHE_DIR", "")})
        )

    return tried


def plain_ascii(place: Path) -> str:
    """LC_ALL=C without Python's UTF-8 mode: Python then reads files as ASCII unless the program names an encoding."""
    facts = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    right(run(work("einsum", "sparse"), facts | {"TRNQC_CACHE_DIR": str(place / "cache")}))
    return right(run(work(*JOBS), facts))


def time_zone(place: Path) -> str:
    """A time zone 14 hours ahead of UTC, and one that changes its clocks by half an hour."""
    for zone in ("Pacific/Kiritimati", "Australia/Lord_Howe"):
        right(run(trnqc("mp2", "water", "--basis", "sto-3g", "--checkpoint", str(place / "kept")), {"TZ": zone}))
    return "right results, the second from the checkpoint of the first"


def one_cpu(place: Path) -> str:
    """One CPU of this machine, and a request for more threads than that."""
    first = min(os.sched_getaffinity(0))
    facts = {"OMP_NUM_THREADS": "8", "TRNQC_CACHE_DIR": str(place)}
    right(run(work("sparse"), facts, prepare=lambda: os.sched_setaffinity(0, {first})))
    facts = {"OMP_NUM_THREADS": "8"}
    return right(run(work(*JOBS), facts, prepare=lambda: os.sched_setaffinity(0, {first})))


def limited_addresses(place: Path) -> str:
    """The address space limited (ulimit -v)."""
    return right(run(work(*JOBS), prepare=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))))


def limited_group(place: Path) -> str:
    """A control group with a limit of memory, version 2 or 1."""
    version_1 = (CONTROL_GROUPS / "memory").is_dir()
    group = CONTROL_GROUPS / ("memory" if version_1 else "") / f"trnqc-soak-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text(str(GROUP))
    except OSError as error:
        raise NotTried(f"control groups cannot be made here: {error}") from None
    try:

        def enter() -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

        right(run(work(*JOBS), prepare=enter))
        large = trnqc("mp2", "water20", "--basis", "def2-qzvp")
        done = run(large, prepare=enter)
        return f"right results; a job that is too large: {refused(done, 'memory')}"
    finally:
        group.rmdir()


def no_temporary_folder(place: Path) -> str:
    """Neither /tmp nor another place for temporary files can be written."""
    script = (
        "for folder in /tmp /var/tmp /usr/tmp /dev/shm; do if [ -d $folder ]; then mount -t tmpfs -o ro none $folder; "
        'fi; done; cd /proc; exec "$@"'
    )
    cached = right(run([*mounted(script), *work("einsum", "sparse")], {"TMPDIR": "/proc"}))
    job = refused(run([*mounted(script), *trnqc("mp2", "water", "--basis", "sto-3g")], {"TMPDIR": "/proc"}), "TMPDIR")
    fresh = [*mounted(script), *work("sparse")]
    away = tempfile.mkdtemp(prefix=".trnqc-soak-", dir=Path.home())
    try:
        compiled = run(fresh, {"TMPDIR": "/proc", "TRNQC_CACHE_DIR": away})
        ended = right(compiled) if compiled.returncode == 0 else refused(compiled, "TMPDIR")
    finally:
        shutil.rmtree(away, ignore_errors=True)
    return f"contractions with compiled kernels: {cached}; kernels that have to be compiled: {ended}; DF-MP2: {job}"


def cases() -> list[Case]:
    """All surroundings."""
    same = "right results"
    return [
        Case("clock 400 days ago", same, clock("-400d")),
        Case("clock in 20 years", same, clock("+20y")),
        Case("clock a thousand times as fast", same, clock("+0 x1000")),
        Case("clock set back by a year between two runs of a checkpoint", same, clock_goes_back),
        Case("read-only home", "right results, one warning that kernels are not kept", read_only_home),
        Case("full disk, checkpoint", "one error; goes on where there is room", full_disk_of_checkpoint),
        Case("full disk, cache of kernels", "one error", full_disk_of_cache),
        Case("files of at most 4 kB", "one error; goes on without the limit", limited_files),
        Case("Turkish locale, tr_TR.UTF-8", same, in_locale("tr_TR")),
        Case("German locale, de_DE.UTF-8, decimal commas", same, in_locale("de_DE")),
        Case("LC_ALL=C without Python's UTF-8 mode", same, plain_ascii),
        Case("time zones UTC+14 and Lord Howe", same, time_zone),
        Case("one CPU, eight threads asked for", same, one_cpu),
        Case(f"{ADDRESSES >> 30} GB of address space", same, limited_addresses),
        Case(f"control group of {GROUP >> 20} MB", "right results; a larger job is refused, not killed", limited_group),
        Case("no folder for temporary files", "right results, or one error", no_temporary_folder),
    ]
