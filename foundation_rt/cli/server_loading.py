"""Finding the `Server` in a file or module that the command line names (CLI-02)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..server import Server

_MODULE_NAME = "foundation_rt_app"


class AppError(UsageError):
    """The application cannot be loaded; the message says why, and how to mend it."""


def load_app(target: str, arguments: Sequence[str] = ()) -> Server:
    """Return the server that `FILE.py`, `FILE.py:attr`, `module` or `module:attr` names.

    Without an attribute: `server`, else the only `Server`; beside its outer server a mounted one
    does not count. `sys.argv` becomes the file or module and `arguments`, as
    `python FILE.py ARGUMENTS` would have it (CLI-38).

    Raises:
        AppError: the file, the module or the server cannot be found, or importing it failed.
    """
    source, attribute = split_app(target)
    sys.argv = [source, *arguments]
    refuse_folder(source)
    with _import_guard(source):
        module = _import_file(source) if source.endswith(".py") else _import_module(source)
    return _find_server(module, source, attribute)


def refuse_folder(name: str) -> None:
    """Say which file to name instead of a folder (CLI-85); a package in this folder is a module.

    Raises:
        AppError: it is a folder.
    """
    import os

    is_package = name.isidentifier() and os.path.isfile(os.path.join(name, "__init__.py"))  # noqa: PTH113, PTH118
    if name.endswith(".py") or is_package or not os.path.isdir(name):  # noqa: PTH112 -- as below
        return
    from pathlib import Path

    files = [each for each in sorted(Path(name).glob("*.py")) if each.is_file()]
    with_server = [str(each) for each in files if b"foundation_rt" in each.read_bytes()]
    advice = " or ".join(with_server[:3]) or "none of its files imports foundation_rt"
    raise AppError(f"{name} is a folder: name the file with the server, {advice}")


def split_app(target: str) -> tuple[str, str | None]:
    """Return the file or module of an APP, and the name of its server, if there is one.

    Raises:
        AppError: it has another form.
    """
    source, colon, attribute = target.rpartition(":")
    if not colon or "/" in attribute or "\\" in attribute or attribute.endswith(".py"):
        return target, None
    if not source or not attribute.isidentifier():
        raise AppError(f"{target!r} is not of the form FILE.py[:attribute] or module[:attribute]")
    return source, attribute


@contextmanager
def _import_guard(source: str) -> Iterator[None]:
    from ..server import importing

    token = importing.set(True)
    try:
        yield
    except AppError:
        raise
    except UsageError as error:
        raise AppError(f"{source}: {error}") from error
    except SystemExit as error:
        raise AppError(f"{source} called sys.exit({error.code!r}) while it was imported") from error
    except Exception as error:
        raise AppError(f"{source} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        importing.reset(token)


def _import_file(path: str) -> ModuleType:
    import os
    from importlib.util import module_from_spec, spec_from_file_location

    if not os.path.isfile(path):  # noqa: PTH113 -- pathlib costs start-up
        raise AppError(f"there is no file {path}")
    path = os.path.abspath(path)  # noqa: PTH100
    # As `python FILE.py` does: the file can import the modules beside it.
    sys.path.insert(0, os.path.dirname(path))  # noqa: PTH120
    # Under its own name the processes of a pool can import it, where they do not fork.
    name = os.path.basename(path).removesuffix(".py")  # noqa: PTH119
    if name in sys.modules or not name.isidentifier():
        name = _MODULE_NAME
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    # Annotations are resolved through sys.modules, and pickling looks there.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    from importlib import import_module

    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` would
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise AppError(
                f"there is no module {name!r}; a file is named with its .py ending"
            ) from error
        raise


def _find_server(module: ModuleType, source: str, attribute: str | None) -> Server:
    from ..server import Server

    if attribute is not None:
        found = getattr(module, attribute, None)
        if not isinstance(found, Server):
            state = "is not there" if found is None else f"is a {type(found).__name__}"
            raise AppError(f"{source}: {attribute!r} should be a foundation_rt.Server; it {state}")
        return found
    every = {name: each for name, each in vars(module).items() if isinstance(each, Server)}
    servers = {name: each for name, each in every.items() if not each.is_mounted} or every
    if "server" in servers:
        return servers["server"]
    distinct = {id(each): each for each in servers.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if not distinct:
        raise AppError(
            f"{source} holds no foundation_rt.Server: make one, e.g. server = Server(...); a server"
            f' of another SDK is a command line: "python {source}"'
        )
    raise AppError(
        f"{source} holds several servers ({', '.join(sorted(servers))}): name one, as in"
        f" {source}:{min(servers)}"
    )
