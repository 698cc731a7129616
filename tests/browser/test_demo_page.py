"""The demo page as a page: loading, without a GPU, under a CSP, below a sub-path, by keyboard, on a phone, for screen readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from scripts.bundle import pyodide_bundle
from scripts.server import PLAIN, Headers, SiteServer
from scripts.site import Table
from tests.browser.demo_page import READY_MS, DemoPage
from tests.browser.harness import Addresses, Complaints, address_of, site_table

UNNAMED = """() => [...document.querySelectorAll("input, select, textarea, button, canvas:not([aria-hidden]), [role=region]")]
    .filter((element) => element.checkVisibility())
    .filter((element) => !(element.getAttribute("aria-label") || element.labels?.length || element.textContent.trim()))
    .map((element) => element.outerHTML)"""

# WCAG's contrast of each visible piece of text with the nearest opaque background behind it.
LOW_CONTRAST = """() => {
    const channels = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
    const light = (colour) => {
        const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        const [r, g, b] = colour.slice(0, 3).map((v) => linear(v / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = channels(getComputedStyle(at).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        const waits = element.closest("[aria-disabled=true], :has(> :disabled), option, noscript, template");
        if (!walker.currentNode.data.trim() || waits || !element.checkVisibility()) continue;
        const style = getComputedStyle(element);
        const [high, low] = [light(channels(style.color)), light(behind(element))].sort((x, y) => y - x);
        const size = parseFloat(style.fontSize);
        const wanted = size >= 24 ? 3 : 4.5;
        if ((high + 0.05) / (low + 0.05) < wanted) found.push(`${walker.currentNode.data.trim()}: ${style.color}`);
    }
    return found;
}"""


@pytest.fixture(scope="module")
def demo(browser: Browser, site: Addresses, complaints: Complaints) -> Iterator[DemoPage]:
    """The page with a small product on show; the tests that share it only look."""
    context = complaints.watch(browser.new_context())
    demo = DemoPage(context.new_page(), site.url).wait()
    demo.generate_both(20, 30, 10)
    demo.multiply()
    for summary in demo.page.locator("summary").all():
        summary.click()
    yield demo
    context.close()


def test_loading_shows_progress_while_the_inputs_are_open(page: Page, site: Addresses) -> None:
    held: list[Route] = []
    page.route("**/numpy-*.whl", lambda route: held.append(route))
    demo = DemoPage(page, site.url)
    expect(page.locator("#progress-text")).to_have_text(re.compile(r"^Loading NumPy · [\d.]+ MB of [\d.]+ MB$"), timeout=READY_MS)
    done = float(page.locator("#progress").get_attribute("value") or 0)
    assert 0.3 < done < 1
    expect(demo.run_button).to_be_disabled()
    demo.set_sizes(8, 9, 10)
    for route in held:
        route.continue_()
    demo.wait()
    expect(page.locator("#loading")).to_be_hidden()
    expect(demo.summary("A")).to_contain_text("8 × 9")
    expect(page.locator("#facts")).to_contain_text("swiftshader")


@pytest.mark.expects_console("site.json", "net::ERR_FAILED")
def test_failure_to_load_is_told(page: Page, site: Addresses) -> None:
    page.route("**/site.json", lambda route: route.abort())
    demo = DemoPage(page, site.url)
    expect(page.locator("#notice")).to_contain_text("Python could not be started")
    expect(demo.status).to_have_text("Python could not be started.")


def test_without_an_adapter_the_cpu_takes_over(no_adapter_page: Page, site: Addresses) -> None:
    demo = DemoPage(no_adapter_page, site.url).wait()
    expect(no_adapter_page.get_by_role("status").filter(has_text="No GPU here")).to_be_visible()
    expect(no_adapter_page.get_by_role("radio", name="GPU")).to_be_disabled()
    demo.generate_both(30, 20, 10)
    demo.multiply()
    expect(no_adapter_page.locator("#ran")).to_have_text(re.compile("^D comes from the CPU"))
    expect(demo.lane("gpu").locator("data")).to_have_count(0)
    assert demo.download().shape == (30, 10)


@pytest.mark.parametrize("kind", ["plain_url", "csp_url"])
def test_without_isolation_and_under_a_content_policy(page: Page, site: Addresses, kind: str) -> None:
    demo = DemoPage(page, getattr(site, kind)).wait()
    demo.generate_both(8, 8, 8)
    demo.choose("GPU")
    demo.multiply()
    assert demo.largest_error() < 1e-6


def test_as_a_folder_below_any_path(page: Page, wheel: Path, start_server: Callable[[Table, Headers], SiteServer]) -> None:
    table = {f"some/where/{name}": content for name, content in site_table(wheel, pyodide_bundle()).items()}
    demo = DemoPage(page, address_of(start_server(table, PLAIN)) + "some/where/").wait()
    demo.generate_both(5, 6, 7)
    demo.multiply()


def test_keyboard_alone(page: Page, site: Addresses) -> None:
    demo = DemoPage(page, site.url).wait()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the product")).to_be_focused()
    for name in ("m", "k", "n"):
        page.keyboard.press("Tab")
        expect(page.locator(f"#size-{name}")).to_be_focused()
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type("12")
    for side in ("A", "B"):
        page.keyboard.press("Tab")
        expect(page.locator(f"input[name=source-{side}]:checked")).to_be_focused()
        for part in ("distribution", "seed", "type"):
            page.keyboard.press("Tab")
            expect(page.locator(f"#operand-{side.lower()} [data-part={part}]")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="GPU")).to_be_checked()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Compare with NumPy")).to_be_focused()
    expect(demo.summary("B")).to_contain_text("12 × 12")
    page.keyboard.press("Tab")
    expect(demo.run_button).to_be_focused()
    page.keyboard.press("Enter")
    expect(demo.status).to_have_text(re.compile("^Done on the GPU"), timeout=READY_MS)
    expect(demo.run_button).to_be_focused()


@pytest.mark.parametrize("width", [320, 360, 390, 768, 1024, 1440])
def test_nothing_is_wider_than_the_screen(demo: DemoPage, width: int) -> None:
    demo.page.set_viewport_size({"width": width, "height": 800})
    wide = demo.page.evaluate("() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] <= wide[1]


@pytest.mark.parametrize("width", [320, 390, 768, 929, 1024, 1280])
def test_choices_stay_on_one_line(demo: DemoPage, width: int) -> None:
    demo.page.set_viewport_size({"width": width, "height": 800})
    for name in ("Device", "Mode"):
        tops = [label.bounding_box() for label in demo.page.get_by_role("group", name=name).locator("label").all()]
        assert len({box["y"] for box in tops if box}) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(demo: DemoPage, scheme: str) -> None:
    demo.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    assert demo.page.evaluate(LOW_CONTRAST) == []


def test_every_control_and_picture_has_a_name(demo: DemoPage) -> None:
    assert demo.page.evaluate(UNNAMED) == []


def test_landmarks_and_headings(demo: DemoPage) -> None:
    for role in ("banner", "main", "contentinfo"):
        expect(demo.page.get_by_role(role)).to_have_count(1)
    levels = demo.page.evaluate("() => [...document.querySelectorAll('h1, h2, h3')].map((heading) => Number(heading.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for name in ("A", "B", "D", "Speed", "Largest error", "Result", "Python"):
        expect(demo.page.get_by_role("heading", name=name, exact=True)).to_be_attached()


def test_pictures_say_what_they_show(demo: DemoPage) -> None:
    expect(demo.page.get_by_role("img", name=re.compile("^Picture of A: 20 × 30 float32"))).to_be_attached()
    expect(demo.page.get_by_role("img", name=re.compile("^Picture of D: 20 × 10 float32"))).to_be_attached()
    expect(demo.page.get_by_role("img", name=re.compile("^Map of the errors of D, .*lies at row"))).to_be_attached()


def test_no_script_or_style_inside_the_page(demo: DemoPage) -> None:
    inline = "() => document.querySelectorAll('script:not([src]), style, [onclick], [onload]').length"
    assert demo.page.evaluate(inline) == 0
