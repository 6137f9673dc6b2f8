#!/usr/bin/env python3
"""The runbook's commands copy a store under load, and bring it back.

  backup_test.py ROOT SKRULLD SKRULLCTL

Runs the indented commands of docs/runbook.md, "Back up and restore", on a real
daemon and store in a folder of their own in place of /var; `systemctl` stops and
starts that daemon. Needs sqlite3; skipped (77) without.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

SECTION = "## Back up and restore"
READY_SECONDS = 60


def commands(page):
    """The indented blocks of the section, as lists of lines."""
    section = page.split(SECTION + "\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"(?:^ {4}.*\n)+", section + "\n", re.MULTILINE)
    return [[line.strip() for line in block.splitlines()] for block in blocks]


class Machine:
    """A folder for /var, and the daemon whose store is in it."""

    def __init__(self, root, skrulld, skrullctl, folder):
        self.root = root
        self.skrulld = skrulld
        self.skrullctl = skrullctl
        self.folder = folder
        self.store = folder / "lib/skrull/skrull.db"
        self.store.parent.mkdir(parents=True)
        (folder / "backups").mkdir()
        self.daemon = None
        self.address = None

    def start(self):
        """Starts the daemon; its output where it does not get ready."""
        log = (self.folder / "log").open("w+")
        self.daemon = subprocess.Popen(
            [self.skrulld, "--listen_address=127.0.0.1:0",
             "--metrics_address=127.0.0.1:0", f"--store=sqlite:{self.store}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            text = (self.folder / "log").read_text(encoding="utf-8")
            match = re.search(r"skrulld listening on ([^, ]+),", text)
            if match:
                self.address = match.group(1)
                return ""
            if self.daemon.poll() is not None:
                return text
            time.sleep(0.02)
        raise RuntimeError(f"not ready: {text}")

    def stop(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            self.daemon.wait()

    def ctl_argv(self, *arguments):
        return [self.skrullctl, *map(str, arguments), "--server", self.address]

    def ctl(self, *arguments):
        return subprocess.run(self.ctl_argv(*arguments), check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def plan_argv(self, step, count):
        """Plans `count` steps of the job, 64 sequences each, one a line."""
        lengths = self.folder / f"{count}.txt"
        lengths.write_text("\n".join(str(100 + 97 * (at % 64)) for at in range(64 * count)))
        return self.ctl_argv("plan", "--job", "run7", "--lengths", lengths,
                             "--batch-size", 64, "--step", step, "--format", "json")

    def plans(self, step, count):
        return subprocess.run(self.plan_argv(step, count), check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def run(self, lines):
        for line in lines:
            if line == "systemctl stop skrulld":
                self.stop()
            elif line == "systemctl start skrulld":
                failed = self.start()
                if failed:
                    raise RuntimeError(failed)
            else:
                # This machine has no user skrull, and its /var is not ours.
                line = line.replace("runuser -u skrull -- ", "")
                line = line.replace("-o skrull -g skrull ", "")
                line = line.replace("/var/", f"{self.folder}/")
                subprocess.run(["sh", "-ec", line], check=True)


def expect(condition, what):
    if not condition:
        raise RuntimeError(what)


def check(machine, backup, restore):
    expect(not machine.start(), "no daemon")
    job = machine.root / "deploy/examples/jobs/qwen2.5-0.5b.textproto"
    machine.ctl("job", "create", "run7", "--job-spec", job)
    before = machine.plans(0, 8)
    expect(before.count('"digest"') == 8, before)

    # The copy is made while others plan.
    with subprocess.Popen(machine.plan_argv(100, 200),
                          stdout=subprocess.PIPE, text=True) as load:
        load.stdout.readline()
        machine.run(backup)
        load.communicate()

    machine.stop()  # what is in its log goes into the file
    expect(machine.store.stat().st_size > 8192, "the store is no file of some size")
    with machine.store.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 4096)
    refusal = machine.start()
    expect(machine.daemon.poll() == 1 and str(machine.store) in refusal,
           f"a corrupt store is not refused by name: {refusal}")

    machine.run(restore)
    expect(machine.ctl("job", "list").count("run7") == 1, "the job is lost")
    with machine.store.open("rb") as file:
        file.seek(4096)
        expect(file.read(4096) != b"\xa5" * 4096, "still the corrupt file")
    # Committed, not planned anew: another batch for step 0 is a conflict.
    other = subprocess.run(
        machine.ctl_argv("plan", "--job", "run7", "--lengths", "-", "--format", "json"),
        input="5\n7\n", text=True, stdout=subprocess.PIPE)
    expect("FAILED_PRECONDITION" in other.stdout, f"no conflict: {other.stdout}")
    expect(machine.plans(0, 8) == before, "other plans than before")
    machine.stop()


def main(root, skrulld, skrullctl):
    if not shutil.which("sqlite3"):
        print("skipped: no sqlite3")
        return 77
    page = (root / "docs/runbook.md").read_text(encoding="utf-8")
    blocks = commands(page)
    backup = next(block for block in blocks if ".backup" in block[0])
    restore = next(block for block in blocks if block[0] == "systemctl stop skrulld")
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(root, skrulld, skrullctl, pathlib.Path(folder))
        try:
            check(machine, backup, restore)
        finally:
            machine.stop()
    print("a copy under load, a corrupt store, and back")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]), *sys.argv[2:]))
