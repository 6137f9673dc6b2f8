#!/usr/bin/env python3
"""Fail on any #include that crosses a room's walls, and on wrong guards.

  check_includes.py ROOT      # prints "file:line: problem" and exits 1, or 0

The rooms and who may call whom are those of docs/architecture.md. Angle
brackets hold the standard library and system headers, quotes everything else.
Standard library of Python only.
"""
import pathlib
import re
import sys

SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# What a pure room may take from the standard library: no clock, log, file,
# thread, lock, random number, or container whose order depends on a hash.
PURE_STD = set(
    """algorithm array bit cassert cfloat charconv cinttypes climits cmath
    compare concepts cstddef cstdint cstdio cstring functional initializer_list
    iterator limits map memory new numbers numeric optional queue ranges set
    span stdexcept string string_view tuple type_traits utility variant
    vector""".split())
# <cstdio> is there for snprintf alone; these reach a file, the environment or
# a random number through headers that a pure room may have.
IMPURE_CALL = re.compile(r"\b(fopen|freopen|fputs|fwrite|fprintf|printf|puts|"
                         r"getenv|rand|srand)\s*\(")
PURE_ABSL = ("absl/algorithm/", "absl/base/attributes.h", "absl/status/",
             "absl/strings/", "absl/types/")

LAYOUT = {"skrull/planner/chunk_plan.h", "skrull/planner/layout.h",
          "skrull/planner/least_squares.h", "skrull/planner/plan_digest.h",
          "skrull/planner/rank_plan.h"}
CONVERT = {"skrull/server/convert.h"}
ADDRESS = {"skrull/server/address.h"}
AUTH_TABLE = {"skrull/server/auth/auth_table.h"}
GRPC = ("grpc/", "grpcpp/", "google/protobuf/", "skrull/v1/")


class Room:
    """Files under a path, and what they may include.

    `quoted` are exact names, or prefixes where they end in "/"; None allows
    all. `but_not` are prefixes that they do not allow. A pure room takes only PURE_STD in angle brackets and may not call
    IMPURE_CALL.
    """

    def __init__(self, name, matches, quoted, pure=False, but_not=()):
        self.name = name
        self.matches = matches
        self.quoted = quoted
        self.pure = pure
        self.but_not = but_not

    def allows(self, bracket, header):
        if bracket == "<":
            return not self.pure or header in PURE_STD
        if header.startswith(self.but_not):
            return False
        return self.quoted is None or any(
            header.startswith(q) if q.endswith("/") else header == q
            for q in self.quoted)


def under(*prefixes):
    return lambda path: path.startswith(prefixes)


# The first room that matches a file is its room.
ROOMS = [
    Room("layout", lambda path: path in {
        "server/planner/chunk_plan.cc",
        "server/planner/chunk_plan.h", "server/planner/layout.h",
        "server/planner/layout.cc", "server/planner/least_squares.h",
        "server/planner/least_squares.cc", "server/planner/plan_digest.cc",
        "server/planner/plan_digest.h", "server/planner/rank_plan.h"}, LAYOUT, pure=True),
    Room("planner", under("server/planner/"),
         ("skrull/planner/",) + PURE_ABSL, pure=True),
    Room("calibration", under("server/calibration/"),
         ("skrull/server/calibration/", "skrull/planner/", "skrull/v1/",
          *CONVERT) + PURE_ABSL, pure=True),
    Room("server", under("server/"),
         ("skrull/server/", "skrull/planner/", "absl/", "prometheus/",
          "civetweb.h", "etcd/", "nlohmann/json.hpp") + GRPC),
    Room("client fallback", under("client/cpp/local_"),
         ("skrull/client/", "skrull/planner/", "absl/", *CONVERT) + GRPC),
    Room("client", under("client/cpp/"),
         ("skrull/client/", "absl/", *ADDRESS, *LAYOUT) + GRPC),
    Room("client's C interface", under("client/c_api/"),
         ("skrull/c_api/", "skrull/client/", "skrull/planner/", "absl/",
          "skrull/cli/plan_json.h", "skrull/cli/report_data.h",
          "skrull/cuda/c_api/skrull_exec.h", *CONVERT) + GRPC),
    Room("command line", under("client/cli/"),
         ("skrull/cli/", "skrull/client/", "skrull/planner/", "absl/", "CLI/",
          "nlohmann/json.hpp", *AUTH_TABLE, *CONVERT) + GRPC),
    Room("examples", under("cuda/examples/"),
         ("skrull/cuda/", "skrull/client/", "absl/", "CLI/", *LAYOUT)),
    Room("simulator", under("cuda/sim/"), ("skrull/cuda/", "boost/context/"),
         but_not=("skrull/cuda/examples/",)),
    Room("profile", under("cuda/profile/", "cuda/check/"),
         ("skrull/cuda/", "CLI/", "nlohmann/json.hpp", "cublasLt.h",
          "cuda_runtime_api.h", *LAYOUT), but_not=("skrull/cuda/examples/",)),
    Room("cuda", under("cuda/"),
         ("skrull/cuda/", "cuda/", "cub/", "cuda_runtime.h",
          "cuda_runtime_api.h", "cuda_bf16.h", "cuda_fp16.h", "cuda.h",
          "cudnn.h", "cudnn_frontend.h", "nccl.h", *LAYOUT),
         but_not=("skrull/cuda/examples/", "skrull/cuda/profile/",
                  "skrull/cuda/check/")),
    Room("demo", under("deploy/"),
         ("skrull/deploy/", "skrull/client/", "skrull/planner/", "absl/", *CONVERT) + GRPC),
    Room("tests", under("tests/"), None),
]


def guard_of(path):
    return "SKRULL_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"


def check_guard(path, lines):
    guard = guard_of(path)
    directives = [(n, line) for n, line in enumerate(lines, 1)
                  if line.startswith("#")]
    wanted = [f"#ifndef {guard}", f"#define {guard}"]
    for (number, line), want in zip(directives, wanted):
        if line.strip() != want:
            yield number, f"expected '{want}'"
            return
    if len(directives) < 3 or directives[-1][1].strip() != f"#endif  // {guard}":
        yield len(lines), f"expected the last directive '#endif  // {guard}'"


def check_file(path, text):
    """Yields (line, problem) of one file; `path` is relative, with slashes."""
    lines = text.splitlines()
    room = next((room for room in ROOMS if room.matches(path)), None)
    if room is None:
        yield 1, "is in no room of docs/architecture.md"
        return
    if path.endswith((".h", ".cuh")):
        yield from check_guard(path, lines)
    for number, line in enumerate(lines, 1):
        found = INCLUDE.match(line)
        if found and not room.allows(*found.groups()):
            yield number, (f"the {room.name} room may not include "
                           f"{found.group(2)}")
        called = room.pure and IMPURE_CALL.search(line.split("//")[0])
        if called:
            yield number, f"the {room.name} room may not call {called.group(1)}"


def check_tree(root):
    """Every problem of a tree, as strings, and the number of files read."""
    root = pathlib.Path(root)
    problems, count = [], 0
    for top in ("server", "client", "cuda", "deploy", "tests"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            count += 1
            path = file.relative_to(root).as_posix()
            text = file.read_text(encoding="utf-8")
            problems += [f"{path}:{line}: {problem}"
                         for line, problem in check_file(path, text)]
    return problems, count


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_includes.py ROOT")
    problems, count = check_tree(sys.argv[1])
    for problem in problems:
        print(problem)
    print(f"{count} files, {len(problems)} problems")
    # An empty tree means that the wrong folder was named.
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
