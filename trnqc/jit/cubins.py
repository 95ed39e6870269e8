"""Cubins of recipes: compiled by NVRTC, which needs no GPU, and kept by version of NVRTC and architecture."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trnqc.errors import CompilerError
from trnqc.gen import emit_cuda
from trnqc.jit import gpu
from trnqc.jit.compile import Compilation, CompileTarget
from trnqc.jit.recipe import Recipe

# The attributes of the section .nv.info with the registers of a thread and with its bytes of local memory, and the
# format of attributes with a payload. NVIDIA does not document them; cuobjdump -elf prints them by these names. The
# driver reports the same numbers. Sections whose names begin with .nv.shared have the size of a kernel's shared memory.
_REGISTERS, _FRAME_SIZE, _WITH_PAYLOAD = 0x2F, 0x11, 0x04
_INFO, _SHARED = ".nv.info", ".nv.shared."
# ELF64: the header's fields of the table of sections, and an entry of that table.
_TABLE_OFFSET, _TABLE_SIZES = (0x28, "<Q"), (0x3A, "<HHH")
_SECTION = "<IIQQQQIIQQ"


def cubin_of(
    recipe: Recipe, arch: str, lanes: int, accumulate: str, min_blocks: int, modules: gpu.Bindings
) -> tuple[Path, bool]:
    """Compile the only function of a recipe for GPUs of one architecture, or take the cubin from the cache.

    Parameters
    ----------
    recipe : Recipe
        A recipe with one signature.
    arch : str
        The architecture, such as ``sm_90``.
    lanes, accumulate, min_blocks
        As for `trnqc.jit.device.Device.build`.
    modules : Bindings
        The bindings of CUDA.

    Returns
    -------
    tuple
        The path of the cubin, and whether it was compiled now.

    Raises
    ------
    BackendUnavailable
        If the library of NVRTC is missing.
    CompilerError
        If the text does not compile.
    """
    compiled = []

    def compile_text(text: str, out: Path, _: tuple[Path, ...]) -> None:
        out.write_bytes(gpu.compile_nvrtc(text, arch=arch, modules=modules))
        compiled.append(out)

    target = CompileTarget(
        (gpu.nvrtc_version(modules), arch, str(lanes), accumulate, str(min_blocks)),
        ".cubin",
        lambda functions, _: emit_cuda(*functions, lanes=lanes, accumulate=accumulate, min_blocks=min_blocks),
        compile_text,
    )
    return Compilation(recipe, target).file, bool(compiled)


@dataclass(frozen=True)
class Needs:
    """What a cubin's kernels need: registers and bytes of local memory of a thread, bytes of shared memory of a block.

    Of several kernels they are the largest numbers.
    """

    registers: int
    local: int
    shared: int


def needs(cubin: bytes) -> Needs:
    """What the kernels of a cubin need.

    Raises
    ------
    CompilerError
        If the cubin is not an ELF file with the section in which compilers of NVIDIA write these numbers.
    """
    found: dict[int, list[int]] = {_REGISTERS: [], _FRAME_SIZE: []}
    shared = [0]
    try:
        for name, size, contents in _sections(cubin):
            shared += [size] * name.startswith(_SHARED)
            for attribute, value in _attributes(contents) if name == _INFO else ():
                found.get(attribute, []).append(value)
    except (struct.error, ValueError, IndexError) as error:
        raise CompilerError(f"expected a cubin, an ELF file with sections; it cannot be read: {error}") from error
    if not all(found.values()):
        raise CompilerError(
            "the cubin does not say what registers and local memory its kernels need (section .nv.info)"
        )
    return Needs(max(found[_REGISTERS]), max(found[_FRAME_SIZE]), max(shared))


def _sections(cubin: bytes) -> Iterator[tuple[str, int, bytes]]:
    """The names, sizes and contents of all sections; those of memory that a kernel gets have other contents."""
    if cubin[:4] != b"\x7fELF":
        raise ValueError(f"it begins with {cubin[:4]!r}")
    (offset,) = struct.unpack_from(_TABLE_OFFSET[1], cubin, _TABLE_OFFSET[0])
    entry, count, names = struct.unpack_from(_TABLE_SIZES[1], cubin, _TABLE_SIZES[0])
    sections = [struct.unpack_from(_SECTION, cubin, offset + n * entry) for n in range(count)]
    for name, _, _, _, begin, size, *_ in sections:
        start = sections[names][4] + name
        yield cubin[start : cubin.index(b"\0", start)].decode(), size, cubin[begin : begin + size]


def _attributes(info: bytes) -> Iterator[tuple[int, int]]:
    """The numbers for functions in a section of attributes: format, attribute, and a length or a value."""
    at = 0
    while at < len(info):
        form, attribute, length = struct.unpack_from("<BBH", info, at)
        if form == _WITH_PAYLOAD and attribute in (_REGISTERS, _FRAME_SIZE):
            yield attribute, struct.unpack_from("<II", info, at + 4)[1]
        at += 4 + (length if form == _WITH_PAYLOAD else 0)
