"""Source trees of other packages, at the tag of the installed version, in a cache folder outside of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from scripts.peers.peer import Peer
from trnqc.errors import InputError, StorageError


def cache_folder() -> Path:
    """``$TRNQC_PEERS_DIR``, else ``trnqc-peers`` in the user's cache directory."""
    if chosen := os.environ.get("TRNQC_PEERS_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trnqc-peers"


def tree_of(peer: Peer, path: Path | None = None) -> Path:
    """The peer's source tree: `path`, or a clone of the installed version's tag, made at the first use.

    Raises
    ------
    InputError
        If `path` is no folder.
    StorageError
        If the tag cannot be cloned; the message holds git's words.
    """
    if path is not None:
        if not path.is_dir():
            raise InputError(f"--tree {peer.name}=DIR expects the folder of {peer.name}'s source tree, found {path}")
        return path
    tag = peer.tag.format(version=peer.version)
    tree = cache_folder() / f"{peer.name}-{peer.version}"
    if not tree.is_dir():
        _clone(peer, tag, tree)
    return tree


def _clone(peer: Peer, tag: str, tree: Path) -> None:
    """Clone beside the final place and rename, so that a clone that was cut off is never taken for a whole one."""
    aside = tree.with_name(f"{tree.name}.{os.getpid()}")
    aside.parent.mkdir(parents=True, exist_ok=True)
    command = ["git", "clone", "--quiet", "--depth", "1", "--branch", tag, peer.repository, str(aside)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(aside, ignore_errors=True)
        raise StorageError(
            f"`{' '.join(command)}` failed: {done.stderr.strip()}; clone {peer.repository} elsewhere at {tag} and give "
            f"its folder as --tree {peer.name}=DIR"
        )
    aside.rename(tree)


def files_of(peer: Peer, tree: Path) -> list[Path]:
    """The peer's test files, relative to the tree, in the order of `Peer.files`. Raises InputError for missing ones."""
    files: list[Path] = []
    for pattern in peer.files:
        matches = sorted(path.relative_to(tree) for path in tree.glob(pattern))
        if not matches:
            raise InputError(f"{tree} holds no {pattern}: expected the source tree of {peer.name} {peer.version}")
        files += matches
    return list(dict.fromkeys(files))


def copied(tree: Path, file: Path, scratch: Path) -> Path:
    """The test file in a copy of its folder, with the nearest conftest.py above it.

    The peer's package is left behind, so that the installed one is tested.
    """
    folder = scratch / "__".join(file.parent.parts)
    if not folder.exists():
        ignored = shutil.ignore_patterns("__pycache__", "__init__.py")
        shutil.copytree(tree / file.parent, folder, ignore=ignored)
        above = (tree / parent / "conftest.py" for parent in file.parent.parents)
        if nearest := next((path for path in above if path.exists()), None):
            shutil.copy(nearest, scratch)
    return folder / file.name
