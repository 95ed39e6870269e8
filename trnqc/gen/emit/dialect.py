"""The differences between the target languages, one table each."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Dialect:
    """How a language spells functions, types and memory.

    Attributes
    ----------
    name : str
        The name of the language, for errors.
    threads : bool
        Whether each lane is a thread. If not, the lanes are the elements of vectors.
    header : tuple of str
        The first lines of a text.
    kernel : str
        The qualifiers of a kernel.
    local : str
        The qualifiers of a function that is called from few places and is to be inlined.
    helper : str
        The qualifiers of a short function that returns a value.
    shared_code : str
        The qualifiers of a function that is called from many places and is not to be inlined.
    external : str
        The qualifiers of a function that another object file contains.
    restrict : str
        The qualifier of pointers to arrays that do not overlap.
    restrict_written : bool
        Whether pointers to written arrays have this qualifier too.
    shared : str
        The qualifier of shared arrays.
    barrier : str
        The statement that waits for all lanes of a group; empty if they run in lockstep.
    asm : str
        The keyword of inline assembly.
    constraints : dict
        For each type, the constraint letter of a variable in inline assembly.
    types : dict
        For each type of the language, its name.
    shuffle : str
        The value of x on the lane of a warp whose number differs by the bits of n; empty if lanes are no threads.
    names_fma : bool
        Whether a fused multiply-add of vectors is named, for compilers that would make two instructions of it.
    """

    name: str
    threads: bool
    header: tuple[str, ...]
    kernel: str
    local: str
    helper: str
    shared_code: str
    external: str
    restrict: str
    restrict_written: bool
    shared: str
    barrier: str
    asm: str
    constraints: dict[str, str]
    types: dict[str, str]
    shuffle: str = ""
    names_fma: bool = False


C = Dialect(
    name="C",
    threads=False,
    header=("#include <math.h>", "#include <stdint.h>"),
    kernel="void",
    local="static void",
    helper="static inline",
    shared_code="static void",
    # Hidden functions are called directly, and their names do not clash with those of other libraries.
    external='__attribute__((visibility("hidden"))) void',
    restrict="restrict",
    restrict_written=True,
    shared="",
    barrier="",
    asm="__asm__ volatile",
    # Floats go through memory, because the letter of a vector register differs by machine. Fences in C are rare.
    constraints={"f64": "+m", "f32": "+m", "i64": "+r", "i32": "+r"},
    types={"f64": "double", "f32": "float", "i64": "int64_t", "i32": "int32_t", "bool": "int"},
)

CUDA = Dialect(
    name="CUDA",
    threads=True,
    # NVRTC comes without the headers that define these macros.
    header=(
        "#ifdef __CUDACC_RTC__",
        "#define INFINITY (1e300 * 1e300)",
        "#define NAN (INFINITY - INFINITY)",
        "#endif",
    ),
    kernel='extern "C" __global__ void',
    local="static __device__ __forceinline__ void",
    helper="static __device__ __forceinline__",
    shared_code="static __device__ __noinline__ void",
    external="extern __device__ void",
    restrict="__restrict__",
    # nvcc moves accesses through restrict pointers across fences.
    restrict_written=False,
    shared="__shared__ ",
    barrier="__syncthreads();",
    asm="asm volatile",
    constraints={"f64": "+d", "f32": "+f", "i64": "+l", "i32": "+r"},
    types={"f64": "double", "f32": "float", "i64": "long long", "i32": "int", "bool": "bool"},
    shuffle="__shfl_xor_sync(0xffffffffu, x, n)",
)

# A wavefront of 64 lanes counts as two warps. The second number of __launch_bounds__ has another unit than in CUDA, so
# that it is not written.
HIP = replace(
    CUDA,
    name="HIP",
    header=("#include <hip/hip_runtime.h>",),
    constraints=dict.fromkeys(("f64", "f32", "i64", "i32"), "+v"),
    shuffle="__shfl_xor(x, n, 32)",
)

# Ways to write ``+=`` on memory for a GPU. PLACE and VALUE are replaced.
ACCUMULATE = {
    "plain": "PLACE += VALUE;",
    "fence": 'PLACE += VALUE; asm volatile("" ::: "memory");',
    "atomic": "atomicAdd(&PLACE, VALUE);",
}

# Names that a variable cannot have: those of C, C++, CUDA and <math.h>, and those that emission itself uses.
RESERVED = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm bool class
    new delete this template typename operator private public protected namespace using true false try catch throw and
    or not xor friend virtual I lane lanes threadIdx blockIdx blockDim gridDim NULL INFINITY NAN half sqrt sqrtf exp
    expf log logf fma fmaf groups_begin groups_end
    """.split()  # noqa: SIM905
)


def safe(name: str) -> str:
    """The name, with an underscore appended if it is reserved."""
    return f"{name}_" if name in RESERVED or name.endswith("_") else name
