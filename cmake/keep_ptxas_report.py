#!/usr/bin/env python3
"""Run nvcc and keep what ptxas says about each kernel.

  keep_ptxas_report.py NVCC ARGS... -o OBJECT ...

A compiler launcher of CMake. With -Xptxas=-v in ARGS the lines about registers,
stack and spills go to OBJECT.ptxas, which tests/cuda/attention/check_ptxas.py
reads, and not to the terminal. Everything else passes through.
"""
import re
import subprocess
import sys

REPORT = re.compile(r"ptxas info\s*:|^\s+\d+ bytes stack frame, ")


def main():
    command = sys.argv[1:]
    run = subprocess.run(command, stderr=subprocess.PIPE, text=True,
                         check=False)
    report = []
    for line in run.stderr.splitlines(keepends=True):
        if REPORT.search(line):
            report.append(line)
        else:
            sys.stderr.write(line)
    if run.returncode == 0 and "-o" in command:
        output = command[command.index("-o") + 1]
        with open(output + ".ptxas", "w", encoding="utf-8") as file:
            file.writelines(report)
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
