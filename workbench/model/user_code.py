"""User code, with errors reported by their line.

Models are ``package.module:function``, passes ``my_pass.py:Class``.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_compiler.frontends.keras import backends
from core_compiler.support.errors import UserError, nearest, raised_at

if TYPE_CHECKING:
    from core_compiler.passes.base import Pass

_WHOLE = "call it in Python to see the full traceback"


def call_function(text: str, sizes: Mapping[str, Any]) -> Any:
    """Return the result of the function that ``text`` names, called with ``sizes``.

    They are passed as keyword arguments.

    UserError if it cannot be imported, called, or raises. Its output goes to standard error,
    because standard output is for results.
    """
    function = found(text)
    sys.path.insert(0, "")
    try:
        _check_call(function, sizes, text)
        with _as_user_errors(text):
            return function(**sizes)
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove("")


def found(text: str) -> Any:
    """Return the object ``package.module:function``; UserError if it cannot be imported."""
    module_name, _, name = text.partition(":")
    sys.path.insert(0, "")
    try:
        return _function(module_name, name, text)
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove("")


def call(text: str, sizes: Mapping[str, Any]):
    """Call the function that ``text`` names with ``sizes`` as keyword arguments.

    It must return ``(model, example inputs)``: an nn.Module and a tensor or a tuple of tensors, a
    JAX function and its arguments (a tuple of trees of arrays), or a Keras model or
    ``tf.function`` and an array or a tuple of arrays. Returns the model and the tuple, which is
    None for a Keras model alone: it may state its inputs. UserError as for :func:`call_function`,
    and if it returned anything else.
    """
    made = call_function(text, sizes)
    if of_keras(made):
        return made, None
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[0]):
        raise UserError(
            "the function did not return (model, example inputs)",
            text,
            "return an nn.Module and a tuple of tensors, a JAX function and its arguments, or a "
            "Keras model or tf.function and arrays",
        )
    model, inputs = made
    inputs = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    for position, value in enumerate(inputs if of_torch(model) and not of_keras(model) else ()):
        if not hasattr(value, "detach"):
            raise UserError(
                f"example input {position} is of type {type(value).__name__}, not a tensor",
                text,
                "return tensors as inputs, and set everything else in the function",
            )
    return model, inputs


def of_torch(model: Any) -> bool:
    """Return whether a model is a torch module (else it is a function for JAX to trace)."""
    return hasattr(model, "state_dict")


def of_keras(model: Any) -> bool:
    """Return whether a model is a Keras model (on any backend)."""
    return _is_of(model, "keras")


def of_tensorflow(model: Any) -> bool:
    """Return whether a model is a ``tf.function``, ``tf.Module`` or SavedModel signature."""
    return _is_of(model, "tensorflow")


def _is_of(model: Any, package: str) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in type(model).__mro__)


def load_pass(text: str) -> Pass:
    """Return the pass that ``text`` names, with its defaults.

    It is ``my_pass.py:Class``, ``package.module:Class``, or the name of an optional built-in pass
    (``saturate``). The class may be omitted for a file that defines one pass. UserError if it
    cannot be imported, is not a pass, or needs options.
    """
    from core_compiler.passes.base import Pass
    from core_compiler.pipelines.pipeline import OPTIONAL

    if text in OPTIONAL:
        return OPTIONAL[text]
    location, _, name = text.partition(":")
    sys.path.insert(0, "")
    try:
        module = (
            _from_file(Path(location), text)
            if location.endswith(".py")
            else _module(location, text)
        )
    except UserError as error:
        if "." in text or ":" in text:
            raise
        raise UserError(error.what, error.where, nearest(text, OPTIONAL, error.fix)) from None
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove("")
    candidates = {
        k: v
        for k, v in vars(module).items()
        if isinstance(v, type) and issubclass(v, Pass) and v.__module__ == module.__name__
    }
    if not name and len(candidates) != 1:
        choices = f"it has {', '.join(candidates)}" if candidates else "derive a class from Pass"
        raise UserError(
            f"{location} defines {len(candidates) or 'no'} passes",
            "--insert",
            f"write {location}:CLASS ({choices})" if candidates else choices,
        )
    found = getattr(module, name, None) if name else next(iter(candidates.values()))
    if not isinstance(found, type) or not issubclass(found, Pass):
        what = f"pass {name!r} not found" if found is None else f"{name} is not a pass"
        choices = (
            f"choose one of {', '.join(candidates)}" if candidates else "derive a class from Pass"
        )
        raise UserError(f"{location}: {what}", "--insert", nearest(name, candidates, choices))
    with _as_user_errors(text):
        return found()


def _from_file(path: Path, text: str):
    """Return the module of a file; it is registered under its own name unless that is taken."""
    if not path.is_file():
        raise UserError("file not found", str(path), "check the path")
    name = path.stem if path.stem.isidentifier() else "own_pass"
    held = getattr(sys.modules.get(name), "__file__", None)
    if name in sys.stdlib_module_names or (name in sys.modules and held != str(path.resolve())):
        name = f"own_{name}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None and isinstance(spec.loader, SourceFileLoader)
    loader, module = spec.loader, importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with _as_user_errors(text):
            # Do not use bytecode, which survives an edit within the same second and of the same
            # size.
            source = loader.get_data(loader.path)
            exec(loader.source_to_code(source, loader.path), vars(module))
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ModuleNotFoundError):
            raise _error(error, text) from None
        raise
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(path.resolve().parent))
    return module


def _function(module_name: str, name: str, text: str):
    module = _module(module_name, text)
    if not hasattr(module, name):
        known = [k for k, v in vars(module).items() if inspect.isfunction(v)]
        listed = f"choose one of {', '.join(known[:8])}" if known else "check the function's name"
        fix = nearest(name, known, listed)
        raise UserError(f"{name!r} not found in module {module_name}", text, fix)
    return getattr(module, name)


def _module(module_name: str, text: str):
    try:
        with _as_user_errors(text):
            return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise _error(error, text) from None  # a module that it imports
        raise UserError(
            f"module {missing!r} not found",
            text,
            "check the module path, and run from a folder where it can be imported",
        ) from None


def _check_call(function, sizes: Mapping[str, Any], text: str) -> None:
    if not callable(function):
        raise UserError(
            f"expected a function, got {type(function).__name__}",
            text,
            "name a function that returns (module, example inputs)",
        )
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions have none
        return
    try:
        signature.bind(**sizes)
    except TypeError as error:
        fix = (
            "match its parameters to --width, --size..., which are passed as keyword arguments; "
            "a size of the model's inputs is named INPUT.AXIS (x.0=5)"
        )
        raise UserError(f"cannot call the function: {error}", text, fix) from None


@contextlib.contextmanager
def _as_user_errors(text: str) -> Iterator[None]:
    """Convert any exception of user code (SystemExit too) into one UserError."""
    try:
        with contextlib.redirect_stdout(sys.stderr), backends.chosen():
            yield
    except (UserError, ModuleNotFoundError):
        raise
    except (Exception, SystemExit) as error:
        raise _error(error, text) from error


def _error(error: BaseException, text: str) -> UserError:
    return UserError(raised_at(error), text, _WHOLE)
