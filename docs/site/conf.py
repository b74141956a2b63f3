"""Sphinx's configuration; `docs/build_site.py` prepares the pages that it reads."""

import re

from core_compiler import __version__

project = "Compiler Workbench"
copyright = "the Compiler Workbench authors, Apache-2.0"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_heading_anchors = 4
# Docstrings name code in double backquotes, and parameters in single ones here and there.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
autodoc_default_options = {"members": True, "show-inheritance": True}
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Compiler Workbench {version}"
html_show_sourcelink = False
html_copy_source = False
# Console sessions and MLIR as we print it are more than Pygments' grammars know; a name such as
# `bytes` is an attribute of several types, and its link goes to the first.
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure", "ref.python"]
_ITEM = re.compile(r"^(\s*)(``[^`]+``(?:, ``[^`]+``)*)\s{2,}(\S.*)$")


def tables_to_lists(app, what, name, obj, options, lines):
    """Docstrings set out parameters as ``name``, spaces, what it is; the site needs a list."""
    made, inside = [], False
    for line in lines:
        item = _ITEM.match(line)
        if item:
            if not inside and made and made[-1].strip():
                made.append("")
            made.append(f"{item[1]}* {item[2]}: {item[3]}")
            inside = True
        elif inside and line.strip():
            made.append(f"  {line.strip()}")
        else:
            made.append(line)
            inside = False
    lines[:] = made


def setup(app):
    app.connect("autodoc-process-docstring", tables_to_lists)
