"""The wheel: what it holds, and that a fresh environment runs the quickstart."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest

from conftest import SOURCE

_SECONDS = 600  # of the build


def run(*command: object, **options: object) -> str:
    """Output of a command that must succeed, with this environment's programs."""
    programs = pathlib.Path(sys.executable).parent
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "SKRULL_LIBRARY_DIR")
    }
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        env=environment,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Built around the libraries of this build, and made self-contained."""
    folder = tmp_path_factory.mktemp("wheel")
    run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
        *("--no-build-isolation", "--disable-pip-version-check"),
        *("-C", f"build-dir={folder / 'build'}"),
        *("-C", f"cmake.define.SKRULL_BUILD_DIR={os.environ['SKRULL_BUILD_DIR']}"),
        *("-w", folder / "raw", SOURCE / "client/python"),
    )
    (raw,) = (folder / "raw").glob("*.whl")
    run("auditwheel", "repair", "--strip", "-w", folder / "dist", raw)
    (repaired,) = (folder / "dist").glob("*.whl")
    return repaired


@pytest.fixture(scope="module")
def installed(
    wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """A fresh environment with the wheel; NumPy is lent by that of the tests, since
    tests reach no network."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    site = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"
    ).strip()
    pathlib.Path(site, "lent.pth").write_text(sysconfig.get_path("purelib"))
    run(python, "-m", "pip", "install", "--quiet", "--no-index", wheel)
    return folder


def test_the_wheel_is_for_every_python_and_holds_what_it_needs(
    wheel: pathlib.Path,
) -> None:
    assert re.fullmatch(r"skrull-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for name in ("py.typed", "lib/libskrull_client.so", "lib/libskrull_exec.so"):
        assert f"skrull/{name}" in names
    assert not [name for name in names if "test" in name or name.endswith(".pyc")]


def test_what_is_loaded_is_the_wheels_own(installed: pathlib.Path) -> None:
    code = (
        "import skrull; from skrull._native import client, executor;"
        "client.library(); executor.library();"
        "print(open('/proc/self/maps').read())"
    )
    maps = run(installed / "bin/python", "-c", code)
    opened = set(re.findall(r"/\S+\.so[\S]*", maps))
    for name in ("libskrull_client", "libgrpc", "libprotobuf", "libabsl", "libssl"):
        ours = [path for path in opened if pathlib.Path(path).name.startswith(name)]
        assert ours, name
        assert all(path.startswith(str(installed)) for path in ours), ours


def blocks(page: pathlib.Path) -> list[tuple[str, str]]:
    """(language, body) of the fenced blocks that run, and of what they print.

    An `sh` block runs when the line before it is `<!-- run -->`; `python` ones all
    do. A `text` block is what the block before it prints.
    """
    found = re.findall(
        r"(<!-- run -->\n)?^```(\w+)\n(.*?)^```$", page.read_text(), re.M | re.S
    )
    return [
        (language, body) for run, language, body in found if language != "sh" or run
    ]


def matches(printed: str, wanted: str) -> bool:
    """Whether `printed` holds these lines, where ... stands for any text."""
    pattern = re.escape(wanted.strip("\n")).replace(re.escape("..."), ".*")
    return re.search(pattern, printed) is not None


def test_the_quickstart_runs_as_it_is_printed(
    installed: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    found = blocks(SOURCE / "docs/python/quickstart.md")
    python = [body for language, body in found if language == "python"]
    assert len(python) >= 4
    # One interpreter runs all blocks; a mark tells their outputs apart.
    script = "".join(f"{body}\nprint('@@', flush=True)\n" for body in python)
    printed = run(installed / "bin/python", "-c", script, cwd=tmp_path).split("@@\n")
    shell = "set -e\nPATH=" + f"{installed / 'bin'}:$PATH\n"
    position = wanted = 0
    for (language, body), following in zip(found, [*found[1:], ("", "")], strict=True):
        if language == "python":
            output = printed[position]
            position += 1
        elif language == "sh":
            output = run("sh", "-c", shell + body, cwd=tmp_path)
        else:
            continue
        if following[0] == "text":
            wanted += 1
            assert matches(output, following[1]), output
    assert wanted == sum(language == "text" for language, _ in found) >= 5
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
