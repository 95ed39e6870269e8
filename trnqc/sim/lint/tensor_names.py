"""Inference of the names of a function that hold tensors, and of Python operators that are applied to them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

# Methods of tensors that return views.
_VIEWS = (
    "ap",
    "slice",
    "select",
    "permute",
    "broadcast",
    "expand_dim",
    "squeeze_dim",
    "reshape_dim",
    "flatten_dims",
    "reshape",
    "rearrange",
    "view",
    "vector_select",
    "reinterpret_cast",
)
# Attributes that only tensors have; their use on a name marks it as a tensor.
_TELLTALE = (*_VIEWS, "dtype", "strides", "get_pattern", "is_contiguous")
NOT_TENSORS = (
    "ds",
    "program_id",
    "num_programs",
    "program_ndim",
    "affine_range",
    "sequential_range",
    "static_range",
    "dynamic_range",
    "fori_loop",
    "while_loop",
    "is_hbm",
    "is_sbuf",
    "is_psum",
    "is_on_chip",
    "no_reorder",
    "device_print",
    "store",
    "register_alloc",
    "get_nc_version",
    "get_nc_sub_version",
    "NKIObject",
    "random_seed",
)
"""Functions of ``nl`` that do not return a tensor."""


class TensorNames:
    """The names in one function that hold tensors, inferred from their assignments and uses.

    ``meaning`` returns the object that an expression refers to outside the function, or None.
    """

    def __init__(self, tree: ast.FunctionDef, meaning: Callable[[ast.expr], Any]):
        self.tree = tree
        self.meaning = meaning
        self.names = {
            n.value.id
            for n in ast.walk(tree)
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.attr in _TELLTALE
        } - self._outside()
        before = -1
        while before != len(self.names):
            before = len(self.names)
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign) and self.is_tensor(node.value):
                    self.names |= {t.id for t in node.targets if isinstance(t, ast.Name)}

    def _outside(self) -> set[str]:
        return {n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and self.meaning(n) is not None}

    def is_tensor(self, node: ast.expr) -> bool:
        """Return whether an expression is a tensor: a result of ``nl``, a view of a tensor, or the name of a tensor."""
        if isinstance(node, ast.Name):
            return node.id in self.names
        if isinstance(node, ast.Subscript):
            return self.is_tensor(node.value)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr in _VIEWS:
            return self.is_tensor(node.func.value)
        module = getattr(self.meaning(node.func.value), "__name__", "")
        return module in ("nki.language", "trnqc.sim.nki.language") and node.func.attr not in NOT_TENSORS

    def operators(self) -> Iterator[tuple[ast.AST, str]]:
        """Yield (node, message) for every Python operator with a tensor operand."""
        for node in ast.walk(self.tree):
            operands: tuple[ast.expr, ...] = ()
            if isinstance(node, ast.BinOp):
                operands = (node.left, node.right)
            elif isinstance(node, ast.AugAssign):
                operands = (node.target, node.value)
            elif isinstance(node, ast.UnaryOp):
                operands = (node.operand,)
            elif isinstance(node, ast.Compare) and not _with_none(node):
                operands = (node.left, *node.comparators)
            if any(self.is_tensor(o) for o in operands):
                yield node, f"`{ast.unparse(node)}`: no Python operators on tensors; use nisa instructions"
            if isinstance(node, ast.Assign) and any(
                isinstance(t, ast.Subscript) and self.is_tensor(t) for t in node.targets
            ):
                yield (
                    node,
                    f"`{ast.unparse(node)}`: tensors are not assigned to; copy with nisa.dma_copy or nisa.tensor_copy",
                )


def _with_none(node: ast.Compare) -> bool:
    return any(isinstance(c, ast.Constant) and c.value is None for c in (node.left, *node.comparators))
