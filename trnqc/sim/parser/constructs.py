"""The constructs of Python that the parser front end refuses wherever they stand."""

from __future__ import annotations

import ast

CONSTRUCTS: dict[type[ast.AST], str] = {
    ast.Try: "try is not in the language",
    ast.TryStar: "try is not in the language",
    ast.Lambda: "lambda is not in the language; define a function",
    ast.Yield: "generators are not in the language",
    ast.YieldFrom: "generators are not in the language",
    ast.GeneratorExp: "generators are not in the language; write a loop",
    ast.ListComp: "comprehensions are not in the language; write a loop and append",
    ast.DictComp: "comprehensions are not in the language; write a loop",
    ast.SetComp: "sets are not in the language",
    ast.Set: "sets are not in the language",
    ast.ClassDef: "classes stand outside of kernels",
    ast.AsyncFunctionDef: "async is not in the language",
    ast.AsyncWith: "async is not in the language",
    ast.AsyncFor: "async is not in the language",
    ast.Await: "async is not in the language",
    ast.Global: "kernels must be pure in their arguments: no global",
    ast.Nonlocal: "nonlocal is not in the language; carry state through SBUF or HBM",
    ast.Import: "imports stand outside of kernels",
    ast.ImportFrom: "imports stand outside of kernels",
    ast.Starred: "star-unpacking is not in the language",
    ast.Match: "match is not in the language",
    ast.NamedExpr: ":= is not in the language",
    ast.Raise: "raise is not in the language; use assert",
    ast.Delete: "del is not in the language",
}
"""Nodes that are refused wherever they stand, and what to say about them."""
