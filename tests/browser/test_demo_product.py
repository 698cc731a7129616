"""The demo page from two matrices to a downloaded product: files, generated matrices, devices, modes, error number and map."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import demo_matrices
from tests.browser.demo_page import RUN_MS, Array, DemoPage, npy
from tests.browser.harness import Addresses, Complaints

TYPES = ["float32", "float16", "bfloat16", "float64"]
# Half a unit of the type's last digit and, in front, what a short sum may add; relative to max|D|.
BOUNDS = {"float32": 2e-6, "float16": 2.0**-11 * 1.01, "bfloat16": 2.0**-8 * 1.01, "float64": 1e-14}


@pytest.fixture(scope="module")
def shared(browser: Browser, site: Addresses, complaints: Complaints) -> Iterator[DemoPage]:
    context = complaints.watch(browser.new_context())
    yield DemoPage(context.new_page(), site.url).wait()
    context.close()


@pytest.fixture
def demo(shared: DemoPage) -> DemoPage:
    """The page, loaded once for this file, back at its first settings."""
    shared.choose()
    shared.generate_both(16, 24, 20)
    return shared


def assert_close(result: Array, expected: Array, bound: float) -> None:
    assert result.shape == expected.shape
    assert np.abs(result.astype(np.float64) - expected).max() <= bound * np.abs(expected).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_two_dropped_npy_files_give_the_product_numpy_gives(demo: DemoPage, dtype: type) -> None:
    random = np.random.default_rng(5)
    a: Array = random.standard_normal((37, 53)).astype(dtype)
    b: Array = random.standard_normal((53, 29)).astype(dtype)
    demo.drop("A", "left.npy", npy(a))
    demo.drop("B", "right.npy", npy(np.asfortranarray(b)))
    name = np.dtype(dtype).name
    expect(demo.summary("A")).to_contain_text(f"37 × 53 {name}")
    expect(demo.summary("B")).to_contain_text(f"53 × 29 {name}")
    demo.multiply()
    result = demo.download()
    assert result.dtype == dtype
    assert_close(result, a.astype(np.float64) @ b.astype(np.float64), BOUNDS[name])
    assert demo.largest_error() <= BOUNDS[name]


def test_csv_from_the_file_dialogue(demo: DemoPage) -> None:
    demo.pick("A", "a.csv", b"x,y,z\n1,2,3\n4,5,6\n")
    demo.pick("B", "b.csv", b"0,5;1\n2;3\n4;5,25\n")
    expect(demo.summary("B")).to_contain_text("3 × 2 float32")
    demo.multiply()
    expected = np.array([[1, 2, 3], [4, 5, 6.0]]) @ np.array([[0.5, 1], [2, 3], [4, 5.25]])
    np.testing.assert_array_equal(demo.download(), expected.astype(np.float32))
    expect(demo.page.locator("#corner tr").first).to_contain_text("16.5")


def test_a_generated_matrix_takes_the_sizes_of_a_file(demo: DemoPage) -> None:
    demo.drop("A", "a.npy", npy(np.eye(9, 13, dtype=np.float32)))
    expect(demo.summary("B")).to_contain_text("13 × 20 float32")
    demo.multiply()
    b = demo_matrices.generate("B", 13, 20, "float32", 1, "normal").values
    np.testing.assert_array_equal(demo.download(), b[:9])


@pytest.mark.parametrize("kind", TYPES)
def test_generated_matrices_of_each_type(demo: DemoPage, kind: str) -> None:
    demo.generate_both(40, 33, 21, kind)
    demo.multiply()
    a, b = (demo_matrices.generate(side, *size, kind, 1, "normal").numbers() for side, size in (("A", (40, 33)), ("B", (33, 21))))
    result = demo.download()
    assert result.dtype == ("float32" if kind == "bfloat16" else kind)
    assert_close(result, a.astype(np.float64) @ b.astype(np.float64), BOUNDS[kind])
    assert demo.largest_error() <= BOUNDS[kind]
    expect(demo.page.locator("#download-note")).to_have_text(re.compile("^Saved as float32" if kind == "bfloat16" else "^$"))


def test_cosine_waves_are_orthogonal(demo: DemoPage) -> None:
    for side in ("A", "B"):
        demo.generate(side, "float32", "cosines", 3)
    demo.set_sizes(20, 64, 24)
    expect(demo.summary("B")).to_contain_text("64 × 24")
    demo.multiply()
    assert np.abs(demo.download() - 32 * np.eye(20, 24)).max() < 1e-4


def test_mixed_types_are_promoted(demo: DemoPage) -> None:
    demo.generate("A", "float16")
    demo.generate("B", "bfloat16")
    expect(demo.summary("A")).to_contain_text("float16")
    expect(demo.summary("B")).to_contain_text("bfloat16")
    demo.multiply()
    expect(demo.page.locator("#result-summary")).to_contain_text("16 × 20 float32")


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("device", ["GPU", "CPU"])
def test_small_integers_are_exact_on_every_device(demo: DemoPage, device: str, kind: str) -> None:
    demo.generate_both(33, 17, 65, kind, "integers")
    demo.choose(device)
    demo.multiply()
    assert demo.largest_error() == 0
    expect(demo.page.locator("#error-facts")).to_contain_text("all 2,145 elements")
    expect(demo.page.locator("#error-map")).to_have_attribute("aria-label", re.compile("There is no error"))


@pytest.mark.parametrize("mode", ["Fast", "Deterministic"])
def test_says_which_adapter_and_variant_ran_with_three_bars(demo: DemoPage, mode: str) -> None:
    demo.generate_both(64, 64, 64)
    demo.choose("GPU", mode)
    demo.multiply()
    expect(demo.page.locator("#ran")).to_have_text(
        re.compile(f"^D comes from the GPU: .*swiftshader.*variant .+, {mode.lower()} mode", re.I)
    )
    for name in ("gpu", "cpu", "numpy"):
        gflops, seconds, error = (float(data.get_attribute("value") or "") for data in demo.lane(name).locator("data").all())
        assert gflops == pytest.approx(2 * 64**3 / seconds / 1e9)
        assert 0 <= error < BOUNDS["float32"]
    widths = {
        name: demo.lane(name).locator(".bar").evaluate("bar => getComputedStyle(bar, '::before').width") for name in ("gpu", "cpu")
    }
    speeds = {name: float(demo.lane(name).locator("data").first.get_attribute("value") or "") for name in widths}
    longest = max(speeds, key=lambda name: speeds[name])
    assert float(widths[longest][:-2]) == max(float(width[:-2]) for width in widths.values())


@pytest.mark.parametrize("kind", TYPES)
def test_exact_results_are_correctly_rounded(demo: DemoPage, kind: str) -> None:
    """NumPy's own float64 product, and what it makes of float32, is not: the share of wrong elements is that of check(X) too."""
    demo.generate_both(40, 33, 21, kind)
    demo.choose("CPU", "Exact")
    demo.multiply()
    expect(demo.page.locator("#ran")).to_contain_text(
        f"exact mode. Every element is correctly rounded: the exact value, rounded once to {kind}."
    )
    expect(demo.page.get_by_role("heading", name="Wrongly rounded")).to_be_visible()
    assert demo.page.locator("#error-figure").inner_text() == "0 %"
    expect(demo.page.locator("#error-facts")).to_contain_text("0 of 840 elements")
    expect(demo.page.locator("#error-measure")).to_contain_text(
        f"not R rounded once to {kind}, where R is NumPy's product in 113-bit"
    )
    if kind == "bfloat16":
        demo.execute("X = D.copy(); X[:3, :7] ^= 1; check(X)")
    else:
        demo.execute("X = D.copy(); X[:3, :7] = np.nextafter(X[:3, :7], X.dtype.type(9)); check(X)")
    expect(demo.page.locator("#error-facts")).to_contain_text("21 of 840 elements")
    assert demo.page.locator("#error-figure").inner_text() == "2.5 %"
    demo.choose("CPU")
    demo.multiply()
    expect(demo.page.get_by_role("heading", name="Largest error")).to_be_visible()
    assert 0 < demo.largest_error() <= BOUNDS[kind]


