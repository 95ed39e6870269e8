"""Which test files a change reaches, by what the Python files and the documents of the project refer to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from scripts.changed.sources import PACKAGES, Source, page_of, source_of

# Folders and endings of files that are not Python and that are read by name. What else is no Python decides for all.
_BY_NAME = (("docs/", ""), ("profiles/", ""), ("", ".md"))
# The folder of tests that read every file of the project, or all pages of its documents.
_ALWAYS = "tests"


def module_of(path: str) -> str:
    """The name of the module in a file, by its path from the root of the checkout."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def can_tell(path: str) -> bool:
    """Whether the sources say which tests a changed file reaches."""
    if path.endswith(".py"):
        return path.split("/")[0] in PACKAGES and not path.endswith("conftest.py")
    return any(path.startswith(folder) and path.endswith(ending) for folder, ending in _BY_NAME)


def read(root: Path) -> dict[str, Source]:
    """The references of all Python files and documents below a root, by the path of the file. Raises SyntaxError."""
    sources = {}
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        sources[name] = source_of(text, module_of(name), path.name == "__init__.py")
    for path in [*root.glob("*.md"), *(root / "docs").rglob("*.md")]:
        sources[path.relative_to(root).as_posix()] = page_of(path.read_text(encoding="utf-8"))
    return sources


def tests_of(changed: Collection[str], sources: Mapping[str, Source]) -> list[str]:
    """The test files that changed files reach, which `can_tell` accepts.

    Parameters
    ----------
    changed : collection of str
        Paths from the root. The files may have been removed.
    sources : mapping
        The references of all files, from `read`.

    Returns
    -------
    list of str
        Paths of test files, in order.
    """
    users = _users(sources, changed)
    waiting, reached = [*changed], set[str]()
    while waiting:
        if (path := waiting.pop()) not in reached:
            reached.add(path)
            waiting += users[path]
    return sorted(p for p in sources if _is_test(p) and (p in reached or str(PurePosixPath(p).parent) == _ALWAYS))


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and PurePosixPath(path).name.startswith("test_")


def _users(sources: Mapping[str, Source], changed: Iterable[str]) -> dict[str, set[str]]:
    """For each file, the files that refer to it."""
    modules = {module_of(path): path for path in [*sources, *changed] if path.endswith(".py")}
    named = defaultdict(set)
    for path in {*sources, *changed}:
        named[PurePosixPath(path).name].add(path)
    users: dict[str, set[str]] = defaultdict(set)
    for path, source in sources.items():
        used = {place for name in source.names for place in _places(name, modules, sources)}
        used |= {place for file in source.files for place in _files(file, named, path)}
        used |= {str(folder / "conftest.py") for folder in PurePosixPath(path).parents} & sources.keys()
        for place in used - {path}:
            users[place].add(path)
    return users


def _files(pattern: str, named: Mapping[str, set[str]], user: str) -> set[str]:
    """The files of a name or a pattern. Only tests look for files of the project by patterns."""
    if "*" not in pattern:
        return named.get(pattern, set())
    return {path for name, paths in named.items() if _is_test(user) and fnmatch(name, pattern) for path in paths}


def _places(name: str, modules: Mapping[str, str], sources: Mapping[str, Source]) -> set[str]:
    """The files that are read where a dotted name is imported: the module's own, and those of the packages above."""
    if name.endswith(".*"):
        return {path for module, path in modules.items() if module.startswith(name[:-1])}
    parts = name.split(".")
    above = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    known = [module for module in above if module in modules]
    if not known:
        return set()
    places, rest = {modules[module] for module in known}, name.removeprefix(known[0]).split(".")[1:]
    about = sources.get(modules[known[0]])
    if not rest or about is None or about.homes is None or rest[0] in about.own or rest[0].startswith("__"):
        return places
    if rest[0] in about.homes:
        return places | _places(about.homes[rest[0]], modules, sources)
    # A module below the package, under a shorter name.
    return places | {path for module, path in modules.items() if module.endswith(f".{rest[0]}")}
