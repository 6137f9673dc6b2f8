"""``skrull lengths``: a lengths file of a data set."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from skrull.errors import InvalidArgumentError

# Tokens of a text, and of a conversation in the form of `messages`.
_Count = Callable[[str], int]
_CountMessages = Callable[[list[dict[str, Any]]], int]


def add_command(commands: Any) -> None:
    """Adds it to the parser."""
    parser = commands.add_parser(
        "lengths",
        help="make a lengths file of a data set",
        description="Print the length of each sample of a JSON Lines file in tokens, "
        "one a line. A sample has `input_ids` (counted as they are), `messages` (by "
        "the tokenizer's chat template where it has one, else the contents one after "
        "another) or `text`.",
    )
    parser.add_argument("--dataset", required=True, metavar="FILE.jsonl")
    parser.add_argument(
        "--tokenizer",
        default="whitespace",
        metavar="NAME",
        help="a tokenizer.json (needs `tokenizers`); name or folder of a Hugging Face "
        "tokenizer (needs `transformers`); or `whitespace`, which counts words. "
        "Default: whitespace",
    )
    parser.add_argument(
        "--max-length",
        type=int,
        metavar="N",
        help="cut lengths to N, as a trainer does that truncates",
    )
    parser.add_argument(
        "--output", default="-", metavar="FILE", help="- is the standard output"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.max_length is not None and options.max_length < 1:
        raise InvalidArgumentError(
            f"--max-length: must be at least 1, is {options.max_length}"
        )
    count, count_messages = _tokenizer(options.tokenizer)
    lines: list[str] = []
    for place, sample in _samples(options.dataset):
        length = _length(sample, place, count, count_messages)
        lines.append(str(min(length, options.max_length or length)))
    text = "".join(f"{line}\n" for line in lines)
    if options.output == "-":
        sys.stdout.write(text)
    else:
        pathlib.Path(options.output).write_text(text, encoding="utf-8")
    return 0


def _samples(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{path}:{number}"
            try:
                sample = json.loads(line)
            except json.JSONDecodeError as error:
                raise InvalidArgumentError(f"{place}: no JSON: {error}") from None
            if not isinstance(sample, dict):
                raise InvalidArgumentError(f"{place}: not a JSON object")
            yield place, sample


def _length(
    sample: dict[str, Any], place: str, count: _Count, count_messages: _CountMessages
) -> int:
    if isinstance(sample.get("input_ids"), list):
        length = len(sample["input_ids"])
    elif isinstance(sample.get("messages"), list):
        length = count_messages(sample["messages"])
    elif isinstance(sample.get("text"), str):
        length = count(sample["text"])
    else:
        raise InvalidArgumentError(
            f"{place}: has no input_ids, messages or text, but: "
            f"{', '.join(sorted(sample)) or 'nothing'}"
        )
    if length < 1:
        raise InvalidArgumentError(
            f"{place}: has no token; leave such samples out of training, too"
        )
    return length


def _tokenizer(name: str) -> tuple[_Count, _CountMessages]:
    if name == "whitespace":
        return _by_contents(lambda text: len(text.split()))
    if name.endswith(".json"):
        try:
            import tokenizers
        except ImportError as error:
            raise InvalidArgumentError(
                f"--tokenizer {name} needs the package tokenizers: {error}"
            ) from error
        loaded = tokenizers.Tokenizer.from_file(name)
        return _by_contents(lambda text: len(loaded.encode(text).ids))
    return _hugging_face(name)


def _hugging_face(name: str) -> tuple[_Count, _CountMessages]:
    try:
        import transformers
    except ImportError as error:
        raise InvalidArgumentError(
            f"--tokenizer {name} needs the package transformers: {error}"
        ) from error
    tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    count, count_messages = _by_contents(lambda text: len(tokenizer(text)["input_ids"]))
    if not tokenizer.chat_template:
        return count, count_messages

    def by_template(messages: list[dict[str, Any]]) -> int:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    return count, by_template


def _by_contents(count: _Count) -> tuple[_Count, _CountMessages]:
    def count_messages(messages: list[dict[str, Any]]) -> int:
        return sum(count(str(message.get("content", ""))) for message in messages)

    return count, count_messages
