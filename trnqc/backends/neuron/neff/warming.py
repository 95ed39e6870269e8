"""Compile programs in advance, on a device of the target or, without a device, by the vendor's compiler.

With a device, one launch on zeros compiles the program. Without a device, ``neuron_parallel_compile``
collects the graph of the same launch without running it, and then compiles it for the target into the cache of
PyTorch/XLA. The flags are part of its keys, so that they have to name the target already, as those of later launches
do. The native path can compile only on an instance of the target. Either happens in a process of its own, whose caches
are private, so that what another process compiles meanwhile is not taken for our own (ledger.claim).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from nki_kernels.descriptors import kernels
from trnqc.backends.neuron import packages
from trnqc.backends.neuron.device import open_device
from trnqc.backends.neuron.neff import ledger
from trnqc.backends.neuron.neff.caches import option, redirected
from trnqc.backends.neuron.neff.programs import NeffProgram
from trnqc.backends.nki.launch import launch as launch_kernel
from trnqc.backends.nki.vendor import synchronize
from trnqc.errors import CompilerError
from trnqc.host.files import temporary_place
from trnqc.tuning.conditions import chip_target, machine_target

TOOL = "neuron_parallel_compile"
TIMEOUT = 3600.0
"""The time limit in seconds of each command of the tool."""


def warm(program: NeffProgram) -> list[Path]:
    """Compile a program into the vendor's caches.

    Returns
    -------
    list of Path
        The new entries. Empty if the caches have the program already.

    Raises
    ------
    CompilerError
        If this machine has neither a device of the target nor the compiler, or if a command fails. Without a device
        also if NEURON_CC_FLAGS does not name the target.
    """
    if program in ledger.owners().values():
        return []
    devices = packages.device_files()
    script = [sys.executable, "-m", "trnqc.backends.neuron.neff.warming", json.dumps(asdict(program))]
    commands = [script]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
    if not devices or (chip_target() or machine_target()) != program.target:
        tool = shutil.which(TOOL)
        if tool is None:
            raise CompilerError(_no_compiler(program, devices))
        _require_target(program)
        commands = [[tool, "--command", command, *script] for command in ("collect", "compile")]
        environment["NEURON_PLATFORM_TARGET_OVERRIDE"] = program.target
    with tempfile.TemporaryDirectory(prefix="trnqc-neff-", dir=temporary_place()) as place:
        environment |= redirected(environment, Path(place))
        for command in commands:
            _run(command, environment)
        return ledger.claim(program, Path(place))


def _no_compiler(program: NeffProgram, devices: tuple[str, ...]) -> str:
    machine = f"its devices are {chip_target() or machine_target()}" if devices else "it has no /dev/neuron* device"
    return (
        f"{program.words()} cannot be compiled on this machine: {machine}, and the vendor's {TOOL} is not on PATH. "
        f"Run this on a {program.target} instance, or install the compiler: {packages.INSTALL}"
    )


def _require_target(program: NeffProgram) -> None:
    """Refuse flags under which the compiler would not compile for the target, or a launch would not find the result."""
    flags = os.environ.get("NEURON_CC_FLAGS", "")
    named, _ = option(flags, "target")
    if named != program.target:
        found = f"it names {named}" if named else f"it is {flags!r}"
        raise CompilerError(
            f"{program.words()} cannot be compiled without a device of {program.target} here: the cache of PyTorch/XLA "
            f"is keyed by NEURON_CC_FLAGS as a launch has it, so that it has to name the target, and {found}. Set "
            f"NEURON_CC_FLAGS='{' '.join(filter(None, (flags, f'--target={program.target}')))}' for this command and "
            f"for the launches, or run it on a {program.target} instance"
        )


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    name = " ".join(command[:3])
    try:
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        raise CompilerError(f"`{name}` has not finished after {TIMEOUT:.0f} s; nothing was stored") from None
    if process.returncode:
        last = "\n".join((process.stdout + process.stderr).strip().splitlines()[-20:])
        raise CompilerError(f"`{name}` ended with status {process.returncode}:\n{last}")


def launch(program: NeffProgram) -> None:
    """Launch the program once on zeros, on the device of this machine or for the graph that the tool collects."""
    device, kernel = open_device(), kernels()[program.kernel]
    zeros = kernel.example(program.shape, program.precision, program.constants, device.cores, np.zeros)
    args = [device.put(arg) for arg in zeros.args]
    launch_kernel(kernel, *args, **zeros.constants)
    synchronize(args[0].device.type)


if __name__ == "__main__":
    launch(NeffProgram(**json.loads(sys.argv[1])))
