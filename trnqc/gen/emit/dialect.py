"""The differences between the target languages, one table each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """How a language spells functions, types and memory.

    Attributes
    ----------
    threads : bool
        Whether a lane is a thread; else lanes are the elements of vectors.
    header : tuple of str
        The first lines of a text.
    kernel, local, shared_code, external : str
        Qualifiers of kernels, of called functions, of functions that are called from many places, and of those that
        another object file contains.
    restrict : str
        The qualifier of pointers that do not overlap; restrict_written: whether written pointers have it too.
    shared : str
        The qualifier of shared arrays.
    barrier, asm : str
        The barrier statement and the keyword of inline assembly.
    constraints : dict
        The constraint letter of inline assembly for each type.
    types : dict
        The names of types.
    """

    name: str
    threads: bool
    header: tuple[str, ...]
    kernel: str
    local: str
    shared_code: str
    external: str
    restrict: str
    restrict_written: bool
    shared: str
    barrier: str
    asm: str
    constraints: dict[str, str]
    types: dict[str, str]


C = Dialect(
    name="C",
    threads=False,
    header=("#include <math.h>", "#include <stdint.h>"),
    kernel="void",
    local="static void",
    shared_code="static void",
    # Hidden functions are called directly and do not clash with those of other libraries.
    external='__attribute__((visibility("hidden"))) void',
    restrict="restrict",
    restrict_written=True,
    shared="",
    barrier="",
    asm="__asm__ volatile",
    # Through memory, because the letters of vector registers differ by machine. Fences in C are rare.
    constraints={"f64": "+m", "f32": "+m", "i64": "+r", "i32": "+r"},
    types={"f64": "double", "f32": "float", "i64": "int64_t", "i32": "int32_t", "bool": "int"},
)

CUDA = Dialect(
    name="CUDA",
    threads=True,
    # NVRTC has no headers that define these.
    header=(
        "#ifdef __CUDACC_RTC__",
        "#define INFINITY (1e300 * 1e300)",
        "#define NAN (INFINITY - INFINITY)",
        "#endif",
    ),
    kernel='extern "C" __global__ void',
    local="static __device__ __forceinline__ void",
    shared_code="static __device__ __noinline__ void",
    external="extern __device__ void",
    restrict="__restrict__",
    # nvcc moves accesses through restrict pointers, and those of inlined functions, across fences.
    restrict_written=False,
    shared="__shared__ ",
    barrier="__syncthreads();",
    asm="asm volatile",
    constraints={"f64": "+d", "f32": "+f", "i64": "+l", "i32": "+r"},
    types={"f64": "double", "f32": "float", "i64": "long long", "i32": "int", "bool": "bool"},
)

# How ``+=`` on memory is written for a GPU, with PLACE and VALUE to be substituted.
ACCUMULATE = {
    "plain": "PLACE += VALUE;",
    "fence": 'PLACE += VALUE; asm volatile("" ::: "memory");',
    "atomic": "atomicAdd(&PLACE, VALUE);",
}

# Names that programs cannot use: those of C, C++, CUDA and <math.h>, and those of the generated text.
RESERVED = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm bool class
    new delete this template typename operator private public protected namespace using true false try catch throw and
    or not xor friend virtual I lane lanes threadIdx blockIdx blockDim gridDim NULL INFINITY NAN half sqrt sqrtf exp
    expf fma fmaf groups_begin groups_end
    """.split()  # noqa: SIM905
)


def safe(name: str) -> str:
    """The name, with an underscore appended if it is reserved."""
    return f"{name}_" if name in RESERVED or name.endswith("_") else name
