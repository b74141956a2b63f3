"""Hatch's build hook: bundle the browser modules of `widgets/` before they are packed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BundleWidgets(BuildHookInterface):
    """Runs `widgets/build.py`, which does nothing when the bundles are up to date."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        script = Path(self.root) / "widgets" / "build.py"
        if not script.is_file():
            return
        spec = importlib.util.spec_from_file_location("widgets_build", script)
        assert spec is not None
        assert spec.loader is not None
        # By path: the package `widgets` itself needs numpy, which a build does not have.
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        root = Path(self.root)
        bundles = [Path(path).resolve().relative_to(root.resolve()) for path in module.build()]
        # git ignores them, so hatch has to be told.
        build_data["artifacts"] += [f"/{path.as_posix()}" for path in bundles]
