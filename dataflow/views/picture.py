"""A picture of a pipeline: its operators, or the tasks and channels of its plan."""

from __future__ import annotations

from html import escape
from os import PathLike

from dataflow.views.documents import html_page, notebook_html, save
from dataflow.views.pipeline.mermaid import as_mermaid
from dataflow.views.pipeline.sketch import Sketch
from dataflow.views.pipeline.svg import as_svg
from dataflow.views.pipeline.text import as_text

__all__ = ["Picture"]


class Picture:
    """A picture of a pipeline, from `Pipeline.draw` or `Stream.draw`: ``print`` it, show it in a notebook, or save it.

    Names of operators are text in every form, whatever characters they have. Long ones are cut; in ``svg()`` and
    ``html()`` the whole name is shown when the pointer is over it.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline("copy") as p:
    ...     p.source(op.from_arrow(pa.table({"x": [1]})), name="in").sink(op.collect(), name="out")
    >>> print(p.draw())
    copy: 2 operators
    <BLANKLINE>
      ○ in   source, read
      ● out  sink, write
    """

    def __init__(self, sketch: Sketch) -> None:
        self._sketch = sketch

    def svg(self) -> str:
        """Return the picture as an ``svg`` element, valid as a file or inside a page. It has a light and a dark scheme.

        A source has round ends, a sink is a drum, and an operator that keeps state has doubled sides.

        >>> import dataflow as flow
        >>> flow.Pipeline("empty").draw().svg()[:38]
        '<svg xmlns="http://www.w3.org/2000/svg'
        """
        return as_svg(self._sketch)

    def html(self) -> str:
        """Return a page with the picture, and its text for readers who do not see it. The page requests nothing.

        >>> import dataflow as flow
        >>> "default-src 'none'" in flow.Pipeline("empty").draw().html()
        True
        """
        text = f"<details>\n<summary>as text</summary>\n<pre>{escape(self.text())}</pre>\n</details>"
        return html_page(self._sketch.title, f"<figure>\n{self.svg()}</figure>\n{text}")

    def mermaid(self) -> str:
        """Return the picture as a flowchart of Mermaid, for a ``mermaid`` block of a page or a wiki.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1]})), name="in").sink(op.collect(), name="out")
        >>> print(p.draw().mermaid(), end="")
        flowchart TD
          n0(["in<br/>source, read"])
          n1[("out<br/>sink, write")]
          n0 --> n1
        """
        return as_mermaid(self._sketch)

    def text(self) -> str:
        """Return the picture for the terminal: a line per operator, with the streams as rails at the left.

        Its characters are ○ source, □ operator, ▣ operator that keeps state, ● sink, ┊ chained to the one above.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("totals") as p:
        ...     rows = p.source(op.from_arrow(pa.table({"k": [1], "x": [2]})), name="rows")
        ...     rows.key_by("k").agg(op.count().alias("n"), name="counts").sink(op.collect(), name="totals")
        ...     rows.filter(flow.col("x") > 1, name="some").sink(op.collect(), name="out")
        >>> print(p.draw().text())
        totals: 5 operators
        <BLANKLINE>
          ○   rows    source, read
          ├─╮         ↓ by k
          │ ▣ counts  aggregate, keeps state
          │ ● totals  sink, write
          □   some    filter
          ●   out     sink, write
        """
        return as_text(self._sketch)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file, whole or not at all. The suffix says in which form.

        Args:
            path: the file: ``.svg``, ``.html``, ``.mmd`` (Mermaid) or ``.txt``. Its directory must exist. An existing
                file is replaced.

        Raises:
            ConfigurationError: the name has another suffix.
            StoreError: the file cannot be written. An existing one is unchanged.

        >>> import dataflow as flow
        >>> flow.Pipeline("empty").draw().save("empty.png")
        Traceback (most recent call last):
        dataflow.errors.ConfigurationError: 'empty.png' is no picture: its name must end in .svg, .html, .mmd or .txt
        """
        save(path, {".svg": self.svg, ".html": self.html, ".mmd": self.mermaid, ".txt": lambda: self.text() + "\n"})

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook_html(self.svg())
