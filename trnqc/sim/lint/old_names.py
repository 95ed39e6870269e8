"""What the names of a file stand for by its imports, in the old namespace and in the current one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

OLD = "neuronxcc.nki"
_SHORT = {"language": "nl", "isa": "nisa"}
# Modules that are gone, with what takes their place.
_GONE = {
    "compiler": "nothing: addresses are an argument of nl.ndarray",
    "kernels": "nkilib, the package of nki-library",
}


@dataclass(frozen=True)
class Names:
    """The imported names of a file by alias; ``old`` says whether any comes from the old namespace."""

    aliases: Mapping[str, str]
    old: bool

    @staticmethod
    def of(tree: ast.Module) -> Names:
        """Read the imports of a file, wherever they stand."""
        aliases: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    aliases[name.asname or name.name.split(".")[0]] = (
                        name.name if name.asname else name.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module:
                aliases |= {n.asname or n.name: f"{node.module}.{n.name}" for n in node.names}
        imported = [n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names]
        return Names(aliases, any(map(_is_old, (*aliases.values(), *imported))))

    def of_node(self, node: ast.expr) -> str | None:
        """The dotted name of a node with nki, nl, nisa or numpy in front, or None for any other."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.aliases:
            return None
        return _canonical(".".join([self.aliases[node.id], *reversed(parts)]))

    def new_imports(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        """Yield the imports that take the place of one from the old namespace."""
        if isinstance(node, ast.Import):
            for name in node.names:
                if _is_old(name.name):
                    yield _import(name.name, f" as {name.asname}" if name.asname else "")
        elif node.module and (_is_old(node.module) or node.module == "neuronxcc"):
            for name in node.names:
                path = f"{node.module}.{name.name}"
                if _is_old(path):
                    yield _import_from(path, f" as {name.asname}" if name.asname else "")


def _is_old(path: str) -> bool:
    return path == OLD or path.startswith(f"{OLD}.")


def _canonical(path: str) -> str | None:
    parts = path.removeprefix("neuronxcc.").split(".")
    if parts[0] == "nki" and len(parts) > 1 and parts[1] in _SHORT:
        return ".".join([_SHORT[parts[1]], *parts[2:]])
    return ".".join(parts) if parts[0] in ("nki", "numpy") else None


def _import(path: str, alias: str) -> str:
    module = path.removeprefix("neuronxcc.")
    alias = "" if alias == f" as {module}" else alias
    return _GONE.get(module.partition("nki.")[2].split(".")[0], f"import {module}{alias}")


def _import_from(path: str, alias: str) -> str:
    module, _, name = path.removeprefix("neuronxcc.").rpartition(".")
    gone = _GONE.get(module.partition("nki.")[2].split(".")[0] or name)
    if gone is None and module == "nki" and name in ("benchmark", "baremetal", "profile", "trace", "simulate_kernel"):
        return f"nothing: {name} is gone; see its uses"
    return gone or (f"from {module} import {name}{alias}" if module else f"import {name}{alias}")
