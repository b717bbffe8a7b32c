"""A page opened in headless Chromium: what it looks like, what it complains of, and how large its parts are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

# No network, no profile of anybody's, no sandbox: containers run as root. The pages are ours.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--log-level=0",
)

# The page in a frame of the size of a screen; what is in it is measured from outside, since it allows no script itself.
MEASURING = """<!doctype html><meta charset="utf-8"><body style="margin:0">
<iframe id="page" style="border:0;width:{width}px;height:{height}px"></iframe><pre id="measured"></pre>
<script>
const page = document.getElementById("page");
page.onload = () => {{
  const inside = page.contentDocument, root = inside.documentElement;
  const size = (element) => [element.getBoundingClientRect().width, element.getBoundingClientRect().height];
  const drawn = (figure) => [...figure.querySelectorAll("svg")].map((svg) => ({{
    size: size(svg), marks: svg.querySelectorAll("path,use").length,
    texts: [...svg.querySelectorAll("text")].map((text) => size(text)[1]) }}));
  const ids = [...inside.querySelectorAll("[id]")].map((element) => element.id);
  document.getElementById("measured").textContent = JSON.stringify({{
    figures: Object.fromEntries([...inside.querySelectorAll("figure")].map((figure) => [figure.id, drawn(figure)])),
    width: root.scrollWidth, height: root.scrollHeight, twice: ids.filter((id, at) => ids.indexOf(id) !== at),
    dead: [...inside.querySelectorAll("use")].map((use) => use.getAttribute("xlink:href") || use.getAttribute("href"))
      .filter((link) => !inside.getElementById(link.slice(1))) }});
}};
page.srcdoc = {source};
</script>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Browser:
    """A Chromium to start."""

    program: str
    folder: Path

    def screenshot(self, page: str, *, width: int, height: int, dark: bool = False) -> tuple[Path, list[str]]:
        """A picture of the top of the page, and what was said on the console."""
        picture = self.folder / f"{width}x{height}{'-dark' if dark else ''}.png"
        flags = ["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
        said = self._open(page, [*flags, f"--screenshot={picture}", f"--window-size={width},{height}"])
        return picture, said.console

    def measure(self, page: str, *, width: int, height: int = 900) -> dict[str, Any]:
        """Sizes of figures and words in CSS pixels on a screen of this width."""
        source = json.dumps(page).replace("</", "<\\/")
        framed = MEASURING.format(width=width, height=height, source=source)
        said = self._open(framed, ["--dump-dom", "--virtual-time-budget=10000"])
        found = re.search(r'<pre id="measured">(.*?)</pre>', said.output, re.DOTALL)
        assert found and found[1], f"the page was not measured: {said.console} {said.output[-500:]}"
        measured: dict[str, Any] = json.loads(found[1].replace("&amp;", "&"))
        return measured

    def print_pdf(self, page: str) -> bytes:
        """The page on paper."""
        paper = self.folder / "page.pdf"
        self._open(page, [f"--print-to-pdf={paper}", "--no-pdf-header-footer"])
        return paper.read_bytes()

    def _open(self, page: str, flags: list[str]) -> _Said:
        file = self.folder / "page.html"
        file.write_text(page, encoding="utf-8")
        finished = subprocess.run(
            [self.program, *FLAGS, f"--user-data-dir={self.folder / 'profile'}", *flags, file.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr[-2000:]
        console = [line for line in finished.stderr.splitlines() if ":CONSOLE" in line]
        return _Said(output=finished.stdout, console=console)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    output: str
    console: list[str]


def start_browser(folder: Path) -> Browser:
    """The Chromium on PATH. Skips the test where there is none, unless DS_ACCUM_REQUIRE_BROWSER=1."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        if os.environ.get("DS_ACCUM_REQUIRE_BROWSER") == "1":
            pytest.fail(f"DS_ACCUM_REQUIRE_BROWSER is 1, but none of {', '.join(NAMES)} is on PATH")
        pytest.skip("needs Chromium on PATH (apt-get install chromium)")
    return Browser(program=program, folder=folder)
