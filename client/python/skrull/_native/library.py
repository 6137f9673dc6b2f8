"""Finds and opens the two shared libraries."""

from __future__ import annotations

import ctypes
import os
import pathlib
from collections.abc import Sequence

from skrull._native.structs import Prototype, declare

# Directories of libskrull_*.so, separated by os.pathsep, that go before all
# others: for tests against a build folder.
ENVIRONMENT = "SKRULL_LIBRARY_DIR"

_PACKAGED = pathlib.Path(__file__).resolve().parent.parent / "lib"


def directories() -> list[str]:
    """Where the libraries, and the executor's plugins, are looked for.

    The entries of ``SKRULL_LIBRARY_DIR`` and the folder inside the wheel, those
    that exist; beside them, the dynamic linker's own path.
    """
    given = os.environ.get(ENVIRONMENT, "").split(os.pathsep)
    return [entry for entry in [*given, str(_PACKAGED)] if os.path.isdir(entry)]


def load(name: str) -> ctypes.CDLL:
    """Opens ``libNAME.so``.

    Its symbols stay its own: the library is opened with RTLD_LOCAL and exports
    its C interface alone, so that copies of gRPC and protobuf in other packages
    do not matter.

    Raises:
        ImportError: It is in none of the places, or cannot be opened; names them
            and the reason.
    """
    tried: list[str] = []
    for directory in directories():
        path = os.path.join(directory, f"lib{name}.so")
        if os.path.exists(path):
            return _open(path)
        tried.append(directory)
    soname = f"lib{name}.so.0"  # of an installed build
    try:
        return ctypes.CDLL(soname)
    except OSError as error:
        raise ImportError(
            f"lib{name}.so is not installed: not in {tried or 'the wheel'} "
            f"({ENVIRONMENT} can name other folders), and the dynamic linker says: "
            f"{error}"
        ) from error


def load_declared(
    name: str, version: int, prototypes: Sequence[Prototype]
) -> ctypes.CDLL:
    """Opens ``libNAME.so`` and gives its functions their types.

    Args:
        name: See :func:`load`.
        version: The least version of its interface that will do.
        prototypes: Of all functions; the first one returns that version.

    Raises:
        ImportError: See :func:`load`; also for a library that is older.
    """
    opened = load(name)
    declare(opened, prototypes[:1])
    found = int(getattr(opened, prototypes[0][0])())
    if found < version:
        raise ImportError(
            f"lib{name}.so is of version {found}, where this package needs {version}"
        )
    declare(opened, prototypes)
    return opened


def _open(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{path} cannot be opened: {error}") from error
