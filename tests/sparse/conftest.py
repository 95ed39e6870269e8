"""Plans of these tests do not depend on the machine: nests are ranked by the default rates."""

from __future__ import annotations

import pytest

from trnqc.sparse import api
from trnqc.sparse.search.rates import WorkRates


@pytest.fixture(autouse=True)
def default_rates(monkeypatch):
    monkeypatch.setattr(api, "machine_rates", WorkRates)
