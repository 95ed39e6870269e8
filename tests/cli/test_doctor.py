"""The doctor's table says why and what to do."""

from __future__ import annotations

from rich.console import Console

from trnqc.backends.base import BackendStatus
from trnqc.cli.doctor import table


def test_lists_every_backend(trnqc):
    status, out, _ = trnqc("doctor")
    assert status == 0
    for name in ("cpu", "simulator", "neuron"):
        assert name in out
    assert "numpy" in out


def test_usable_and_not():
    console = Console(width=100, record=True)
    well = BackendStatus(usable=True, versions={"nki": "0.6"}, devices=("trn1 core 0",))
    ill = BackendStatus(usable=False, reason="a stub is installed [nki 0.0.1]", hint="install the vendor's")
    console.print(table({"well": well, "ill": ill}))
    text = console.export_text()
    for words in (
        "yes",
        "on trn1 core 0",
        "nki: 0.6",
        "no",
        "a stub is installed [nki 0.0.1]",
        "-> install the vendor's",
    ):
        assert words in text
