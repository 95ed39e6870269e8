"""Randomly damaged files give an InputError or a profile, never another exception."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.profiling import samples
from trnqc.errors import InputError
from trnqc.profiling import console
from trnqc.profiling.page import page
from trnqc.profiling.profile import Profile
from trnqc.profiling.readers import read, timeline
from trnqc.profiling.writers import analysis, trace


def ours() -> dict:
    return json.loads(trace(timeline.read(samples.timeline(), Path("t.json"))[0]))


FORMS = {
    "ours": ours,
    "timeline": samples.timeline,
    "summary": samples.summary_json,
    "vendor": samples.vendor_json,
    "system": samples.system_json,
    "chrome": samples.chrome,
    "nsight": samples.nsight,
}
DAMAGE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ODD = st.sampled_from([None, True, -1, 1e300, 1e-300, float("nan"), "", "x", [], {}, [1], {"a": 1}])


def reads_or_refuses(path) -> None:
    try:
        result = read(path)
    except InputError as error:
        assert str(path) in str(error)
        return
    for profile in result:
        assert isinstance(profile, Profile)
        console.report(profile)
        page([profile])
        trace(profile)
        analysis([profile])


def places(value, here=()):
    """Every path into nested JSON."""
    yield here
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*here, key))


@pytest.mark.parametrize("form", FORMS)
@DAMAGE
@given(data=st.data())
def test_values_of_other_kinds(form, data, tmp_path):
    document = json.loads(json.dumps(FORMS[form]()))
    *way, last = data.draw(st.sampled_from([p for p in places(document) if p]))
    inner = document
    for key in way:
        inner = inner[key]
    inner[last] = data.draw(ODD)
    reads_or_refuses(samples.write(tmp_path / "damaged.json", document))


@pytest.mark.parametrize("form", FORMS)
@DAMAGE
@given(data=st.data())
def test_cut_json(form, data, tmp_path):
    whole = json.dumps(FORMS[form]())
    path = tmp_path / "cut.json"
    path.write_text(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(InputError):
        read(path)


@DAMAGE
@given(data=st.data())
def test_damaged_protobuf(data, tmp_path):
    pytest.importorskip("perfetto")
    whole = bytearray(samples.pftrace())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.pftrace"
    path.write_bytes(bytes(whole[: data.draw(st.integers(3, len(whole)))]))
    reads_or_refuses(path)


@DAMAGE
@given(data=st.binary(max_size=200))
def test_any_bytes(data, tmp_path):
    path = tmp_path / "any"
    path.write_bytes(data)
    reads_or_refuses(path)
