"""The browser modules of the workbench and their three hosts (Panel, notebooks, a static page).

Importing this package imports neither Panel nor anywidget; see `widgets/README.md` for the data
format of each view.
"""

from __future__ import annotations

from widgets.encode import pack
from widgets.static_host import page
from widgets.views import TRAITS, VIEWS, module_path

__all__ = ["TRAITS", "VIEWS", "module_path", "pack", "page"]
