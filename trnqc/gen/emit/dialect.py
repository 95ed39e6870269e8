"""What the target languages spell differently. A new dialect is another table here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """threads: whether a lane is a thread (else lanes are vector elements of one thread).

    header: first lines of a text. kernel, local, shared_code: what stands before a started function, a called one, and
    one that is called from many places. external: what stands before the declaration of a function that another object
    file holds. restrict: marks pointers no two of which reach one element; restrict_written: whether those that are
    written to as well. constraints: the letter by which inline assembly names a register of each type.
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
    # Hidden: called directly, and of no concern to other libraries.
    external='__attribute__((visibility("hidden"))) void',
    restrict="restrict",
    restrict_written=True,
    shared="",
    barrier="",
    asm="__asm__ volatile",
    # Through memory, since the letters of vector registers differ by machine; a fence in C is rare.
    constraints={"f64": "+m", "f32": "+m", "i64": "+r", "i32": "+r"},
    types={"f64": "double", "f32": "float", "i64": "int64_t", "i32": "int32_t", "bool": "int"},
)

CUDA = Dialect(
    name="CUDA",
    threads=True,
    # The run-time compiler has no headers, and so neither of these.
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
    # Across a fence nvcc moves accesses through marked pointers, and those of inlined functions: so goes the schedule.
    restrict_written=False,
    shared="__shared__ ",
    barrier="__syncthreads();",
    asm="asm volatile",
    constraints={"f64": "+d", "f32": "+f", "i64": "+l", "i32": "+r"},
    types={"f64": "double", "f32": "float", "i64": "long long", "i32": "int", "bool": "bool"},
)

# How ``+=`` on memory is written for a GPU; PLACE and VALUE are filled in.
ACCUMULATE = {
    "plain": "PLACE += VALUE;",
    "fence": 'PLACE += VALUE; asm volatile("" ::: "memory");',
    "atomic": "atomicAdd(&PLACE, VALUE);",
}

# Words that a program's names must not be: of C, C++ and CUDA, of <math.h>, and this package's own.
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
    """The name, with an underscore where the target's language or this text has taken it."""
    return f"{name}_" if name in RESERVED or name.endswith("_") else name
