#!/usr/bin/env python3
"""Run the commands of the documentation, as they are printed there.

  run_docs.py BUILD_DIR FILE...

A fenced `sh` block is run when the line before it is `<!-- run -->`. The blocks
of one file run one after another in one shell (`bash -e`), in a copy of the
checkout's top folder made of links, so that what they write stays out of the
checkout. The programs of BUILD_DIR are first on PATH; BUILD_DIR itself appears
as build/dev. `<!-- output -->` before a `text` block means that the output of
the block before it must hold these lines, in this order, with "..." for any
text. What a file starts in the background is ended with it.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

FENCE = re.compile(r"^```(\w*)$")
TIMEOUT_SECONDS = 300


def blocks(text):
    """Yields (kind, line number, body) of the marked blocks of a page."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if not fence:
            at += 1
            continue
        end = at + 1
        while lines[end] != "```":
            end += 1
        mark = lines[at - 1].strip() if at else ""
        body = "\n".join(lines[at + 1:end])
        if mark == "<!-- run -->" and fence.group(1) == "sh":
            yield "run", at + 1, body
        elif mark == "<!-- output -->" and fence.group(1) == "text":
            yield "output", at + 1, body
        elif mark in ("<!-- run -->", "<!-- output -->"):
            raise ValueError(f"line {at + 1}: {mark} before ```{fence.group(1)}")
        at = end + 1


def script_of(page):
    """One shell script of a page's commands; a marker line ends each block."""
    script, wanted = [], []
    for kind, line, body in blocks(page):
        if kind == "run":
            script += [body, f"echo '@@ {len(wanted)}'"]
            wanted.append((line, []))
        else:
            if not wanted:
                raise ValueError(f"line {line}: output without commands")
            wanted[-1][1].extend(body.splitlines())
    return "\n".join(script), wanted


def missing_line(lines, output):
    """The first of `lines` that `output` lacks, in order; None if it has all."""
    rest = output.splitlines()
    for line in lines:
        pattern = re.compile(
            r"\s+".join(".*".join(map(re.escape, word.split("...")))
                        for word in line.split()) or r"^\s*$")
        while rest and not pattern.search(rest[0]):
            rest.pop(0)
        if not rest:
            return line
        rest.pop(0)
    return None


def run_page(path, root, build):
    """Runs a page. Returns the number of its blocks; raises on a failure."""
    script, wanted = script_of(path.read_text(encoding="utf-8"))
    if not wanted:
        return 0
    with tempfile.TemporaryDirectory() as work:
        for entry in root.iterdir():
            if entry.name not in ("build", ".git"):
                os.symlink(entry, pathlib.Path(work, entry.name))
        os.mkdir(pathlib.Path(work, "build"))
        os.symlink(build, pathlib.Path(work, "build", "dev"))
        log = pathlib.Path(work, "docs.log")
        with log.open("w") as out:
            shell = subprocess.Popen(
                ["bash", "-e", "-o", "pipefail", "-c", script], cwd=work,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True)
            try:
                code = shell.wait(timeout=TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                code = "a time-out"
            finally:
                try:
                    os.killpg(shell.pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass
                shell.wait()
        output = log.read_text(encoding="utf-8", errors="replace")
    if code != 0:
        raise RuntimeError(f"{path}: ended with {code}\n{output}")
    parts = re.split(r"^@@ \d+\n", output, flags=re.MULTILINE)
    for (line, lines), part in zip(wanted, parts):
        lacks = missing_line(lines, part)
        if lacks is not None:
            raise RuntimeError(f"{path}:{line}: no line like {lacks!r} in\n{part}")
    return len(wanted)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    root = pathlib.Path(__file__).resolve().parents[2]
    build = pathlib.Path(sys.argv[1]).resolve()
    total = 0
    for name in sys.argv[2:]:
        count = run_page(pathlib.Path(name), root, build)
        print(f"{name}: {count} blocks ran")
        total += count
    if total == 0:
        sys.exit("no block is marked to run")


if __name__ == "__main__":
    main()
