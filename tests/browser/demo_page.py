"""The demo page as a person uses it: a driver with one method for each thing one can do, and files to do it with.

Waits for what the page shows, never for time. Knows the page's labels and ids; knows nothing of how it works.
"""

from __future__ import annotations

import base64
import io
import re
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Locator, Page, expect

Array = NDArray[Any]
Side = Literal["A", "B"]
READY_MS = 120_000
RUN_MS = 120_000


def npy(values: Array) -> bytes:
    """The bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


class DemoPage:
    """One tab with the demo page."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        page.goto(address)

    def wait(self) -> DemoPage:
        """Until Python is up and both matrices are there."""
        expect(self.run_button).to_be_enabled(timeout=READY_MS)
        return self

    @property
    def run_button(self) -> Locator:
        return self.page.locator("#run")

    @property
    def status(self) -> Locator:
        return self.page.locator("#status")

    def panel(self, side: Side) -> Locator:
        return self.page.get_by_role("region", name=side, exact=True)

    def error(self, side: Side) -> Locator:
        return self.page.locator(f"#error-{side}")

    def summary(self, side: Side) -> Locator:
        return self.page.locator(f"#summary-{side}")

    def lane(self, name: str) -> Locator:
        return self.page.locator(f"#lanes [data-lane={name}]")

    def set_sizes(self, m: int, k: int, n: int) -> None:
        """Types the three sizes."""
        for name, value in (("m", m), ("k", k), ("n", n)):
            self.page.locator(f"#size-{name}").fill(str(value))

    def generate(self, side: Side, kind: str = "float32", distribution: str = "normal", seed: int = 1) -> None:
        """Has the page make a matrix."""
        panel = self.panel(side)
        panel.get_by_role("radio", name="Generate").check()
        panel.locator("[data-part=distribution]").select_option(distribution)
        panel.locator("[data-part=seed]").fill(str(seed))
        panel.get_by_label("Element type").select_option(kind)

    def generate_both(self, m: int, k: int, n: int, kind: str = "float32", distribution: str = "normal") -> None:
        """Has the page make A and B, and waits for them."""
        self.generate("A", kind, distribution)
        self.generate("B", kind, distribution)
        self.set_sizes(m, k, n)
        expect(self.summary("A")).to_contain_text(f"{m:,} × {k:,} {kind}")
        expect(self.summary("B")).to_contain_text(f"{k:,} × {n:,} {kind}")

    def pick(self, side: Side, name: str, data: bytes) -> None:
        """Chooses a file in the file dialogue."""
        panel = self.panel(side)
        panel.get_by_role("radio", name="File").check()
        panel.locator("input[type=file]").set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": data})

    def drop(self, side: Side, name: str, data: bytes) -> None:
        """Drops a file on the operand."""
        script = """(text, name) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([Uint8Array.from(atob(text), (mark) => mark.charCodeAt(0))], name));
            return transfer;
        }"""
        transfer = self.page.evaluate_handle(f"([text, name]) => ({script})(text, name)", [base64.b64encode(data).decode(), name])
        self.panel(side).dispatch_event("drop", {"dataTransfer": transfer})

    def choose(self, device: str = "Best", mode: str = "Fast", numpy: str = "auto") -> None:
        """Sets device, mode and the comparison with NumPy."""
        self.page.get_by_role("group", name="Device").get_by_role("radio", name=device).check()
        self.page.get_by_role("group", name="Mode").get_by_role("radio", name=mode).check()
        self.page.get_by_label("Compare with NumPy").select_option(numpy)

    def multiply(self) -> None:
        """Runs the product and waits until the page says it is done."""
        self.wait()
        self.run_button.click()
        expect(self.status).to_have_text(re.compile("^Done"), timeout=RUN_MS)

    def download(self) -> Array:
        """Downloads D and reads it."""
        with self.page.expect_download() as waiting:
            self.page.get_by_role("button", name="Download D").click()
        assert waiting.value.suggested_filename == "D.npy"
        loaded: Array = np.load(waiting.value.path())
        return loaded

    def largest_error(self) -> float:
        """The number that is shown as the largest error."""
        return float(self.page.locator("#error-figure data").get_attribute("value") or "")

    def execute(self, code: str) -> None:
        """Types code into the console and presses Enter."""
        entry = self.page.get_by_label("Python code")
        entry.fill(code)
        entry.press("Enter")

    def output(self, kind: str) -> Locator:
        """What the console has printed of one kind: in, out, err or value."""
        return self.page.locator(f"#log [data-kind={kind}]")
