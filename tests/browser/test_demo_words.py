"""What the demo page says when something is wrong: in words, beside the input that caused it, with the next step open."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.demo_page import DemoPage, Side, npy
from tests.browser.harness import Addresses, Complaints


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.ones(3))
    return file.getvalue()


WRONG_FILES = {
    "photo.png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe", "neither .npy nor text"),
    "empty.npy": (b"", "is empty"),
    "fake.npy": (b"1,2\n3,4\n", "does not begin as one"),
    "cut.npy": (npy(np.ones((30, 30)))[:500], "is damaged"),
    "many.npz": (npz(), ".npz or zip archive"),
    "whole.npy": (npy(np.ones((3, 3), np.int64)), "holds int64"),
    "complex.npy": (npy(np.ones((3, 3), np.complex64)), "holds complex64"),
    "vector.npy": (npy(np.ones(7)), "1 dimension, shape (7,)"),
    "stack.npy": (npy(np.ones((2, 3, 4))), "3 dimensions"),
    "nothing.npy": (npy(np.ones((0, 4))), "no elements"),
    "ragged.csv": (b"1,2,3\n4,5\n", "line 2 has 2 values"),
    "words.csv": (b"1,2\n3,four\n", "line 2, column 2: “four” is not a number"),
}


SIDES: tuple[Side, ...] = ("A", "B")


@pytest.fixture(scope="module")
def shared(browser: Browser, site: Addresses, complaints: Complaints) -> Iterator[DemoPage]:
    context = complaints.watch(browser.new_context())
    yield DemoPage(context.new_page(), site.url).wait()
    context.close()


@pytest.fixture
def demo(shared: DemoPage) -> DemoPage:
    shared.choose()
    shared.generate_both(6, 7, 8)
    shared.wait()
    return shared


@pytest.mark.parametrize("name", WRONG_FILES)
def test_wrong_file(demo: DemoPage, name: str) -> None:
    data, words = WRONG_FILES[name]
    demo.pick("A", name, data)
    expect(demo.error("A")).to_contain_text(name)
    expect(demo.error("A")).to_contain_text(words)
    expect(demo.error("B")).to_be_empty()
    expect(demo.run_button).to_be_disabled()
    demo.generate("A")
    expect(demo.error("A")).to_be_empty()
    demo.wait()


def test_integers_are_converted_when_asked(demo: DemoPage) -> None:
    demo.pick("B", "whole.npy", npy(np.arange(21).reshape(7, 3)))
    expect(demo.error("B")).to_contain_text("Choose float32")
    demo.panel("B").get_by_label("Element type").select_option("float32")
    expect(demo.error("B")).to_be_empty()
    expect(demo.summary("B")).to_contain_text("7 × 3 float32")
    demo.multiply()


def test_shapes_that_do_not_fit(demo: DemoPage) -> None:
    demo.drop("A", "a.npy", npy(np.ones((4, 9), np.float32)))
    expect(demo.summary("A")).to_contain_text("4 × 9")
    demo.drop("B", "b.npy", npy(np.ones((5, 3), np.float32)))
    expect(demo.error("B")).to_contain_text("A has 9 columns and B has 5 rows")
    expect(demo.run_button).to_be_disabled()
    demo.generate("B")
    expect(demo.error("B")).to_be_empty()
    expect(demo.summary("B")).to_contain_text("9 × 3")
    demo.multiply()


@pytest.mark.parametrize("value", ["", "0", "-3", "2.5", "20000"])
@pytest.mark.parametrize("name", ["m", "k", "n"])
def test_sizes_out_of_range(demo: DemoPage, name: str, value: str) -> None:
    size = demo.page.locator(f"#size-{name}")
    size.fill(value)
    expect(demo.page.locator("#sizes-error")).to_have_text(f"{name} must be a whole number from 1 to 16384.")
    expect(size).to_have_attribute("aria-invalid", "true")
    expect(size).to_have_accessible_description(re.compile(f"{name} must be a whole number"))
    expect(demo.page.locator("[aria-invalid=true]")).to_have_count(1)
    for side in SIDES:
        expect(demo.error(side)).to_be_empty()
    expect(demo.run_button).to_be_disabled()
    size.fill("5")
    expect(demo.page.locator("#sizes-error")).to_be_empty()
    expect(size).to_have_attribute("aria-invalid", "false")
    demo.wait()


def test_several_sizes_out_of_range(demo: DemoPage) -> None:
    demo.set_sizes(0, 7, 20000)
    expect(demo.page.locator("#sizes-error")).to_have_text("m and n must be whole numbers from 1 to 16384.")
    demo.set_sizes(6, 7, 20000)
    expect(demo.page.locator("#sizes-error")).to_have_text("n must be a whole number from 1 to 16384.")
    expect(demo.page.locator("#size-m")).to_have_attribute("aria-invalid", "false")


def test_a_size_that_a_file_gives_is_not_at_fault(demo: DemoPage) -> None:
    demo.page.locator("#size-m").fill("0")
    expect(demo.page.locator("#sizes-error")).to_contain_text("m must be")
    demo.drop("A", "a.npy", npy(np.ones((20000, 7), np.float32)))
    expect(demo.summary("A")).to_contain_text("20,000 × 7")
    expect(demo.page.locator("#sizes-error")).to_be_empty()
    demo.wait()


def test_seed_out_of_range(demo: DemoPage) -> None:
    seed = demo.panel("B").locator("[data-part=seed]")
    seed.fill("-1")
    expect(demo.error("B")).to_have_text("Seed must be a whole number from 0 to 4294967295.")
    expect(seed).to_have_attribute("aria-invalid", "true")
    expect(seed).to_have_accessible_description(re.compile("Seed must be a whole number"))
    seed.fill("3")
    expect(demo.error("B")).to_be_empty()
    expect(seed).to_have_attribute("aria-invalid", "false")


def test_more_elements_than_the_page_holds(demo: DemoPage) -> None:
    demo.set_sizes(16384, 16384, 1)
    expect(demo.error("A")).to_contain_text("at most 16,777,216")


def test_float64_on_the_gpu(demo: DemoPage) -> None:
    demo.generate_both(6, 7, 8, "float64")
    demo.choose("GPU")
    demo.wait().run_button.click()
    expect(demo.page.locator("#device-error")).to_contain_text("float64")
    expect(demo.status).to_have_text("No product.")
    expect(demo.lane("cpu").locator("data").first).to_be_attached()
    demo.choose("CPU")
    demo.multiply()
    expect(demo.page.locator("#device-error")).to_be_empty()


def test_values_beyond_the_type_are_counted(demo: DemoPage) -> None:
    values = np.ones((6, 7))
    values[0, :2] = 1e6
    demo.pick("A", "large.npy", npy(values))
    demo.panel("A").get_by_label("Element type").select_option("float16")
    expect(demo.summary("A")).to_contain_text("2 values are beyond the range of float16 and became infinite")
    expect(demo.summary("A")).to_contain_text("2 infinite or NaN")


def test_errors_are_tied_to_their_inputs(demo: DemoPage) -> None:
    described = demo.panel("A").locator("input[type=file]").get_attribute("aria-describedby") or ""
    assert "error-A" in described.split()
    expect(demo.error("A")).to_have_attribute("aria-live", "polite")
    expect(demo.page.get_by_role("group", name="Device")).to_have_attribute("aria-describedby", re.compile("device-error"))
