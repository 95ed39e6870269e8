"""Compile CUDA text for the host: with the words of CUDA before it and an entry point behind it."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trnqc.errors import CompilerError, SimulationError
from trnqc.gen import emit_cuda
from trnqc.host.files import temporary_place
from trnqc.jit.cache import key_of, library_cache
from trnqc.jit.compile import Compilation, CompileTarget
from trnqc.jit.cpp import cpp_compiler, cpp_version, run
from trnqc.jit.recipe import Functions, Recipe
from trnqc.jit.signature import GROUPS, Parameter, Signature

FOLDER = Path(__file__).parent
# Texts are compiled often and run on few threads. What nobody has written is a number of size 1e303, which shows, and
# an index outside of a declared array ends the launch. Lines are known, and places of variables, which nobody asks for,
# are not looked for.
FLAGS = (
    "-std=c++17",
    "-O1",
    "-g1",
    "-gdwarf-4",
    "-fno-var-tracking",
    "-w",
    "-c",
    "-fPIC",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-tree-loop-distribute-patterns",
    "-ftrivial-auto-var-init=pattern",
    "-fsanitize=bounds",
    "-fno-sanitize-recover=bounds",
)
CHECKED = ("-fsanitize=thread",)
# Bytes of shared memory that a block may declare on all architectures (CUDA C++ Programming Guide, "Compute
# Capabilities").
SHARED_BYTES = 48 * 1024
# Threads of a block on all architectures.
MOST_THREADS = 1024
TYPES = {"f64": "double", "f32": "float", "i64": "long long", "i32": "int"}

# The library's own places: shared arrays, and the library itself, which contains its constant tables.
_ENTRY = """
extern "C" {{
extern char __start_emulator_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_emulator_shared[] __attribute__((weak, visibility("hidden")));
extern char __ehdr_start[] __attribute__((visibility("hidden"))), _end[] __attribute__((visibility("hidden")));
EMULATOR_PLAIN void emulator_places(char **out) {{
    out[0] = __start_emulator_shared, out[1] = __stop_emulator_shared, out[2] = __ehdr_start, out[3] = _end;
}}
EMULATOR_PLAIN void emulator_body(void **a) {{ {name}({arguments}); }}
}}
"""


@dataclass(frozen=True, eq=False)
class Emulated:
    """A kernel for `launch.run`.

    Attributes
    ----------
    signature : Signature
        The parameters, the range of groups included.
    lanes : int
        Threads of a block.
    checked : bool
        Whether its accesses to memory are checked.
    library : ctypes.CDLL
        The loaded library.
    text : callable
        Returns the CUDA text.
    """

    signature: Signature
    lanes: int
    checked: bool
    library: ctypes.CDLL = field(repr=False)
    text: Callable[[], str] = field(repr=False)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the CUDA kernel."""
        return self.signature.parameters[: -len(GROUPS)]

    @functools.cached_property
    def places(self) -> tuple[int, int, int, int]:
        """The addresses at which shared arrays and the library begin and end."""
        found = (ctypes.c_void_p * 4)()
        self.library.emulator_places(found)
        first, second, third, fourth = (address or 0 for address in found)
        return first, second, third, fourth

    def line(self, address: int) -> str:
        """The line of the text at an address of the library, or as much of it as can be found out."""
        offset = address - self.places[2]
        if not (tool := shutil.which("addr2line")):
            return f"at offset {offset:#x} of {self.library._name} (install binutils to see the line)"
        # An address is where a call returns to, which may be the next line.
        command = [tool, "-i", "-e", self.library._name, hex(offset - 1)]
        found = re.search(r"\.cu:(\d+)", subprocess.run(command, capture_output=True, text=True, check=False).stdout)
        if found is None:
            return f"at offset {offset:#x} of {self.library._name}"
        return f"in line {found[1]}: {self.text().splitlines()[int(found[1]) - 1].strip()}"


def build(
    recipe: Recipe,
    lanes: int,
    *,
    accumulate: str = "fence",
    min_blocks: int = 0,
    checked: bool = True,
) -> Emulated:
    """Compile the CUDA text of a recipe's only function for the host, or take the library from the cache.

    Parameters
    ----------
    recipe : Recipe
        A recipe with one signature.
    lanes : int
        Threads of a block.
    accumulate, min_blocks
        See `trnqc.gen.emit_cuda`.
    checked : bool
        Whether accesses to memory are checked: races, and accesses outside of all arrays.

    Raises
    ------
    CompilerError
        If there is no C++ compiler, or if it rejects the text.
    SimulationError
        If the kernel has more threads or more shared memory than every GPU allows.
    """
    (signature,) = recipe.signatures
    if lanes > MOST_THREADS:
        raise SimulationError(f"{signature.name}: a block has at most {MOST_THREADS} threads, found {lanes}")

    def emit(functions: Functions, _: Sequence[str]) -> str:
        return emit_cuda(*functions, lanes=lanes, accumulate=accumulate, min_blocks=min_blocks)

    flags = (*FLAGS, *CHECKED * checked)
    key = (cpp_version(), *flags, _ENTRY, *_sources(), str(lanes), accumulate, str(min_blocks))
    target = CompileTarget(key, ".so", emit, lambda text, out, _: _compile(text, out, signature, flags))
    runtime()
    compilation = Compilation(recipe, target)
    kernel = Emulated(signature, lanes, checked, _load(compilation.file), lambda: compilation.text)
    begin, end, *_ = kernel.places
    if end - begin > SHARED_BYTES:
        raise SimulationError(
            f"{signature.name}: a block may declare {SHARED_BYTES} bytes of shared memory, found {end - begin}"
        )
    return kernel


@functools.cache
def runtime() -> ctypes.CDLL:
    """Load what runs the kernels. Their libraries find its functions because it is loaded before them."""

    def compile_runtime(out: Path) -> None:
        run([*cpp_compiler(), "-std=c++17", "-O2", "-shared", "-fPIC", str(FOLDER / "runtime.cpp"), "-o", str(out)])

    name = f"emulator-{key_of(cpp_version(), *_sources())}"
    return ctypes.CDLL(str(library_cache().get(name, compile_runtime)), mode=ctypes.RTLD_GLOBAL)


@functools.cache
def _sources() -> tuple[str, ...]:
    return tuple((FOLDER / name).read_text() for name in ("words.h", "launch.h", "runtime.cpp"))


@functools.cache
def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompilerError(f"the compiled library {path} cannot be used: {error}") from error


def _compile(text: str, out: Path, signature: Signature, flags: tuple[str, ...]) -> None:
    words = [f"*({TYPES[p.dtype]} {'**' if p.array else '*'})a[{n}]" for n, p in enumerate(signature.parameters[:-2])]
    entry = _ENTRY.format(name=signature.name, arguments=", ".join(words))
    with tempfile.TemporaryDirectory(prefix="trnqc-cuda-", dir=temporary_place()) as scratch:
        source = Path(scratch) / f"{signature.name}.cpp"
        source.write_text(f'#include "words.h"\n#line 1 "{signature.name}.cu"\n{text}\n{entry}')
        # Linked without the flags of the checks, whose functions are those of runtime.cpp.
        run([*cpp_compiler(), *flags, f"-I{FOLDER}", str(source), "-o", f"{source}.o"])
        run([*cpp_compiler(), "-shared", f"{source}.o", "-o", str(out)])
