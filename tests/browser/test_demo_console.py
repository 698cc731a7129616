"""The Python console of the demo page: values, output, blocks, tracebacks, history, await, check and stop."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.demo_page import READY_MS, DemoPage
from tests.browser.harness import Addresses, Complaints


@pytest.fixture(scope="module")
def shared(browser: Browser, site: Addresses, complaints: Complaints) -> Iterator[DemoPage]:
    context = complaints.watch(browser.new_context())
    demo = DemoPage(context.new_page(), site.url).wait()
    demo.generate_both(12, 9, 15)
    demo.multiply()
    yield demo
    context.close()


@pytest.fixture
def demo(shared: DemoPage) -> DemoPage:
    """The console, empty, with A (12 x 9), B (9 x 15) and D at hand."""
    shared.wait()
    shared.page.locator("#log").evaluate("log => log.replaceChildren()")
    shared.page.get_by_label("Python code").fill("")
    return shared


def test_value_of_an_expression(demo: DemoPage) -> None:
    demo.execute("A.shape, B.shape, D.shape, pg.__name__, np.__name__")
    expect(demo.output("value")).to_have_text("((12, 9), (9, 15), (12, 15), 'py_gemm', 'numpy')")
    expect(demo.output("in")).to_have_text("A.shape, B.shape, D.shape, pg.__name__, np.__name__")
    expect(demo.page.get_by_label("Python code")).to_have_value("")


def test_the_product_in_the_console_is_d(demo: DemoPage) -> None:
    demo.execute("float(np.abs(await pg.gemm_async(A, B, device='cpu') - D).max()) < 1e-5")
    expect(demo.output("value")).to_have_text("True")


def test_output_comes_line_by_line(demo: DemoPage) -> None:
    demo.execute("import sys; print('to out'); print('to err', file=sys.stderr)")
    expect(demo.output("out")).to_have_text("to out")
    expect(demo.output("err")).to_have_text("to err")


def test_a_block_goes_on_until_an_empty_line(demo: DemoPage) -> None:
    entry = demo.page.get_by_label("Python code")
    demo.execute("for i in range(3):")
    expect(entry).to_have_value("for i in range(3):\n    ")
    entry.press_sequentially("print(i * i)")
    entry.press("Enter")
    expect(entry).to_have_value("for i in range(3):\n    print(i * i)\n    ")
    entry.press("Enter")
    expect(demo.output("out")).to_have_text("0\n1\n4\n")
    expect(demo.output("in")).to_have_text("for i in range(3):\n    print(i * i)")


def test_several_lines_at_once(demo: DemoPage) -> None:
    demo.execute("def double(x):\n    return 2 * x\n\ndouble(21)")
    expect(demo.output("value")).to_have_text("42")


def test_shift_enter_adds_a_line(demo: DemoPage) -> None:
    entry = demo.page.get_by_label("Python code")
    entry.fill("x = 5")
    entry.press("Shift+Enter")
    entry.press_sequentially("x + 1")
    entry.press("Enter")
    expect(demo.output("value")).to_have_text("6")


def test_traceback_begins_at_the_typed_code(demo: DemoPage) -> None:
    demo.execute("def f():\n    return 1 / 0\n\nf()")
    expect(demo.output("err")).to_contain_text("Traceback (most recent call last):")
    expect(demo.output("err")).to_contain_text('File "<console>", line 4, in <module>')
    expect(demo.output("err")).to_contain_text("return 1 / 0")
    expect(demo.output("err")).to_contain_text("ZeroDivisionError: division by zero")
    expect(demo.output("err")).not_to_contain_text("pyodide")


def test_syntax_error(demo: DemoPage) -> None:
    demo.execute("1 +* 2")
    expect(demo.output("err")).to_contain_text("SyntaxError")


def test_errors_of_py_gemm_arrive_in_its_words(demo: DemoPage) -> None:
    demo.execute("pg.matmul(A, A, device='cpu')")
    expect(demo.output("err")).to_contain_text("ShapeError")


def test_history(demo: DemoPage) -> None:
    entry = demo.page.get_by_label("Python code")
    for code in ("'first'", "'second'"):
        demo.execute(code)
        expect(demo.output("value").last).to_have_text(code)
    entry.fill("a draft")
    entry.press("ArrowUp")
    expect(entry).to_have_value("'second'")
    entry.press("ArrowUp")
    expect(entry).to_have_value("'first'")
    entry.press("ArrowDown")
    entry.press("ArrowDown")
    expect(entry).to_have_value("a draft")


def test_check_draws_the_errors_of_another_product(demo: DemoPage) -> None:
    demo.execute("X = D.copy(); X[7, 11] += 1; check(X)")
    expect(demo.output("value")).to_contain_text("row 7, column 11")
    expect(demo.page.locator("#error-facts")).to_contain_text("row 7, column 11")


def test_the_matrices_of_the_page_cannot_be_changed_behind_its_back(demo: DemoPage) -> None:
    demo.execute("A[0, 0] = 1")
    expect(demo.output("err")).to_contain_text("read-only")


def test_an_example_is_put_into_the_entry(demo: DemoPage) -> None:
    demo.page.get_by_role("button", name="print(pg.info())").click()
    entry = demo.page.get_by_label("Python code")
    expect(entry).to_be_focused()
    entry.press("Enter")
    expect(demo.output("out")).to_contain_text("py_gemm")


def test_the_log_is_a_live_region(demo: DemoPage) -> None:
    expect(demo.page.get_by_role("log", name="Console output")).to_be_attached()


def test_an_endless_loop_is_interrupted(demo: DemoPage) -> None:
    demo.execute("while True: pass")
    expect(demo.output("in")).to_have_text("while True: pass")
    demo.page.get_by_role("button", name="Stop").click()
    expect(demo.output("err")).to_contain_text("KeyboardInterrupt")
    demo.execute("'still here', A.shape")
    expect(demo.output("value")).to_have_text("('still here', (12, 9))")


def test_the_consoles_own_button_stops_what_runs_there(demo: DemoPage) -> None:
    entry, button = demo.page.get_by_label("Python code"), demo.page.locator("#execute")
    entry.fill("while True: pass")
    button.click()
    expect(button).to_have_text("Stop")
    expect(button).to_be_enabled()
    expect(button).to_be_focused()
    expect(button).to_have_accessible_description("Running…")
    expect(demo.status).to_have_text("Running the console's code…")
    expect(demo.page.locator("#stop")).to_be_hidden()
    expect(demo.run_button).to_be_disabled()
    button.press("Enter")
    expect(demo.output("err")).to_contain_text("KeyboardInterrupt")
    expect(button).to_have_text("Run")
    expect(button).to_be_focused()
    expect(demo.page.locator("#console-status")).to_be_empty()
    expect(demo.status).to_have_text("Ready.")


def test_a_double_click_on_run_does_not_stop_what_it_started(demo: DemoPage) -> None:
    demo.page.get_by_label("Python code").fill("import time; time.sleep(0.2); 'through'")
    demo.page.locator("#execute").dblclick()
    expect(demo.output("value")).to_have_text("'through'")


@pytest.mark.parametrize("code", ["input('Name? ')", "import sys; sys.stdin.read()", "import sys; list(sys.stdin)"])
def test_asking_for_input_fails_in_words(demo: DemoPage, code: str) -> None:
    demo.execute(code)
    expect(demo.output("err")).to_contain_text('File "<console>", line 1, in <module>')
    expect(demo.output("err")).to_contain_text("this console cannot ask for input while code runs; write the value into the code")
    expect(demo.output("err")).not_to_contain_text("demo_console")


def test_without_shared_memory_python_starts_anew(page: Page, site: Addresses) -> None:
    demo = DemoPage(page, site.plain_url).wait()
    demo.execute("while True: pass")
    expect(demo.output("in")).to_have_text("while True: pass")
    expect(page.locator("#console-status")).to_have_text("Running… Stop starts Python anew, without your variables.")
    page.get_by_role("button", name="Stop").click()
    expect(demo.output("err")).to_have_text(re.compile("starts anew"))
    expect(demo.run_button).to_be_enabled(timeout=READY_MS)
    demo.execute("A.shape")
    expect(demo.output("value")).to_have_text("(512, 512)")


def test_code_is_stopped_only_once_it_has_begun(demo: DemoPage) -> None:
    """A worker that is slow to begin offers no Stop: an interrupt would hit what brings the code there, and be lost."""
    button = demo.page.locator("#execute")
    demo.page.evaluate(
        """() => {
            const receive = Worker.prototype.postMessage;
            Worker.prototype.postMessage = function (...message) {
                window.begin = () => receive.apply(this, message);
                Worker.prototype.postMessage = receive;
            };
        }"""
    )
    demo.page.clock.install()
    demo.page.get_by_label("Python code").fill("while True: pass")
    button.click()
    demo.page.clock.run_for(10_000)
    expect(button).to_have_text("Run")
    demo.page.evaluate("window.begin()")
    expect(demo.output("in").last).to_contain_text("while True: pass")
    demo.page.clock.run_for(10_000)
    expect(button).to_have_text("Stop")
    demo.page.clock.resume()
    button.click()
    expect(demo.output("err")).to_contain_text("KeyboardInterrupt")


def test_a_stop_that_comes_too_late_does_not_end_the_next_code(demo: DemoPage) -> None:
    demo.page.evaluate(
        """() => {
            const store = Atomics.store;
            Atomics.store = (marks, ...rest) => {
                window.marks = marks;
                Atomics.store = store;
                return store(marks, ...rest);
            };
        }"""
    )
    demo.execute("1 + 1")
    expect(demo.output("value")).to_have_text("2")
    demo.page.evaluate("Atomics.store(window.marks, 0, 2)")
    demo.execute("sum(range(1000))")
    expect(demo.output("value").last).to_have_text("499500")
