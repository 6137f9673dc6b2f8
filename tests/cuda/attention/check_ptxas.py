#!/usr/bin/env python3
"""Fail if a kernel spills registers, has a stack, or lacks registers.

  check_ptxas.py --kernels N --blocks NAME=BLOCKS ... OBJECT...

Reads OBJECT.ptxas of each object, which cmake/keep_ptxas_report.py wrote. Each
kernel of them, for each architecture, must have no stack and no spills, and must fit as
often as --blocks says of its name into the 65,536 registers of a
multiprocessor, with 128 threads a block. For each architecture there must be N
kernels. Prints a table. Standard library of Python only.
"""
import argparse
import re
import sys

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                   r"(\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
NAME = re.compile(r"\d+([A-Z]\w*?Kernel)[IE]")
OF_ATTENTION = re.compile(r"(Bf16|Fp16)ELi(\d+)E")

THREADS = 128
REGISTERS_OF_MULTIPROCESSOR = 65536
UNIT = 8  # registers of a thread are allocated in eights


def read(text):
    """Yields (kernel, architecture, stack, spills, registers)."""
    entry = frame = None
    for line in text.splitlines():
        if found := ENTRY.search(line):
            entry, frame = found.groups(), None
        elif entry and (found := FRAME.search(line)):
            frame = [int(number) for number in found.groups()]
        elif entry and frame and (found := REGISTERS.search(line)):
            yield (*entry, frame[0], frame[1] + frame[2], int(found.group(1)))
            entry = None


def check(rows, kernels, blocks):
    """Yields a problem for each rule that is broken."""
    counts = {}
    for symbol, architecture, stack, spills, registers in rows:
        counts[architecture] = counts.get(architecture, 0) + 1
        found = NAME.search(symbol)
        name = found.group(1) if found else symbol
        what = f"{symbol} for {architecture}"
        if stack or spills:
            yield f"{what}: {stack} bytes of stack, {spills} of spills"
        if name not in blocks:
            yield f"{what}: no --blocks for {name}"
            continue
        rounded = (registers + UNIT - 1) // UNIT * UNIT
        fit = REGISTERS_OF_MULTIPROCESSOR // (rounded * THREADS)
        if fit < blocks[name]:
            yield f"{what}: {registers} registers let {fit} blocks fit"
    if not counts:
        yield "no kernel in any report"
    for architecture, count in sorted(counts.items()):
        if count != kernels:
            yield f"{count} kernels for {architecture}, not {kernels}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", type=int, required=True)
    parser.add_argument("--blocks", action="append", default=[])
    parser.add_argument("objects", nargs="+")
    arguments = parser.parse_args()
    blocks = {name: int(count) for name, count in
              (item.split("=") for item in arguments.blocks)}
    rows = []
    for path in arguments.objects:
        with open(path + ".ptxas", encoding="utf-8") as file:
            rows += read(file.read())
    for symbol, architecture, _, _, registers in sorted(rows):
        found = NAME.search(symbol)
        name = found.group(1) if found else symbol
        if details := OF_ATTENTION.search(symbol):
            name += " " + " ".join(details.groups())
        print(f"{name:32} {architecture:8} {registers:4} registers")
    problems = list(check(rows, arguments.kernels, blocks))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
