"""Configuration of the documentation. CONTRIBUTING.md names the command that builds it; warnings are errors.

The build needs no network: it loads no inventories of other projects, and the theme's wheel has its fonts and scripts.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1]))

import dataflow
import operators

project = "barrierflow"
author = "The barrierflow authors"
copyright = "The barrierflow authors"
release = version = dataflow.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

nitpicky = True
nitpick_ignore_regex = [
    # Without inventories, which would be fetched, classes of other packages have no target.
    (r"py:.*", r"(collections|contextlib|datetime|decimal|numpy|os|pathlib|threading|pa|pyarrow|pyspark|rich)\..*"),
    (r"py:class", "Microseconds"),  # another name for arrays of numpy
]
show_warning_types = True

myst_heading_anchors = 3

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
napoleon_use_ivar = True  # an attribute is listed once, by its class
napoleon_numpy_docstring = False

add_module_names = False
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "barrierflow"
html_show_sourcelink = False
html_theme_options = {
    "footer_end": [],
    "footer_start": ["copyright"],
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "navigation_depth": 2,
    "secondary_sidebar_items": ["page-toc"],
}


PUBLIC = {
    f"{value.__module__}.{value.__qualname__}": f"{package.__name__}.{name}"
    for package in (operators, dataflow)
    for name in package.__all__
    if hasattr(value := getattr(package, name), "__qualname__")
}
"""The documented name of each class, by the name of the module that defines it. Annotations have the latter."""


def is_internal(name: str) -> bool:
    """Return whether a dotted name exists in our packages, or a plain name in a loaded module of these."""
    module, _, attribute = name.rpartition(".")
    if module:
        try:
            return module.startswith(("dataflow", "operators")) and hasattr(importlib.import_module(module), attribute)
        except ImportError:
            return False
    return any(m.startswith(("dataflow.", "operators.")) and hasattr(sys.modules[m], name) for m in list(sys.modules))


def resolve_annotation(app: Sphinx, env: Any, node: Any, text: nodes.Node) -> nodes.Node | None:
    """Link an annotation to the documented name of its class; leave other names of our packages without a link.

    A name that does not exist remains a missing reference, which fails the build.
    """
    if node.get("refdomain") != "py":
        return None
    target = PUBLIC.get(node["reftarget"])
    if target is not None:
        return env.domains.python_domain.resolve_xref(
            env, node["refdoc"], app.builder, node["reftype"], target, node, text
        )
    return text if is_internal(node["reftarget"]) else None


def prepare_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Adapt the lines of a docstring for napoleon and docutils."""
    paragraph = False
    for at, line in enumerate(lines):
        # A section of napoleon begins with a line of its own, so "Returns: a sink." becomes a field here.
        field = re.match(r"(Returns|Raises): (?=\S)", line)
        paragraph = bool(line.strip()) and (paragraph or field is not None)
        indent = ":" if field else "    " * paragraph
        # Docutils wants no letter directly after a literal, as in ``x``s.
        lines[at] = indent + re.sub(r"(?<=\w``)(?=[a-z])", r"\ ", line)
    if what in {"attribute", "data", "property"}:
        lines[:0] = ["..", ""]  # a comment; else napoleon takes words before a colon for the type of the attribute


def prepare_signature(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Write ``...`` for the default of a dataclass field that has a factory, because ``<factory>`` does not parse."""
    return signature and signature.replace("<factory>", "..."), returns


def setup(app: Sphinx) -> None:
    for language in ("layout", "report"):  # our own names for blocks that are not the output of the code before them
        app.add_lexer(language, TextLexer)
    app.connect("missing-reference", resolve_annotation)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=400)  # napoleon has 500
    app.connect("autodoc-process-signature", prepare_signature)
