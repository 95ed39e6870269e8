"""The whole text of two small programs, to see a change of emission in a review.

``TRNQC_UPDATE_GOLDEN=1 pytest tests/gen/test_golden.py`` writes the files anew. That the programs compute the right
numbers is tested in test_emit.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.gen.programs import gemm, polynomial
from trnqc.gen import emit_c, emit_cuda, listing

GOLDEN = Path(__file__).with_name("golden")
TEXTS = {
    "gemm.txt": lambda: listing(gemm()),
    "gemm_4_lanes.c": lambda: emit_c(gemm(), lanes=4),
    "polynomial.txt": lambda: listing(polynomial()),
    "polynomial.c": lambda: emit_c(polynomial()),
    "polynomial.cu": lambda: emit_cuda(polynomial(), lanes=64),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name):
    path, text = GOLDEN / name, TEXTS[name]()
    if os.environ.get("TRNQC_UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
