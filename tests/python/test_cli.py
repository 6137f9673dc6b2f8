"""The `skrull` command, run as users run it."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest
import skrull

from conftest import LENGTHS, SOURCE, TEXT


def run(*arguments: object, stdin: str = "", code: int = 0) -> str:
    """Output of `python -m skrull`; of a failure, its errors."""
    done = subprocess.run(
        [sys.executable, "-m", "skrull", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


@pytest.fixture
def files(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "job.textproto").write_text(TEXT)
    lines = [f"{n}  # comment" for n in LENGTHS[:3]] + [
        "",
        "# only that",
        *(json.dumps({"length": n, "id": "#"}) for n in LENGTHS[3:]),
    ]
    (tmp_path / "lengths.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_plan_prints_what_the_library_plans(
    files: pathlib.Path, job: skrull.Job
) -> None:
    common = ("plan", files / "lengths.txt", "--job-spec", files / "job.textproto")
    told = run(*common, "--batch-size", 4, "--step", 10, "--format", "json")
    engine = skrull.local(job)
    assert told.splitlines() == [
        engine.plan(10, LENGTHS[:4]).to_json(),
        engine.plan(11, LENGTHS[4:]).to_json(),
    ]
    text = run(*common, "--policy", "POLICY_SKRULL")
    plan = engine.plan(0, LENGTHS, policy="POLICY_SKRULL")
    assert f"batch 0, step 0: 7 sequences, {sum(LENGTHS)} tokens, POLICY_SKRULL" in text
    assert plan.digest in text


def test_a_refused_batch_is_told_and_the_rest_planned(files: pathlib.Path) -> None:
    common = ("plan", "-", "--job-spec", files / "job.textproto", "--batch-size", 1)
    told = run(*common, "--format", "json", stdin="5\n2401\n7\n", code=1).splitlines()
    assert [json.loads(line).get("error", {}).get("code") for line in told] == [
        None,
        "FAILED_PRECONDITION",
        None,
    ]
    assert "batch 1: refused: " in run(*common, stdin="5\n2401\n7\n", code=1)


def test_compare_lists_policies(files: pathlib.Path, job: skrull.Job) -> None:
    common = ("compare", files / "lengths.txt", "--job-spec", files / "job.textproto")
    rows = [json.loads(line) for line in run(*common, "--format", "json").splitlines()]
    assert [row["policy"] for row in rows] == list(skrull.POLICIES)
    engine = skrull.local(job)
    base = engine.plan(0, LENGTHS, policy="POLICY_STATIC_CP").figures.predicted_seconds
    for row in rows:
        seconds = engine.plan(0, LENGTHS, policy=row["policy"]).figures
        assert row["mean_step_seconds"] == pytest.approx(seconds.predicted_seconds)
        assert row["speed_up"] == pytest.approx(base / seconds.predicted_seconds)
    one = run(*common, "--policy", "POLICY_SKRULL").splitlines()
    assert len(one) == 2
    assert one[1].startswith("POLICY_SKRULL")


def test_report_writes_a_page(files: pathlib.Path) -> None:
    page = files / "report.html"
    common = ("report", files / "lengths.txt", "--job-spec", files / "job.textproto")
    run(*common, "--output", page)
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert run(*common) == page.read_text()
    assert "there are 1 batches" in run(*common, "--batch", 1, code=2)
    assert "chunks" in run(*common, "--policy", "POLICY_CHUNK_FLOW", code=1)


def test_a_model_configuration_is_a_job(files: pathlib.Path) -> None:
    (files / "config.json").write_text(
        json.dumps(
            {
                "hidden_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "intermediate_size": 128,
                "vocab_size": 100,
            }
        )
    )
    told = run(
        *("plan", "-", "--config", files / "config.json", "--cp-size", 4),
        *("--bucket-size-tokens", 600, "--block-scope", "subgroup"),
        stdin="2000\n5\n",
    )
    assert "2 sequences, 2005 tokens" in told


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["plan", "lengths.txt"], "--job-spec or --config"),
        (["plan", "gone.txt", "--job-spec", "job.textproto"], "gone.txt"),
        (["plan", "job.textproto", "--job-spec", "job.textproto"], "job.textproto:2"),
        (["plan", "lengths.txt", "--job-spec", "lengths.txt"], "lengths.txt: "),
        (["lengths", "--dataset", "job.textproto"], "job.textproto:2"),
        (["fly"], "invalid choice"),
    ],
)
def test_what_cannot_be_read_is_named(
    files: pathlib.Path,
    arguments: list[str],
    part: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(files)
    assert part in run(*arguments, code=2)


SAMPLES = [
    ({"input_ids": [1, 2, 3], "text": "one"}, 3),
    ({"messages": [{"role": "user", "content": "a b"}, {"content": "c"}]}, 3),
    ({"text": "one two  three four"}, 4),
]


def test_lengths_are_counted(tmp_path: pathlib.Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("\n\n".join(json.dumps(sample) for sample, _ in SAMPLES))
    told = run("lengths", "--dataset", data)
    assert told.split() == [str(length) for _, length in SAMPLES]
    out = tmp_path / "lengths.txt"
    run("lengths", "--dataset", data, "--max-length", 3, "--output", out)
    assert out.read_text().split() == ["3", "3", "3"]
    for wrong, part in (({"texts": "x"}, "texts"), ({"text": " "}, "no token")):
        data.write_text('{"text": "fine"}\n' + json.dumps(wrong))
        told = run("lengths", "--dataset", data, code=2)
        assert "data.jsonl:2" in told
        assert part in told


def test_lengths_of_a_tokenizer(tmp_path: pathlib.Path) -> None:
    if importlib.util.find_spec("tokenizers") is None:
        pytest.fail("tokenizers is not installed: see tests/python/requirements.txt")
    import tokenizers

    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    words.save(str(tmp_path / "tokenizer.json"))
    data = tmp_path / "data.jsonl"
    data.write_text('{"text": "abab"}\n{"messages": [{"content": "abx"}]}\n')
    told = run("lengths", "--dataset", data, "--tokenizer", tmp_path / "tokenizer.json")
    assert told.split() == ["4", "3"]


def test_lengths_of_a_hugging_face_tokenizer(tmp_path: pathlib.Path) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.fail("transformers is not installed: see tests/python/requirements.txt")
    import tokenizers
    import transformers

    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"a": 0, "<s>": 1, "?": 2}, unk_token="?")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")
    fast.chat_template = "{% for m in messages %}aa{{ m['content'] }}{% endfor %}"
    fast.save_pretrained(tmp_path / "model")
    data = tmp_path / "data.jsonl"
    data.write_text('{"text": "aaa"}\n{"messages": [{"role": "user", "content": "a"}]}')
    told = run("lengths", "--dataset", data, "--tokenizer", tmp_path / "model")
    assert told.split() == ["3", "3"]


def test_the_example_lengths_plan() -> None:
    told = run(
        "compare",
        SOURCE / "deploy/examples/lengths/wikipedia.txt",
        *("--batch-size", 512, "--policy", "POLICY_OPTIMIZED"),
        *("--job-spec", SOURCE / "deploy/examples/jobs/qwen2.5-0.5b.textproto"),
    )
    assert "50/50" in told
