"""Goals, tables and pictures: worked out from figures, never from anything else."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from py_gemm.report.bench import Benchmark
from py_gemm.report.benchmark.goals import GOALS, Goal, against_best, largest_error, rates, speed, times, verdicts
from tests.bench.made_up import cpu_figures, entry, row


@pytest.fixture(scope="module")
def level() -> dict[str, Any]:
    """Everybody as fast as everybody."""
    return cpu_figures(lambda _: 10.0)


@pytest.mark.parametrize(
    "goal", [each for each in GOALS if each.place in ("chromium", "node", "wasmtime")], ids=lambda each: each.text
)
def test_every_goal_of_the_cpu_finds_its_rows(goal: Goal, level: dict[str, Any]) -> None:
    assert goal.found(level) == pytest.approx(1.0)


def met_where(ours: float, others: float) -> set[str]:
    """The goals in Chromium that are met where py_gemm has one rate and everybody else, its own float32 among them, another."""
    figures = cpu_figures(lambda name: ours if name.startswith("py_gemm") and name != "py_gemm float32" else others)
    found = verdicts({"chromium": figures})
    assert all(each["found"] is not None for each in found)
    return {each["goal"] for each in found if each["met"]}


def test_goals_are_met_and_missed_by_their_figures() -> None:
    goals = {each.text for each in GOALS if each.place == "chromium"}
    assert goals - met_where(300.0, 10.0) == {"1024³, two threads to one"}
    assert met_where(1.0, 10.0) == {"128³, two threads to one", "16³ by the front door, time to NumPy's @"}


@pytest.mark.parametrize(("found", "met"), [(0.85, True), (0.849, False), (None, None)])
def test_edge_of_a_goal(found: float | None, met: bool | None) -> None:
    assert Goal("node", "", 0.85, lambda _: found).verdict({"node": {"rows": []}})["met"] is met
    if found is not None:
        assert Goal("node", "", found, lambda _: 0.85, at_most=True).verdict({"node": {"rows": []}})["met"] is (found >= 0.85)


def test_ratios() -> None:
    entries = [entry("py_gemm", 30.0, "ours"), entry("slow", 10.0), entry("fast", 20.0), entry("FMA loop", 40.0, "loop")]
    entries.append({"name": "broken", "kind": "peer", "note": "", "failure": "no such luck"})
    figures = {"rows": [row("products", "float32 512³", 512, entries)]}
    assert rates("products/float32 512³", "py_gemm", "FMA loop")(figures) == pytest.approx(0.75)
    assert times("products/float32 512³", "py_gemm", "slow")(figures) == pytest.approx(1 / 3)
    assert against_best("products/float32 512³", ("slow", "fast", "broken"))(figures) == pytest.approx(1.5)
    assert against_best("products/float32 512³", ("broken",))(figures) is None
    assert rates("products/float32 1024³", "py_gemm", "slow")(figures) is None


def test_a_ratio_is_the_median_of_single_turns() -> None:
    ours = {**entry("py_gemm", 1.0, "ours"), "turns": [1.0, 4.0, 1.0, 1.0]}
    other = {**entry("other", 1.0), "turns": [2.0, 8.0, 9.0], "operations": 4}
    assert speed(ours, other) == 2 / 4 * 2.0


def test_largest_error_takes_only_its_depths() -> None:
    rows = [
        row("gpu", f"float32 1 × 1 × {k}", k, [entry("py_gemm", 1.0, "ours", error=error), entry("other", 1.0, error=1.0)])
        for k, error in ((512, 9e-7), (768, 2e-7), (4096, 3e-7))
    ]
    assert largest_error(768, 4096)({"rows": rows}) == 3e-7
    assert largest_error(8192, 8193)({"rows": rows}) is None


@pytest.fixture
def report() -> Benchmark:
    entries = [
        entry("py_gemm", 30.0, "ours", error=3e-7),
        entry("a <b> & c", 20.0, error=0.25),
        entry("FMA loop", 40.0, "loop"),
        {"name": "broken", "kind": "peer", "note": "", "failure": "no such luck"},
    ]
    rows = [row("products", "float32 512³", 512, entries), row("front door", "float32 16³", 16, entries[:2])]
    return Benchmark(
        {"chromium": {"about": {"engine": "none"}, "rows": rows}, "node": {"about": {}, "rows": [], "failure": "absent"}}
    )


def test_tables(report: Benchmark) -> None:
    text = str(report)
    assert "| float32 512³ |  | 30 | 20 | 40 |  | **1.5** (a <b> & c) | 0.75 |" in text
    assert "- broken, float32 512³: no such luck" in text
    assert "Not measured: absent" in text
    assert "| float32 512³ | 3.0e-07 | 2.5e-01 |" in text
    assert re.search(r"\| CPU in Chromium \| float32 512³, to the FMA loop \| ≥ 0.85 \| 0.75 \| not met \|", text)
    assert "| float32 16³ |  | 3.33e+04 | 5e+04 |" in text or "33,333" in text
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("| product")}
    assert widths


def test_picture_is_well_formed(report: Benchmark) -> None:
    root = ElementTree.fromstring(report.to_svg())
    space = "{http://www.w3.org/2000/svg}"
    bars = [each for each in root.iter(f"{space}rect") if each.get("class") in ("cpu", "other")]
    longest, shorter = (float(each.get("width", 0)) for each in bars)
    assert shorter == pytest.approx(longest * 20 / 30, abs=0.1)
    assert len(list(root.iter(f"{space}line"))) == 2  # the rule of the place, and the ceiling
    words = " ".join(each.text or "" for each in root.iter(f"{space}text"))
    assert "a <b> & c" in words
    assert "prefers-color-scheme: dark" in report.to_svg()


def test_notebooks_show_the_picture(report: Benchmark) -> None:
    style = report.to_svg().split("<style>")[1].split("</style>")[0]
    selectors = re.findall(r"^ *([^\n{@]+) \{", style, re.M)
    assert all(each.startswith(".py-gemm-bench") for each in selectors)  # nothing else in the page changes its looks
    assert report._repr_html_().startswith("<svg ")
    assert repr(report) == str(report)
