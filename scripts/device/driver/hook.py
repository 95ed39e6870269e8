"""What joins the stand-in for the driver with the emulator. Importing it changes this process.

NVRTC compiles a text -> the text is kept by the digest of the cubin
the driver loads a cubin -> its text, compiled by `trnqc.jit.emulator`
a fault of a kernel or a copy -> SimulationError when the host waits for the device
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from trnqc.errors import CompilerError, SimulationError
from trnqc.gen.emit.dialect import CUDA
from trnqc.gen.values import BYTES
from trnqc.jit import Parameter, Recipe, Signature, emulator, gpu
from trnqc.jit.cache import library_cache
from trnqc.jit.cubins import needs
from trnqc.jit.device import CudaDevice
from trnqc.jit.emulator.build import runtime
from trnqc.jit.signature import GROUPS

# Cubins of this process have texts beside them, which those of another cache lack.
os.environ["TRNQC_CACHE_DIR"] = str(library_cache().directory / "stand-in")

KINDS = {"double": "f64", "float": "f32", "long long": "i64", "int": "i32"}
KERNEL = re.compile(CUDA.kernel + r" __launch_bounds__\((\d+)[^)]*\) (\w+)\(([^)]*)\)")
# A program of its own, because NVRTC asks the driver library for what the stand-in lacks.
COMPILE = (
    "import sys, cuda.core as core\n"
    "options = core.ProgramOptions(arch=sys.argv[2], std='c++17')\n"
    "code = core.Program(open(sys.argv[1]).read(), 'c++', options).compile('cubin').code\n"
    "open(sys.argv[3], 'wb').write(bytes(code))\n"
)
_driver = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
# The kernels of each loaded cubin, and its bytes of local memory per thread.
_loaded: dict[int, dict[str, emulator.Emulated]] = {}
_stacks: dict[int, int] = {}


def _place(cubin: bytes) -> Path:
    return library_cache().directory / f"text-{hashlib.sha256(cubin).hexdigest()[:32]}.cu"


def compile_outside(core: Any, source: str, arch: str) -> bytes:
    """Compile by NVRTC in a process with the real search path, and keep the text. Other bindings do as before."""
    if not isinstance(core, ModuleType):
        return _nvrtc(core, source, arch)
    with tempfile.TemporaryDirectory() as scratch:
        text, cubin = Path(scratch) / "text.cu", Path(scratch) / "text.cubin"
        text.write_text(source)
        environment = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "PYTHONPATH")}
        command = [sys.executable, "-c", COMPILE, str(text), arch, str(cubin)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompilerError(f"NVRTC rejects the text for {arch}:\n{done.stderr[-3000:]}")
        code = cubin.read_bytes()
    _place(code).write_text(source)
    return code


def kernels_of(text: str) -> Iterator[tuple[Signature, int]]:
    """Yield the signature of each kernel of a text, and its threads."""
    for match in KERNEL.finditer(text):
        parameters = []
        for declared in match[3].split(", ") if match[3] != "void" else []:
            plain = declared.replace("__restrict__ ", "").removeprefix("const ")
            kind, name = plain.rsplit(maxsplit=1)
            array = kind.endswith("*") or name.startswith("*")
            parameters.append(Parameter(name.lstrip("*"), KINDS[kind.rstrip(" *")], array=array))
        yield Signature(match[2], (*parameters, *GROUPS)), int(match[1])


def _cubin_at(address: int) -> bytes:
    """Return the ELF file at an address: its headers tell where it ends."""
    header = ctypes.string_at(address, 64)
    programs, sections = struct.unpack_from("<QQ", header, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", header, 54)
    end = max(programs + program_size * program_count, sections + section_size * section_count)
    for n in range(section_count):
        entry = ctypes.string_at(address + sections + n * section_size, 64)
        kind, offset, size = *struct.unpack_from("<I", entry, 4), *struct.unpack_from("<QQ", entry, 24)
        if kind != 8:  # SHT_NOBITS takes no room in the file.
            end = max(end, offset + size)
    return ctypes.string_at(address, end)


def _load(address: int) -> int:
    try:
        cubin = _cubin_at(address)
        text, built = _place(cubin).read_text(), {}
        for signature, lanes in kernels_of(text):
            built[signature.name] = emulator.build(Recipe(signature.name, (signature,), text=text), lanes)
        _loaded[len(_loaded) + 1] = built
        _stacks[len(_loaded)] = needs(cubin).local
        return len(_loaded)
    except Exception as error:  # ctypes prints what a callback raises, and goes on.
        print(f"the stand-in for the driver cannot load a cubin: {error!r}", file=sys.stderr)
        return 0


def _find(library: int, name: bytes) -> int:
    kernel = _loaded[library].get(name.decode())
    if kernel is None:
        return 0
    sizes = [8 if p.array else BYTES[p.dtype] for p in kernel.parameters]
    _driver.standin_kernel(
        f"{library} {name.decode()}".encode(),
        name,
        ctypes.cast(kernel.library.emulator_body, ctypes.c_void_p),
        (ctypes.c_void_p * 4)(*kernel.places),
        len(sizes),
        (ctypes.c_int * max(1, len(sizes)))(*sizes),
        kernel.lanes,
        _stacks[library],
    )
    return 1


def fault() -> str:
    """Return the next fault of the driver and forget it, or an empty string."""
    text = ctypes.create_string_buffer(400)
    return text.value.decode() if _driver.standin_fault(text, len(text)) else ""


def _synchronize(self: CudaDevice, stream: int | None = None) -> None:
    _wait(self, stream)
    if words := fault():
        raise SimulationError(words)


@atexit.register
def _last_faults() -> None:
    if words := fault():
        print(f"a fault that nobody waited for: {words}", file=sys.stderr)
        os._exit(1)


# Kept, because the driver calls them.
_callbacks = (
    ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(_load),
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(_find),
)
_driver.standin_set(ctypes.cast(runtime().emulator_run, ctypes.c_void_p), *_callbacks)
_wait, CudaDevice.synchronize = CudaDevice.synchronize, _synchronize  # type: ignore[method-assign]
_nvrtc, gpu._nvrtc = gpu._nvrtc, compile_outside
