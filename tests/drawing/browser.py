"""Measures pictures in headless Chromium: whether texts overlap, leave their boxes, are legible, and request anything.

A browser is one process for many pictures. It is spoken to through a pipe (the DevTools protocol), so it opens no port.
What is measured is what a reader would see: each text's box as the browser lays it out, in fonts, weights, colour
schemes and widths of window that are forced on the picture.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path
from typing import Any, Final, Self

__all__ = ["FONTS", "SCHEMES", "WIDTHS", "Browser", "Look", "looks"]

FONTS: Final = ("DejaVu Sans", "Liberation Sans")
SCHEMES: Final = ("light", "dark")
WIDTHS: Final = (800, 1400)

_INSTALL: Final = "run: apt-get install -y chromium fonts-dejavu-core fonts-liberation"
_PATIENCE: Final = 60.0
"""Seconds after which a browser that does not reply is taken for dead."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a picture is looked at. ``bold`` makes all its texts bold."""

    font: str = "DejaVu Sans"
    bold: bool = False
    scheme: str = "light"
    width: int = 1400

    def __str__(self) -> str:
        return f"{self.font}{', all bold' * self.bold}, {self.scheme}, {self.width} px"


def looks() -> Iterator[Look]:
    """Yield each font, as it is and bold, in each scheme and width."""
    for font in FONTS:
        for bold in (False, True):
            for scheme in SCHEMES:
                for width in WIDTHS:
                    yield Look(font, bold, scheme, width)


class Browser:
    """Headless Chromium; a context manager.

    Raises:
        RuntimeError: Chromium, or a font of ``FONTS``, is not installed.
    """

    def __init__(self) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if program is None:
            raise RuntimeError(f"pictures are measured in Chromium, which is not installed; {_INSTALL}")
        self._profile = tempfile.TemporaryDirectory(prefix="pictures-", ignore_cleanup_errors=True)
        self._page = Path(self._profile.name) / "page.html"
        to_child, self._out = _pipe()
        self._in, from_child = _pipe()
        log = str(Path(self._profile.name) / "log")
        arguments = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
            "--hide-scrollbars", "--force-device-scale-factor=1",
            f"--user-data-dir={self._profile.name}/profile", "about:blank",
        ]  # fmt: skip
        self._process = os.posix_spawn(
            program,
            arguments,
            {**os.environ, "HOME": self._profile.name},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, to_child, 3),
                (os.POSIX_SPAWN_DUP2, from_child, 4),
            ],
        )
        os.close(to_child)
        os.close(from_child)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._requests: list[str] = []
        self._complaints: list[str] = []
        (target,) = [t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "DOM", "CSS"):
            self._call(f"{domain}.enable")
        self._check_fonts()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and remove its files."""
        with contextlib.suppress(OSError, RuntimeError):
            self._session = None
            self._call("Browser.close")
        os.close(self._out)
        os.close(self._in)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGTERM)
        os.waitpid(self._process, 0)
        self._profile.cleanup()

    def problems(self, picture: str) -> list[str]:
        """Return what is wrong with a picture, in each font, scheme and width.

        Args:
            picture: an ``svg`` element, or a whole HTML page. All its ``details`` are opened.
        """
        self.load(picture)
        problems = [f"requests {url}" for url in self._requests] + [f"complains: {text}" for text in self._complaints]
        for look in looks():
            problems += [f"{look}: {problem}" for problem in self.measure(look)]
        return problems

    def load(self, picture: str) -> None:
        """Show a picture in the window."""
        page = picture
        if picture.lstrip().startswith(("<svg", "<?xml")):
            picture = picture[picture.index("<svg") :]
            style = "<style>body{margin:0}svg{display:block;max-width:100%;height:auto}</style>"
            page = f"<!DOCTYPE html><meta charset='utf-8'><title>picture</title>{style}{picture}"
        self._page.write_text(page, encoding="utf-8")
        self._requests, self._complaints = [], []
        self._loaded = False
        self._call("Page.navigate", url=self._page.as_uri())
        while not self._loaded:
            self._receive()
        self._evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")

    def measure(self, look: Look) -> list[str]:
        """Return what is wrong with the loaded picture in one look."""
        self._apply(look)
        return list(self._evaluate(f"({_MEASURE})()"))

    def text_widths(self, texts: list[str], size: float, look: Look) -> list[float]:
        """Return how wide texts are in a look, in pixels."""
        self._apply(look)
        return list(self._evaluate(f"({_WIDTHS})({json.dumps(texts)}, {size})"))

    def screenshot(self, look: Look) -> bytes:
        """Return the loaded picture as PNG."""
        self._apply(look)
        height = self._evaluate("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": look.width, "height": height, "scale": 1}
        return base64.b64decode(self._call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"])

    def _apply(self, look: Look) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride", width=look.width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": look.scheme}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        weight = "font-weight:700 !important" if look.bold else ""
        rule = f'*{{font-family:"{look.font}" !important;{weight}}}'
        self._evaluate(f"({_FORCE})({json.dumps(rule)})")

    def _check_fonts(self) -> None:
        spans = "".join([f"<p style='font-family:\"{font}\",monospace'>text</p>" for font in FONTS])
        self.load(f"<!DOCTYPE html><meta charset='utf-8'>{spans}")
        root = self._call("DOM.getDocument")["root"]["nodeId"]
        nodes = self._call("DOM.querySelectorAll", nodeId=root, selector="p")["nodeIds"]
        for font, node in zip(FONTS, nodes, strict=True):
            used = [each["familyName"] for each in self._call("CSS.getPlatformFontsForNode", nodeId=node)["fonts"]]
            if used != [font]:
                raise RuntimeError(f"pictures are measured in {font}, which is not installed ({used}); {_INSTALL}")

    def _evaluate(self, expression: str) -> Any:
        reply = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in reply:
            raise RuntimeError(f"script failed in the browser: {reply['exceptionDetails']}")
        return reply["result"].get("value")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            reply = self._receive()
            if reply.get("id") == self._number:
                if "error" in reply:
                    raise RuntimeError(f"{method} failed: {reply['error']}")
                result: dict[str, Any] = reply["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        """Return the next message, after noting what it says of the page."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], _PATIENCE)
            part = os.read(self._in, 1 << 20) if ready else b""
            if not part:
                log = (Path(self._profile.name) / "log").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"Chromium {'ended' if ready else 'does not reply'}; its last words:\n{log[-2000:]}")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        parameters = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                self._requests += [url] if url != self._page.as_uri() else []
            case "Log.entryAdded":
                self._complaints.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown":
                self._complaints.append(parameters["exceptionDetails"]["text"])
            case "Page.loadEventFired":
                self._loaded = True
        return message


