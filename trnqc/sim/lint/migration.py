"""Kernels in the old namespace ``neuronxcc.nki`` (NKI 0.1), and what takes the place of each construct now.

    text of a file -> names by their imports -> old and new form of each line

The file is read and never imported. Source: the migration guide of NKI and the release notes of 0.2 to 0.5, in the
documentation of Neuron.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trnqc.sim.lint.old_names import Names
from trnqc.sim.lint.tensor_names import NOT_TENSORS
from trnqc.sim.nki import isa, language

Rule = Callable[["_File", ast.AST], Iterator[str]]

INSTEAD = {
    "nl.arange": "slices, nl.ds(start, size), or tensor.ap(pattern=...)",
    "nl.mgrid": "slices, nl.ds(start, size), or tensor.ap(pattern=...)",
    "nl.par_dim": "plain extents: dimension 0 is always the partition; blocks are a list of tiles",
    "nl.load": "nisa.dma_copy(dst=tile, src=...) into a tile of nl.ndarray",
    "nl.store": "nisa.dma_copy(dst=..., src=tile); PSUM is copied to SBUF first",
    "nl.affine_range": "range",
    "nl.sequential_range": "range",
    "nl.static_range": "range",
    "nl.loop_reduce": "nisa.tensor_tensor into a tile that is set before the loop",
    "nl.spmd_dim": "kernel[1] or kernel[2]; loop over tiles inside the kernel",
    "nl.nc": "kernel[1] or kernel[2]; loop over tiles inside the kernel",
    "nl.static_cast": "the value itself; the dtype of dst decides",
    "nl.fp32": "a constant, such as -3.4028235e38",
    "nki.baremetal": "@nki.jit, and a call with arrays of the framework",
    "nki.benchmark": "@nki.jit, and the profiler of Neuron",
    "nki.profile": "@nki.jit, and the profiler of Neuron",
    "nki.trace": "@nki.jit",
    "nki.simulate_kernel": "nki.simulate(kernel)(...)",
    "nki.compiler": "nl.ndarray(..., address=...), nl.no_reorder()",
    "nki.kernels": "the kernels of nki-library (package nkilib)",
}
"""What takes the place of a name, by its dotted name with nki, nl or nisa in front."""

KEYWORDS = {
    "mask": "without mask: a slice of the true size, oob_mode, nisa.affine_select, or a path of its own for the tail",
    "dst_rmw_op": "nisa.dma_compute",
    "psumAccumulateFlag": "accumulate=None, True or False",
    "psum_accumulate_flag": "accumulate=None, True or False",
}
_OPTIONS = {
    "mode": "@nki.jit: the framework is found from the arguments",
    "platform_target": "NEURON_PLATFORM_TARGET_OVERRIDE",
}
# Instructions of the current interface that return something.
_NO_TILES = (*NOT_TENSORS, "tile_size", "MemoryRegion", "DType")
_RETURNS = ("register_alloc", "get_nc_version", "get_nc_sub_version", "VirtualRegister", "nc_version")


@dataclass(frozen=True, order=True)
class Migration:
    """One construct of the old interface: its place, its source, and its replacement."""

    file: str
    line: int
    old: str
    new: str


def migrations(text: str, file: str) -> tuple[Migration, ...]:
    """Return the changes that a file with kernels of the old namespace needs, sorted by line; empty for other files.
    Raises SyntaxError if the text is not Python.
    """
    tree = ast.parse(text, file)
    names = Names.of(tree)
    if not names.old:
        return ()
    source = _File(tree, names)
    found = {
        Migration(file, node.lineno, _short(node), new)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt | ast.expr)
        for rule in _RULES
        for new in rule(source, node)
    }
    return tuple(sorted(found))


class _File:
    """A file with what its rules need to know of all of it: parents of nodes, kernels, and index arrays."""

    def __init__(self, tree: ast.Module, names: Names):
        self.names = names
        self.parent = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self.tiles = {
            (self.function_of(node), target.id)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and self.makes_tile(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self.kernels = {f.name for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and self.is_kernel(f)}

    def makes_tile(self, call: ast.Call) -> bool:
        """Whether a call returns a tile: memory, or the result of a function of nl or an instruction."""
        module, _, what = (self.names.of_node(call.func) or "").partition(".")
        return (module == "nl" and hasattr(language, what) and what not in _NO_TILES) or (
            module == "nisa" and what not in _RETURNS
        )

    def function_of(self, node: ast.AST) -> str:
        """The name of the function around a node, or "" at the top of the file."""
        while (above := self.parent.get(node)) is not None:
            if isinstance(above, ast.FunctionDef):
                return above.name
            node = above
        return ""

    def is_kernel(self, function: ast.FunctionDef) -> bool:
        """Whether a function has a decorator of nki."""
        decorators = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
        return any((self.names.of_node(d) or "").startswith("nki.") for d in decorators)

    def inside_kernel(self, node: ast.AST) -> bool:
        """Whether a node is in the body of a kernel, and not among its decorators."""
        while (above := self.parent.get(node)) is not None:
            if isinstance(above, ast.FunctionDef) and self.is_kernel(above) and node in above.body:
                return True
            node = above
        return False


def _short(node: ast.AST) -> str:
    if isinstance(node, ast.FunctionDef):
        return f"def {node.name}"
    line = ast.unparse(node).splitlines()[0]
    return line if len(line) <= 72 else f"{line[:69]}..."


def _imports(source: _File, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from source.names.new_imports(node)


def _renamed(source: _File, node: ast.AST) -> Iterator[str]:
    """Names that are gone, longest part first, so that nl.fp32.min is reported once."""
    if not isinstance(node, ast.Attribute | ast.Name) or isinstance(source.parent.get(node), ast.Attribute):
        return
    name = source.names.of_node(node)
    parts = (name or "").split(".")
    for n in range(len(parts), 1, -1):
        if (found := INSTEAD.get(".".join(parts[:n]))) is not None:
            yield found
            return
    if len(parts) == 2 and parts[0] == "nisa" and not hasattr(isa, parts[1]):
        yield f"another instruction: {name} does not exist any more"


def _results(source: _File, node: ast.AST) -> Iterator[str]:
    """Instructions whose result is used, and arguments that instructions have no more."""
    if not isinstance(node, ast.Call):
        return
    name = source.names.of_node(node.func) or ""
    if name.startswith(("nl.", "nisa.")):
        yield from (KEYWORDS[k.arg] for k in node.keywords if k.arg in KEYWORDS)
    module, _, what = name.partition(".")
    if module != "nisa" or what in _RETURNS or "." in what:
        return
    if any(k.arg == "dtype" for k in node.keywords):
        yield "without dtype: that of dst decides"
    above = source.parent.get(node)
    if isinstance(above, ast.AugAssign) and what.startswith("nc_matmul"):
        yield "nisa.nc_matmul(dst=..., stationary=..., moving=..., accumulate=None), which adds to dst"
    elif not isinstance(above, ast.Expr):
        yield f"nisa.{what}(dst=..., ...) into a tile of nl.ndarray; instructions return nothing"


def _options(source: _File, node: ast.AST) -> Iterator[str]:
    """Options of nki.jit, buffers by name or number, and functions of NumPy as operators."""
    if not isinstance(node, ast.Call):
        return
    name = source.names.of_node(node.func) or ""
    for keyword in node.keywords:
        if name == "nki.jit" and keyword.arg in _OPTIONS:
            yield _OPTIONS[keyword.arg]
        plain = isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str | int)
        if name.startswith("nl.") and keyword.arg == "buffer" and plain:
            yield "nl.sbuf, nl.psum, nl.hbm or nl.shared_hbm"
    if name.startswith(("nl.", "nisa.")):
        for value in (*node.args, *(k.value for k in node.keywords)):
            if (operator := source.names.of_node(value) or "").startswith("numpy."):
                yield f"nl.{operator.removeprefix('numpy.')} instead of {ast.unparse(value)}"


def _launches(source: _File, node: ast.AST) -> Iterator[str]:
    """Grids of several dimensions, and kernels that kernels call."""
    if not isinstance(node, ast.Call):
        return
    called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    if not isinstance(called, ast.Name) or called.id not in source.kernels:
        return
    if isinstance(node.func, ast.Subscript) and not isinstance(node.func.slice, ast.Constant):
        yield f"{called.id}[1] or [2]; the grid becomes a loop over tiles inside the kernel"
    if source.inside_kernel(node):
        yield f"{called.id} as a plain function, without nki.jit; it is inlined"


def _operators(source: _File, node: ast.AST) -> Iterator[str]:
    """Operators between results of nl and nisa; sums of index arrays are reported where the arrays are made."""
    if isinstance(node, ast.BinOp):
        operands: tuple[ast.expr, ...] = (node.left, node.right)
    elif isinstance(node, ast.AugAssign):
        operands = (node.value,)
    else:
        return
    matmul = isinstance(node, ast.AugAssign) and "nc_matmul" in ast.unparse(node.value)
    if not matmul and any(_is_result(source, operand) for operand in operands):
        yield "nisa.tensor_tensor or nisa.tensor_scalar; tensors have no operators"


def _is_result(source: _File, node: ast.expr) -> bool:
    """Whether an expression is a tile: the result of a call that makes one, a part of it, or its name."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        return (source.function_of(node), node.id) in source.tiles
    return isinstance(node, ast.Call) and source.makes_tile(node)


_RULES: tuple[Rule, ...] = (_imports, _renamed, _results, _options, _launches, _operators)
