#!/usr/bin/env python3
"""Check an image without a container engine.

  image.py DOCKERFILE BUILD_DIR ROOTFS [OPTION...]

Carries out the last stage of DOCKERFILE in a copy of ROOTFS, a Debian 12: its
RUN lines by chroot, its COPY lines from BUILD_DIR, which stands for the folder
of that name in the stage before. Then starts the ENTRYPOINT, with the OPTIONs
after it, as the USER, with the root read-only but for its VOLUMEs, and waits until the HEALTHCHECK passes;
after the daemon's end it must fail. Needs root, and Debian's mirror. Stops at
an instruction that it does not know.
"""
import ctypes
import fcntl
import glob
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

READY_SECONDS = 60
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
               "DEBIAN_FRONTEND": "noninteractive"}


def instructions(text):
    """The instructions of the last stage, as (word, rest)."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    parts = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    last = max(at for at, part in enumerate(parts) if part[0] == "FROM")
    return [(word, rest.strip()) for word, rest in parts[last:]]


class Image:
    """What the stage made, and says of how it is run."""

    def __init__(self, root, build):
        self.root = root
        self.build = build
        self.user = None
        self.volumes = []
        self.entrypoint = None
        self.health = None

    def apply(self, word, rest):
        if word == "FROM":
            if rest != "debian:bookworm-slim":
                raise ValueError(f"FROM {rest}: not what ROOTFS is")
        elif word == "COPY":
            match = re.fullmatch(r"--from=build /src/build/package/(\S+) (/\S+/)", rest)
            if not match:
                raise ValueError(f"COPY {rest}: only from the build folder")
            target = self.root / match.group(2).lstrip("/")
            target.mkdir(parents=True)
            for source in glob.glob(str(self.build / match.group(1))):
                shutil.copy(source, target)
        elif word == "RUN":
            self.run(["sh", "-ec", rest], check=True)
        elif word == "USER":
            self.user = rest
        elif word == "VOLUME":
            self.volumes.append(rest)
        elif word == "HEALTHCHECK":
            self.health = json.loads(rest[rest.index("CMD ") + len("CMD "):])
        elif word == "ENTRYPOINT":
            self.entrypoint = json.loads(rest)
        elif word != "EXPOSE":
            raise ValueError(f"no such instruction here: {word}")

    def command(self, argv, user=None):
        as_user = [f"--userspec={user}"] if user else []
        return ["chroot", *as_user, str(self.root), *argv]

    def run(self, argv, user=None, check=False):
        done = subprocess.run(self.command(argv, user), env=ENVIRONMENT, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if check and done.returncode != 0:
            raise RuntimeError(f"{argv}: {done.stdout}")
        return done

    def healthy(self):
        return self.run(self.health, self.user).returncode == 0


def isolate():
    """Gives this process mounts of its own, and a loopback device of its own:
    the ports of the image are free there."""
    clone_newns, clone_newnet = 0x00020000, 0x40000000
    siocsifflags, iff_up = 0x8914, 0x1
    if ctypes.CDLL(None, use_errno=True).unshare(clone_newns | clone_newnet) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, siocsifflags, struct.pack("16sh22x", b"lo", iff_up))


def read_only(root, writable):
    """Makes root read-only, but for `writable`."""
    subprocess.run(["mount", "--bind", root, root], check=True)
    for path in writable:
        inner = str(root) + path
        subprocess.run(["mount", "--bind", inner, inner], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)


def check_run(image, options):
    """The image's own promises, with its daemon running."""
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", image.user or ""):
        raise RuntimeError(f"USER {image.user}: not a number other than root's")
    if image.healthy():
        raise RuntimeError("healthy without a daemon: does something else run?")
    argv = image.command([*image.entrypoint, *options], image.user)
    daemon = subprocess.Popen(argv, env=ENVIRONMENT, stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + READY_SECONDS
        while not image.healthy():
            if daemon.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the daemon of the image does not get healthy")
            time.sleep(0.2)
        uid = os.stat(f"/proc/{daemon.pid}").st_uid
        if str(uid) != image.user.split(":")[0]:
            raise RuntimeError(f"the daemon runs as {uid}")
        if image.run(["touch", "/usr/bin/x"]).returncode == 0:
            raise RuntimeError("the root is not read-only: this proves nothing")
    finally:
        daemon.terminate()
        code = daemon.wait()
    if code != 0 or image.healthy():
        raise RuntimeError(f"ended with {code}, or healthy without a daemon")


def main(dockerfile, build, rootfs, options):
    with tempfile.TemporaryDirectory() as work:
        root = pathlib.Path(work, "root")
        subprocess.run(["cp", "-a", rootfs, root], check=True)
        image = Image(root, pathlib.Path(build))
        text = pathlib.Path(dockerfile).read_text(encoding="utf-8")
        for word, rest in instructions(text):
            image.apply(word, rest)
        kib = subprocess.run(["du", "-skx", root], check=True, text=True,
                             stdout=subprocess.PIPE).stdout.split()[0]
        isolate()
        try:
            read_only(root, image.volumes)
            check_run(image, options)
        finally:
            subprocess.run(["umount", "--recursive", root])
    print(f"{dockerfile}: its last stage runs; {int(kib) // 1024} MiB unpacked")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:4], sys.argv[4:])
