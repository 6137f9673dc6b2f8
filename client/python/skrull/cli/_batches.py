"""What plan, compare and report are asked: a job, and batches of lengths."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Iterator

from skrull.errors import InvalidArgumentError
from skrull.job import Job


def add_options(parser: argparse.ArgumentParser) -> None:
    """The lengths file, how it is cut into batches, and the job."""
    parser.add_argument(
        "lengths",
        metavar="LENGTHS",
        help="one length in tokens a line, or JSON Lines with a `length` key; # begins "
        "a comment; - is the standard input. `skrull lengths` makes one",
    )
    parser.add_argument(
        "--batch-size",
        type=_count,
        default=0,
        metavar="N",
        help="sequences of a global batch; 0: all are one batch. Default: 0",
    )
    job = parser.add_argument_group("job", "--job-spec, or --config with the rest")
    job.add_argument("--job-spec", metavar="FILE", help="its text form, *.textproto")
    job.add_argument(
        "--config", metavar="PATH", help="config.json of a Hugging Face model"
    )
    job.add_argument("--dp-size", type=_count, default=1, metavar="N")
    job.add_argument("--cp-size", type=_count, default=1, metavar="N")
    job.add_argument(
        "--bucket-size-tokens",
        type=_count,
        metavar="N",
        help="tokens that one rank holds in a micro-batch",
    )
    job.add_argument(
        "--block-scope", choices=("group", "subgroup", "pool"), default="group"
    )


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, is {value}")
    return value


def read_job(options: argparse.Namespace) -> Job:
    """The job that the options describe.

    Raises:
        InvalidArgumentError: They describe none, or two.
    """
    if (options.job_spec is None) == (options.config is None):
        raise InvalidArgumentError("give either --job-spec or --config")
    if options.job_spec is not None:
        return Job.from_file(options.job_spec)
    return Job.from_pretrained_config(
        options.config,
        dp_size=options.dp_size,
        cp_size=options.cp_size,
        bucket_size_tokens=options.bucket_size_tokens,
        block_scope=options.block_scope,
    )


def read_batches(options: argparse.Namespace) -> list[list[int]]:
    """The batches of the lengths file, in order; the last may be shorter.

    Raises:
        InvalidArgumentError: With file and line, for a line that holds no length.
    """
    lengths = list(_read_lengths(options.lengths))
    size = options.batch_size or max(1, len(lengths))
    return [lengths[i : i + size] for i in range(0, len(lengths), size)] or [[]]


def _read_lengths(path: str) -> Iterator[int]:
    text = sys.stdin.read() if path == "-" else pathlib.Path(path).read_text("utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#", 1)[0].strip() if "{" not in line else line.strip()
        if content:
            yield _length(content, f"{path}:{number}")


def _length(content: str, place: str) -> int:
    try:
        value = json.loads(content)
    except json.JSONDecodeError:
        value = None
    if isinstance(value, dict):
        value = value.get("length")
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(f"{place}: no length: {content[:60]!r}")
    return value
