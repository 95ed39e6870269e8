"""Run a Python command in a process whose CUDA driver is the stand-in.

python -m scripts.device.driver -m pytest tests/jit/test_device.py
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts import ROOT
from trnqc.errors import BackendUnavailable
from trnqc.jit.cache import key_of, library_cache
from trnqc.jit.cpp import cpp_compiler, cpp_version, run

FOLDER = Path(__file__).parent
# The libraries of the stand-in, with the names under which they are looked for.
LIBRARIES = {
    "libcuda.so.1": "libcuda.cpp",
    "libcublas.so.13": "libcublas.cpp",
    "libcublasLt.so.13": "libcublaslt.cpp",
    "libnvidia-ml.so.1": "libnvml.cpp",
}
# Packages without which the command cannot run.
NEEDED = ("cuda.core", "cuda.bindings")


def libraries() -> Path:
    """Return a folder with the libraries, which are compiled at the first call."""
    header = (FOLDER.parents[2] / "trnqc" / "jit" / "emulator" / "launch.h").read_text()
    texts = [header, *((FOLDER / source).read_text() for source in LIBRARIES.values())]
    folder = library_cache().directory / f"cuda-stand-in-{key_of(cpp_version(), *texts)}"
    folder.mkdir(exist_ok=True)
    for library, source in LIBRARIES.items():
        if not (folder / library).exists():
            out = folder / f"{library}.{os.getpid()}"
            options = ["-std=c++17", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{library}"]
            run([*cpp_compiler(), *options, str(FOLDER / source), "-o", str(out), "-ldl"])
            out.replace(folder / library)
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    missing = [name for name in NEEDED if importlib.util.find_spec(name.partition(".")[0]) is None]
    if missing:
        raise BackendUnavailable(f"{', '.join(missing)} cannot be imported: pip install 'trnqc[cuda]'")
    path = os.pathsep.join(filter(None, (str(libraries()), os.environ.get("LD_LIBRARY_PATH", ""))))
    # Python imports sitecustomize before anything else.
    modules = os.pathsep.join(filter(None, (str(FOLDER / "site"), str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environment = os.environ | {"LD_LIBRARY_PATH": path, "PYTHONPATH": modules}
    return subprocess.run([sys.executable, *arguments], env=environment, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BackendUnavailable as error:
        sys.exit(f"device.driver: {error}")
