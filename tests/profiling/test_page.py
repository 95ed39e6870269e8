"""The report is well formed and self-contained, escapes text from files, and shows the figures."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tests.profiling import samples
from trnqc.profiling import compare
from trnqc.profiling.page import lanes, page, roofline, rows
from trnqc.profiling.profile import Labels, Lane, Profile
from trnqc.profiling.readers import timeline, vendor_json
from trnqc.profiling.utilisation import roofline as position

VOID = {"meta", "br", "rect", "line", "path", "circle", "polyline"}


class Reader(HTMLParser):
    """Checks nesting and collects text, attributes and the content of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.scripts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, key, value) for key, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, key, value) for key, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        else:
            self.text.append(data)


@pytest.fixture
def profile() -> Profile:
    return timeline.read(samples.timeline(), Path("t.json"))[0]


def test_the_figures_stand_in_the_page(profile):
    text = " ".join(Reader(page([profile])).text)
    for figure in (
        "1 µs",
        "80.00 %",
        "55.56 %",
        "786.4 kB",
        "4 KiB per partition of 224 KiB",
        "every iteration was timed",
    ):
        assert figure in text, figure
    assert "modelled" in text
    assert "Trainium2" in text
    for cause in ("waits for a value to be written", "PSUM bank in use"):
        assert cause in text


def test_nothing_is_fetched(profile):
    html = page([profile, profile], compare(profile, profile))
    for tag, key, value in Reader(html).attributes:
        assert key not in ("src", "href", "xlink:href", "action"), (tag, key, value)
    assert "@import" not in html
    assert not re.search(r"url\(", html)
    assert set(re.findall(r"https?://[^\s\"'<]+", html)) <= {"http://www.w3.org/2000/svg"}


def test_every_picture_has_words(profile):
    html = page([profile])
    pictures = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(pictures) == 2
    for picture in pictures:
        root = ET.fromstring(picture)
        assert root.get("role") == "img"
        assert len(root[0].text) > 20
        assert root[0].tag == "title"


def test_text_of_files_is_escaped(profile):
    evil = "</script><script>alert(1)</script>&<b>"
    lane = profile.lanes[0]
    lane = replace(lane, name=Labels.same(evil, len(lane)), op=Labels.same(evil, len(lane)))
    html = page(
        [replace(profile, title=evil, lanes=[lane], notes=[evil], provenance={evil: evil}, stalls={evil: {evil: 9}})]
    )
    assert "<script>alert" not in html
    assert "alert(1)" in " ".join(Reader(html).text)


def test_the_script_gets_the_lanes_as_they_are(profile):
    (data,) = [json.loads(s) for s in Reader(page([profile])).scripts if s.startswith("[")]
    assert [lane["label"] for lane in data] == ["Tensor", "Vector", "Scalar", "DMA 0", "DMA 1"]
    tensor = data[0]
    assert np.cumsum(tensor["start"]).tolist() == [0, 200, 500]
    assert tensor["length"] == [200, 200, 400]
    assert [tensor["causes"][k] for k in tensor["cause"]] == ["none", "none", "waits for a value to be written"]


def test_script_and_drawing_share_their_measures():
    text = (Path(lanes.__file__).parent / "lanes.js").read_text(encoding="utf-8")
    for name in ("WIDTH", "LEFT", "RIGHT", "TOP", "SHORT", "BINS", "BLOCKS"):
        assert re.search(rf"\b{name} = {getattr(lanes, name)}\b", text), name


def busy_lane(engine: str, n: int) -> Lane:
    start = np.arange(n) * 10.0
    none = Labels.same("none", n)
    return Lane(engine, start, start + 7.0, Labels.same("op", n), Labels.same("", n), none, np.zeros(n))


def test_long_runs_stay_small_and_say_so():
    """Every event of a long run would make a page that no browser opens."""
    long = Profile("k", "p", "f", "device", lanes=[busy_lane("tensor", 200_000), busy_lane("vector", 7)])
    html = page([long])
    assert len(html) < 6_000_000
    assert "Tensor: 200000 events are drawn as" in html
    tensor = rows.rows(long, 0)[0][0].lane
    assert len(tensor) < 1.01 * rows.EVENTS
    assert float(np.sum(tensor.end - tensor.start)) == pytest.approx(1.4e6)


def test_long_runs_get_a_close_up():
    start, end = rows.close_up(Profile("k", "p", "f", "device", lanes=[busy_lane("tensor", 5000)]), 0)
    assert (end - start) == pytest.approx(26 * 10 + 7)
    assert rows.close_up(Profile("k", "p", "f", "device", lanes=[busy_lane("tensor", 20)]), 0) is None


def test_the_close_up_of_a_long_run_shows_instructions_as_they_are():
    long = Profile("k", "p", "f", "device", lanes=[busy_lane("tensor", 100_000)])
    start, end = rows.close_up(long, 0)
    tensor = rows.rows(long, 0)[0][0].lane
    inside = (tensor.start >= start) & (tensor.end <= end)
    assert (tensor.end - tensor.start)[inside].tolist() == [7.0] * 27
    assert {tensor.op[k] for k in np.flatnonzero(inside)} == {"op"}


def test_many_queues_are_drawn_as_one():
    drawn, notes = rows.rows(Profile("k", "p", "f", "device", lanes=[busy_lane(f"dma{k}", 3) for k in range(40)]), 0)
    assert len(drawn) == 1
    assert "40 DMA queues" in notes[0]


@pytest.mark.parametrize(("start", "end"), [(0.0, 1.0), (0.0, 7e9), (1e9, 1e9 + 3), (123.4, 567.8)])
def test_ticks_are_few_and_inside(start, end):
    marks = lanes.ticks(start, end)
    assert 2 <= len(marks) <= 9
    assert all(start - 1e-6 <= t <= end + 1e-6 for t in marks)
    assert np.allclose(np.diff(marks), marks[1] - marks[0])


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
def test_rooflines_stay_in_the_frame(profile, target, scale):
    summary = dict(profile.summary) | {"hbm_read_bytes": samples.HBM * scale}
    roof = position(replace(profile, target=target, summary=summary))
    root = ET.fromstring(roofline.figure([("A", roof)]))
    (mark,) = [circle for circle in root.iter("circle") if circle.get("class") == "point"]
    assert roofline.LEFT <= float(mark.get("cx")) <= roofline.WIDTH - roofline.RIGHT
    assert roofline.TOP <= float(mark.get("cy")) <= roofline.HEIGHT - roofline.BOTTOM


def test_a_summary_alone_makes_a_page():
    (summary,) = vendor_json.read(samples.summary_json(), Path("s.json"))
    text = " ".join(Reader(page([summary])).text)
    assert "because its target is not known" in text
    assert "measured" in text
    assert "mbu_min_read_util_percent" in text


def test_comparison_names_difference_and_caveats(profile):
    slow = replace(profile, summary=dict(profile.summary) | {"total_time": 4e-6}, measurement="device")
    text = " ".join(Reader(page([slow, profile], compare(slow, profile))).text)
    assert "B is 4 times as fast as A." in text
    assert "a model is compared with a clock" in text
    assert "-3 µs" in text


def test_missing_events_are_confessed(profile):
    partial = replace(profile, summary=dict(profile.summary) | {"tensor_engine_active_time": 8e-6, "total_time": 1e-5})
    text = " ".join(Reader(page([partial])).text)
    assert "The events listed hold 10.0 % of the tensor engine's active time" in text
    assert "Listed events" in text
    assert "Whole run" not in text
