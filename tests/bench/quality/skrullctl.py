"""Runs `skrullctl` in process (--offline) on jobs and lengths given as text."""

import json
import pathlib
import re
import subprocess
import tempfile


class Failed(Exception):
    """skrullctl failed, or refused a batch that it had to plan."""


def with_fields(job_text, **fields):
    """A job's text with other values of fields that it sets exactly once."""
    for name, value in fields.items():
        job_text, count = re.subn(rf"\b{name}: \S+", f"{name}: {value}",
                                  job_text)
        if count != 1:
            raise ValueError(f"the job sets {name} {count} times, not once")
    return job_text


def without_roll_back(job_text):
    if "heuristic" in job_text:
        raise ValueError("the job has a heuristic section of its own")
    return job_text + "heuristic {\n  roll_back: false\n}\n"


class Skrullctl:
    """Not thread-safe: each call reuses the files of the one before."""

    def __init__(self, program):
        self._program = str(program)
        self._folder = tempfile.TemporaryDirectory()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._folder.cleanup()

    def _run(self, command, job_text, lengths, batch_size, *flags):
        """The objects that a command prints, one a line."""
        folder = pathlib.Path(self._folder.name)
        job, listed = folder / "job.textproto", folder / "lengths.txt"
        job.write_text(job_text, encoding="utf-8")
        listed.write_text("\n".join(map(str, lengths)) + "\n",
                          encoding="utf-8")
        done = subprocess.run(
            [self._program, command, "--offline", "--format", "json",
             "--job-spec", job, "--lengths", listed,
             "--batch-size", str(batch_size), *flags],
            capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):  # 1: some batch is refused
            raise Failed(f"skrullctl {command}: {done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def compare(self, job_text, lengths, batch_size, policies):
        """{policy: row of `skrullctl compare`}, refusals among them."""
        rows = self._run("compare", job_text, lengths, batch_size,
                         "--policy", ",".join(policies))
        return {row["policy"]: row for row in rows}

    def mean_seconds(self, job_text, lengths, batch_size, policies):
        """{policy: mean predicted seconds of a step}; refuses no batch."""
        rows = self.compare(job_text, lengths, batch_size, policies)
        for policy, row in rows.items():
            if row["refused_batches"]:
                raise Failed(f"{policy} refuses {row['refused_batches']} "
                             f"batches: {row['refusals']}")
        return {policy: row["mean_predicted_seconds"]
                for policy, row in rows.items()}

    def plans(self, job_text, lengths, batch_size, policy):
        """The plan of each batch; refuses none."""
        plans = self._run("plan", job_text, lengths, batch_size,
                          "--policy", policy)
        for plan in plans:
            if "error" in plan:
                raise Failed(f"{policy}: {plan['error']['message']}")
        return plans
