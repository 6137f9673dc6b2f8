#!/usr/bin/env python3
"""Checks plans against the contract, independently of the C++ sources.

  contract_oracle.py --job-spec F --lengths F --plan F [--batch-size B]
      checks what `skrullctl plan --format json` printed for these inputs;
  contract_oracle.py --skrullctl PATH --job-spec F --lengths F [--batch-size B]
      runs it itself, offline, with every policy;
  contract_oracle.py --skrullctl PATH --fuzz N [--seed S]
      does so for N random jobs and batches.

Exit: 0 everything obeys the contract, 1 something does not (the first such
thing, with its inputs, is on stderr), 2 usage.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import contract
import fuzz
import job_spec


def read_lengths(text):
    lengths = []
    for line in text.splitlines():
        line = line.split("#")[0].strip() if "{" not in line else line.strip()
        if line:
            lengths.append(json.loads(line)["length"] if line[0] == "{"
                           else int(line))
    return lengths


def batches(lengths, size):
    size = size or len(lengths)
    return [lengths[i:i + size] for i in range(0, len(lengths), size)]


def check_output(job, wanted, output, policy=None):
    """Checks every line of `output`; returns how many batches were refused."""
    lines = [json.loads(line) for line in output.splitlines() if line.strip()]
    contract.require(len(lines) == len(wanted),
                     f"{len(lines)} plans for {len(wanted)} batches")
    refused = 0
    for index, (lengths, line) in enumerate(zip(wanted, lines)):
        try:
            if "error" in line:
                refused += 1
                contract.require(int(line.get("batch", 0)) == index,
                                 f"it says batch {line.get('batch')}")
                contract.check_refusal(job, lengths, line["error"], policy)
            else:
                contract.require(not contract.must_be_refused(job, lengths, policy),
                                 "planned, although it can never fit")
                contract.check_plan(job, lengths, line, policy)
        except contract.Violation as violation:
            raise contract.Violation(f"batch {index}: {violation}") from None
    return refused


def run_skrullctl(path, job_file, lengths_file, size, policy):
    command = [path, "plan", "--offline", "--format", "json",
               "--job-spec", job_file, "--lengths", lengths_file]
    if size:
        command += ["--batch-size", str(size)]
    if policy:
        command += ["--policy", policy]
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          timeout=600)
    contract.require(done.returncode in (0, 1),
                     f"{' '.join(command)} exits {done.returncode}: "
                     f"{done.stderr.strip()}")
    return done.returncode, done.stdout


def plan_and_check(path, text, lengths, size, policy, folder):
    job_file, lengths_file = f"{folder}/job.textproto", f"{folder}/lengths.txt"
    pathlib.Path(job_file).write_text(text, encoding="utf-8")
    pathlib.Path(lengths_file).write_text("\n".join(map(str, lengths)) + "\n",
                                          encoding="utf-8")
    code, output = run_skrullctl(path, job_file, lengths_file, size, policy)
    refused = check_output(job_spec.Job(text), batches(lengths, size), output,
                           policy)
    contract.require(code == (1 if refused else 0),
                     f"exit status {code} with {refused} batches refused")
    return refused


def fuzz_skrullctl(options):
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text, lengths, size, policy in fuzz.cases(options.fuzz,
                                                            options.seed):
            try:
                refused += plan_and_check(options.skrullctl, text, lengths,
                                          size, policy, folder)
            except contract.Violation as violation:
                raise contract.Violation(
                    f"{name}: {violation}\npolicy: {policy}\nbatch size: {size}"
                    f"\nlengths: {lengths}\njob:\n{text}") from None
    print(f"{options.fuzz} random jobs obey the contract "
          f"({refused} batches justly refused)")


def check_files(options):
    text = pathlib.Path(options.job_spec).read_text(encoding="utf-8")
    lengths = read_lengths(
        pathlib.Path(options.lengths).read_text(encoding="utf-8"))
    wanted = batches(lengths, options.batch_size)
    job = job_spec.Job(text)
    if options.plan:
        output = pathlib.Path(options.plan).read_text(encoding="utf-8")
        refused = check_output(job, wanted, output)
        print(f"{len(wanted)} batches obey the contract ({refused} refused)")
        return
    with tempfile.TemporaryDirectory() as folder:
        for policy in contract.POLICIES:
            refused = plan_and_check(options.skrullctl, text, lengths,
                                     options.batch_size, policy, folder)
            print(f"{policy}: {len(wanted)} batches obey the contract "
                  f"({refused} justly refused)")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job-spec")
    parser.add_argument("--lengths")
    parser.add_argument("--plan")
    parser.add_argument("--batch-size", type=int, default=0)
    parser.add_argument("--skrullctl")
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    try:
        if options.fuzz and options.skrullctl:
            fuzz_skrullctl(options)
        elif (options.job_spec and options.lengths and
              (options.plan or options.skrullctl)):
            check_files(options)
        else:
            parser.error("give --plan or --skrullctl, with --job-spec and "
                         "--lengths or with --fuzz")
    except contract.Violation as violation:
        print(f"contract violated: {violation}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