def test_exact_on_the_gpu_takes_float16_only(demo: DemoPage) -> None:
    demo.generate_both(16, 24, 20, "float16")
    demo.choose("GPU", "Exact")
    demo.multiply()
    expect(demo.page.locator("#ran")).to_contain_text("D comes from the GPU")
    assert demo.page.locator("#error-figure").inner_text() == "0 %"
    demo.generate_both(16, 24, 20, "float32")
    demo.wait().run_button.click()
    expect(demo.page.locator("#device-error")).to_contain_text("the CPU takes every type")
    expect(demo.status).to_have_text("No product.")
    demo.choose("Best", "Exact")
    demo.multiply()
    expect(demo.page.locator("#ran")).to_contain_text("D comes from the CPU")


def test_numpy_can_be_left_out(demo: DemoPage) -> None:
    demo.choose(numpy="never")
    demo.multiply()
    expect(demo.lane("numpy")).to_contain_text("Not asked for")


def test_the_result_is_taken_back_when_an_input_changes(demo: DemoPage) -> None:
    demo.multiply()
    demo.generate("A", seed=2)
    expect(demo.page.get_by_role("region", name="Readings")).to_be_hidden()


def test_error_map_is_drawn_where_the_error_lies(demo: DemoPage) -> None:
    """One row of A and one column of B hold thirds, the rest of them zeros and powers of two: one element of D must be rounded."""
    a, b = np.zeros((200, 4), np.float32), np.zeros((4, 150), np.float32)
    a[:, 0] = 1
    b[0] = 1
    a[120, 1:] = np.float32(1 / 3)
    b[1:, 45] = np.float32(1 / 7)
    demo.drop("A", "a.npy", npy(a))
    demo.drop("B", "b.npy", npy(b))
    demo.multiply()
    expect(demo.page.locator("#error-facts")).to_contain_text("row 120, column 45")
    expect(demo.page.locator("#error-facts")).to_contain_text("29,999 of 30,000 elements")
    expect(demo.page.locator("#error-map")).to_have_attribute("aria-label", re.compile("lies at row 120, column 45"))
    assert darkest_cell(demo.page) == (cell_of(120, 200), cell_of(45, 150))
    demo.page.get_by_text("The five largest errors").click()
    expect(demo.page.locator("#worst tr").first).to_contain_text("120")
    demo.page.get_by_text("The five largest errors").click()


