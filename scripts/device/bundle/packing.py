"""A folder as parts of a tar file with digests, and the script that makes an environment of them without a network."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

# The script as text: it runs on a machine that has nothing of ours yet.
SETUP = """#!/bin/bash
# Unpack the bundle beside this script into FOLDER, and make an environment there without a network:
#     [PYTHON=python3] bash setup.sh [FOLDER]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${1:-$PWD/trnqc-gpu}
python=${PYTHON:-python3}
fail() { echo "setup.sh: error: $1" >&2; exit 2; }

found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || fail "$python does not run: set PYTHON"
[ "$found" = "@PYTHON@" ] || fail "this bundle is for Python @PYTHON@, but $python is Python $found: set PYTHON to the\\
 path of a Python @PYTHON@, or make another bundle (python -m scripts.device.bundle --python $found)"
(cd "$here" && sha256sum --check --quiet SHA256SUMS) || fail "a part is missing or damaged: copy it again"

mkdir -p "$target" && target=$(cd "$target" && pwd)
cat "$here"/bundle.tar.* | tar -x -C "$target"
"$python" -m venv --system-site-packages "$target/venv"
# The packages of the machine, also where its Python is that of an environment, behind those of the bundle.
site="$target/venv/lib/python@PYTHON@/site-packages"
mkdir -p "$site"
"$python" -c 'import site; print(*site.getsitepackages(), sep="\\n")' > "$site/machine.pth"
if compgen -G "$target/wheels/*.whl" > /dev/null; then
    PIP_CONFIG_FILE=/dev/null "$target/venv/bin/pip" install --quiet --disable-pip-version-check \\
        --no-index --no-deps "$target"/wheels/*.whl
fi
cat > "$target/env.sh" <<END
export PATH="$target/venv/bin:\\$PATH" PYTHONPATH="$target/trnqc" TRNQC_CACHE_DIR="$target/cache"
END
[ ! -s "$target/missing.txt" ] || { echo "Not in this bundle:"; cat "$target/missing.txt"; }
echo "Ready: . $target/env.sh && cd $target/trnqc && python -m scripts.device.first_run --minutes 9"
"""


def size_of(text: str) -> int:
    """A number of bytes, such as 60M for 60 million. Raises ValueError."""
    units = {"k": 10**3, "M": 10**6, "G": 10**9}
    size = int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)
    if size < 1:
        raise ValueError(f"expected a positive size, found {text}")
    return size


def pack(folder: Path, out: Path, part: int, python: str) -> list[Path]:
    """Write the parts, SHA256SUMS and setup.sh of a folder to `out`. Returns the parts.

    Parts of an earlier bundle in `out` are removed first.
    """
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("bundle.tar.*"):
        old.unlink()
    whole = out / "bundle.tar"
    with tarfile.open(whole, "w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)
    parts = _split(whole, part)
    whole.unlink()
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in parts]
    (out / "SHA256SUMS").write_text("".join(sums))
    (out / "setup.sh").write_text(SETUP.replace("@PYTHON@", python))
    return parts


def _split(whole: Path, part: int) -> list[Path]:
    parts: list[Path] = []
    with whole.open("rb") as source:
        while data := source.read(part):
            # Four digits, so that the shell's order is that of the parts.
            parts.append(whole.with_name(f"{whole.name}.{len(parts):04d}"))
            parts[-1].write_bytes(data)
    return parts
