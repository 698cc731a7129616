"""The benchmark in a browser: its own page, and the one that `npm run bench` drives. Other libraries are made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from scripts.bench_page import BenchPage
from scripts.bundle import pyodide_bundle
from scripts.paths import ROOT
from scripts.server import ISOLATED, Headers, SiteServer
from scripts.site import Table, site
from tests.browser.harness import Addresses, Complaints, PyodideHost, PythonError, address_of
from tests.browser.test_demo_page import LOW_CONTRAST, UNNAMED

MADE_UP = "tests/browser/pages/made_up_peers.js"
READY_MS = 120_000
SMALL = """
PRODUCTS = {"gpu": (cube(32),), "cpu": (cube(32), cube(16, "int8"))}
"""
ENDLESS = """
PRODUCTS = {"gpu": (), "cpu": tuple(Product(64, 64, size) for size in range(1, 5000))}
"""


class Bench:
    """One tab with the benchmark page; its products are small ones, for its own take minutes."""

    def __init__(self, page: Page, root: str, products: str = SMALL) -> None:
        self.page = page
        text = (ROOT / "web" / "demo" / "python" / "demo_bench.py").read_text() + products

        def answer(route: Route) -> None:
            route.fulfill(body=text, content_type="text/plain")

        page.context.route("**/python/demo_bench.py", answer)
        page.goto(f"{root}bench/")
        expect(self.run_button).to_have_attribute("aria-disabled", "false", timeout=READY_MS)

    @property
    def run_button(self) -> Any:
        return self.page.locator("#run")

    def run(self) -> None:
        self.run_button.click()
        expect(self.page.locator("#status")).to_have_text("Done.", timeout=READY_MS)

    def chart(self, road: str, label: str) -> Any:
        return self.page.locator(f"#road-{road} .chart").filter(has=self.page.locator("h3", has_text=label))


@pytest.fixture(scope="module")
def done(
    browser: Browser, start_server: Callable[[Table, Headers], SiteServer], wheel: Path, complaints: Complaints
) -> Iterator[Bench]:
    """The page after a run, with two made-up libraries beside it; the tests that share it only look."""
    files = dict(site(wheel, pyodide_bundle(), {"peers/there.txt": b""}).files)
    files["bench/peers.js"] = ROOT / MADE_UP
    server = start_server(files, ISOLATED)
    context = complaints.watch(browser.new_context(accept_downloads=True))
    bench = Bench(context.new_page(), address_of(server))
    bench.run()
    yield bench
    context.close()


def test_charts_show_everybody(done: Bench) -> None:
    for road in ("gpu", "cpu"):
        chart = done.chart(road, "float32 32")
        names = chart.locator("tbody th").all_inner_texts()
        assert sorted(names) == ["NumPy @", "honest", "py_gemm"]
        expect(chart.locator("tr.ours th")).to_have_text("py_gemm")
        expect(chart.locator("[data-part=missing]")).to_contain_text("broken: no such luck")
        expect(chart.locator("[data-part=lead]")).to_contain_text("×")
    expect(done.chart("cpu", "int8 16").locator("tr.ours td").last).to_have_text("exact")
    lengths = done.page.evaluate(
        "[...document.querySelectorAll('#road-gpu .chart .bar')].map((bar) => Number(bar.style.getPropertyValue('--length')))"
    )
    assert lengths[0] == 1
    assert lengths == sorted(lengths, reverse=True)


def test_figures_can_be_kept(done: Bench) -> None:
    with done.page.expect_download() as download:
        done.page.get_by_role("button", name="Save figures").click()
    figures = json.loads(Path(download.value.path()).read_text())
    assert [row["label"] for row in figures["places"]["page"]["rows"]] == ["float32 32³", "int8 16³"]
    with done.page.expect_download() as download:
        done.page.get_by_role("button", name="Save picture").click()
    assert Path(download.value.path()).read_text().startswith("<svg ")
    expect(done.page.locator("#kept")).to_have_text("Saved as py_gemm-benchmark.svg.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_can_be_read(done: Bench, scheme: Any) -> None:
    done.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    done.page.mouse.move(0, 0)
    assert done.page.evaluate(UNNAMED) == []
    assert done.page.evaluate(LOW_CONTRAST) == []


@pytest.mark.parametrize("width", [320, 390, 820, 1240])
def test_page_is_no_wider_than_the_screen(done: Bench, width: int) -> None:
    done.page.set_viewport_size({"width": width, "height": 800})
    assert done.page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_gpu_or_libraries_under_a_strict_policy_and_stopped(no_adapter_page: Page, site: Addresses) -> None:
    page, bench = no_adapter_page, Bench(no_adapter_page, site.csp_url, ENDLESS)
    expect(page.locator("#status")).to_contain_text("No GPU here")
    expect(page.locator("#peers-note")).to_contain_text("npm run bench")
    page.get_by_role("radio", name="GPU", exact=True).check()
    expect(page.locator(".chart")).to_have_count(0)
    page.get_by_role("radio", name="Both", exact=True).check()
    bench.run_button.click()
    chart = page.locator(".chart:not(.waiting)").first
    expect(chart).to_be_visible(timeout=READY_MS)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#status")).to_have_text("Stopped.", timeout=READY_MS)
    assert sorted(chart.locator("tbody th").all_inner_texts()) == ["NumPy @", "py_gemm"]
    expect(page.locator("#road-gpu")).to_be_hidden()
    expect(page.get_by_role("button", name="Copy as Markdown")).to_be_visible()
    expect(bench.run_button).to_have_attribute("aria-disabled", "false")


def test_from_python_in_a_page(pyodide_page: PyodideHost) -> None:
    code = "import py_gemm as pg; pg.bench('cpu', extent='quick').to_dict()['places']['page']['rows'][0]['entries']"
    assert pyodide_page.run(code)[0]["error"] < 1e-6
    with pytest.raises(PythonError, match="bench_async") as refused:
        pyodide_page.run_sync_entry(code)
    assert refused.value.type == "SyncUnavailableError"


def test_page_that_the_command_drives(browser: Browser, wheel: Path) -> None:
    heard: list[str] = []
    page = BenchPage(browser, wheel, {}, "", MADE_UP)
    try:
        page.host.page.on("console", lambda message: heard.append(message.text))
        figures = page.measure("cpu", "quick")
        page.unavailable = "not installed: npm is not on the path"
        gpu = page.measure("webgpu", "quick")
    finally:
        page.host.page.close()
        page.close()
    rows = {row["id"]: {entry["name"]: entry for entry in row["entries"]} for row in figures["rows"]}
    product = rows["products/float32 64³"]
    assert product["broken"]["failure"] == "no such luck"
    assert all(product[name]["error"] < 1e-6 for name in ("py_gemm", "honest", "NumPy @", "scipy BLAS"))
    assert "seconds" in rows["one call/float32 64³"]["py_gemm"]
    assert figures["about"]["host"].startswith("Chromium ")
    assert any("float32 64³, honest" in text for text in heard)
    assert {entry["failure"] for row in gpu["rows"] for entry in row["entries"] if entry["kind"] == "peer"} == {page.unavailable}
    assert all(row["entries"][0]["error"] < 1e-6 for row in gpu["rows"])