def cell_of(index: int, size: int) -> int:
    """Which of the map's 128 cells along one side stands for this row or column of `size`."""
    return sum(cell * size // 128 <= index for cell in range(128)) - 1


def darkest_cell(page: Page) -> tuple[int, int]:
    """Row and column of the one cell of the error map that is painted otherwise than most."""
    cells = page.locator("#error-map").evaluate("""canvas => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const marks = Array.from({ length: data.length / 4 }, (_, index) => data.slice(index * 4, index * 4 + 3).join());
        return marks.map((mark, index) => [mark, index]).filter(([mark]) => mark !== marks[0])
            .map(([, index]) => [Math.floor(index / canvas.width), index % canvas.width]);
    }""")
    assert len(cells) == 1
    return cells[0][0], cells[0][1]


def test_pointing_at_the_map_tells_place_and_error(demo: DemoPage) -> None:
    demo.multiply()
    demo.page.locator("#error-map").hover(position={"x": 3, "y": 3})
    expect(demo.page.locator("#map-readout")).to_have_text(re.compile("^row 0, column 0: "))


def test_a_run_can_be_stopped(demo: DemoPage) -> None:
    """A product that SwiftShader computes for seconds; the run ends between two of them."""
    demo.generate_both(768, 512, 512)
    demo.wait().run_button.click()
    expect(demo.status).to_have_text(re.compile("^Timing"))
    demo.page.get_by_role("button", name="Stop").click()
    expect(demo.status).to_have_text("Stopped.", timeout=RUN_MS)
    demo.generate_both(8, 8, 8)
    demo.multiply()


def test_a_large_product_is_checked_in_part_and_numpy_left_out(no_adapter_page: Page, site: Addresses) -> None:
    demo = DemoPage(no_adapter_page, site.url).wait()
    demo.generate_both(1024, 4096, 1024, "float64")
    demo.multiply()
    expect(demo.lane("numpy")).to_contain_text("NumPy would take about")
    expect(demo.page.locator("#error-facts")).to_contain_text("of 1,024 rows, evenly spaced")
    assert demo.largest_error() < 1e-13