def _pipe() -> tuple[int, int]:
    """Return the ends of a pipe, above the numbers that the child gives them."""
    ends = os.pipe()
    high = [fcntl(end, F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]


_FORCE: Final = """
rule => {  // a constructed sheet, because a page's security policy may forbid further style elements
  window.forced ??= new CSSStyleSheet();
  window.forced.replaceSync(rule);
  document.adoptedStyleSheets = [window.forced];
}
"""

_WIDTHS: Final = """
(texts, size) => {
  const svg = document.querySelector('svg'), text = document.createElementNS(svg.namespaceURI, 'text');
  text.setAttribute('style', `font-size:${size}px`);
  svg.append(text);
  const widths = texts.map(each => { text.textContent = each; return text.getComputedTextLength(); });
  text.remove();
  return widths;
}
"""

_MEASURE: Final = """
() => {
  const slack = 0.5, problems = [];
  const corners = element => {  // its box in pixels of the window, without strokes
    const box = element.getBBox(), matrix = element.getScreenCTM();
    if (!matrix || !box.width || !box.height) return null;
    const right = box.x + box.width, bottom = box.y + box.height;
    const points = [[box.x, box.y], [right, box.y], [box.x, bottom], [right, bottom]]
      .map(([x, y]) => new DOMPoint(x, y).matrixTransform(matrix));
    const xs = points.map(p => p.x), ys = points.map(p => p.y);
    return {left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys)};
  };
  const inside = (inner, outer) => inner.left >= outer.left - slack && inner.right <= outer.right + slack
                                   && inner.top >= outer.top - slack && inner.bottom <= outer.bottom + slack;
  const channels = colour => colour.match(/[\\d.]+/g).map(Number);
  const luminance = parts => {
    const [r, g, b] = parts.map(each => each / 255)
      .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const opacity = element => element ? Number(getComputedStyle(element).opacity) * opacity(element.parentElement) : 1;
  const checkContrast = (element, colour, ground, shown) => {
    const [below, ink] = [channels(ground), channels(colour)], share = (ink[3] ?? 1) * opacity(element);
    const seen = below.map((each, i) => each + (ink[i] - each) * share);
    const [low, high] = [luminance(below), luminance(seen)].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) problems.push(`${shown} has a contrast of ${contrast.toFixed(1)} on its ground`);
  };
  const fill = (element, svg) => {
    const value = getComputedStyle(element).fill, id = value.match(/url\\("?#([^")]+)/);
    return id ? getComputedStyle(document.querySelector(`[id="${id[1]}"] rect`)).fill : value;
  };
  const words = element => {
    const copy = element.cloneNode(true);
    copy.querySelectorAll('title').forEach(each => each.remove());
    return copy.textContent.trim();
  };
  for (const svg of document.querySelectorAll('svg')) {
    const frame = svg.getBoundingClientRect();
    if (!frame.width) continue;
    const grounds = [...svg.querySelectorAll('rect')].filter(rect => !rect.closest('defs,.hit'))
      .map(rect => ({rect, box: corners(rect)})).filter(each => each.box);
    const texts = [...svg.querySelectorAll('text')].filter(each => each.checkVisibility() && words(each))
      .map((element, order) => ({element, order, box: corners(element), words: words(element)}))
      .filter(each => each.box);
    texts.sort((one, other) => one.box.left - other.box.left);
    texts.forEach((text, i) => {
      const {box} = text, shown = JSON.stringify(text.words);
      if (!inside(box, frame)) problems.push(`${shown} leaves the picture`);
      for (let j = i + 1; j < texts.length && texts[j].box.left < box.right - slack; j++) {
        const other = texts[j].box;
        if (other.top < box.bottom - slack && box.top < other.bottom - slack)
          problems.push([text, texts[j]].sort((one, other) => one.order - other.order)
            .map(each => JSON.stringify(each.words)).join(' overlaps '));
      }
      const style = getComputedStyle(text.element);
      const matrix = text.element.getScreenCTM(), start = text.element.getStartPositionOfChar(0);
      const end = text.element.getEndPositionOfChar(text.element.getNumberOfChars() - 1);
      const share = {start: 0, middle: 0.5, end: 1}[style.textAnchor];
      const anchor = new DOMPoint(start.x + (end.x - start.x) * share, start.y - parseFloat(style.fontSize) * 0.3)
        .matrixTransform(matrix);
      const under = grounds.filter(({rect, box}) => box.left <= anchor.x && anchor.x <= box.right && box.top <= anchor.y
        && anchor.y <= box.bottom && rect.compareDocumentPosition(text.element) & Node.DOCUMENT_POSITION_FOLLOWING);
      const halo = text.element.classList.contains('halo');  // such a text may lie across what is below it
      if (!halo) {
        const area = ({box}) => (box.right - box.left) * (box.bottom - box.top);
        const home = [...under].sort((one, other) => area(one) - area(other))[0];
        if (home && !inside(box, home.box)) problems.push(`${shown} leaves its box`);
      }
      const ground = halo ? style.stroke : under.length ? fill(under.at(-1).rect, svg) : null;
      for (const part of ground ? [text.element, ...text.element.querySelectorAll('tspan')] : [])
        checkContrast(part, getComputedStyle(part).fill, ground, shown);
    });
  }
  const canvas = document.createElement('i');
  canvas.style.backgroundColor = 'Canvas';  // what browsers paint below a page, by its colour scheme
  document.body.append(canvas);
  const background = element => {
    const colour = getComputedStyle(element ?? canvas).backgroundColor;
    return channels(colour)[3] === 0 && element ? background(element.parentElement) : colour;
  };
  for (const element of document.querySelectorAll('body, body *')) {
    const text = element.closest('svg,style,script') ? '' : [...element.childNodes]
      .filter(each => each.nodeType === Node.TEXT_NODE).map(each => each.data).join(' ').trim();
    if (text && element.checkVisibility())
      checkContrast(element, getComputedStyle(element).color, background(element), JSON.stringify(text));
  }
  canvas.remove();
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth + 1) problems.push(`the page is ${page.scrollWidth} px wide`);
  return problems;
}
"""
