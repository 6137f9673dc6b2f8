"""Plans, rank plans and micro-batches as Python sees them."""

from __future__ import annotations

import html.parser
import json
import pickle

import numpy as np
import numpy.typing as npt
import pytest
import skrull

from conftest import LENGTHS


@pytest.fixture(scope="module")
def plan(job: skrull.Job) -> skrull.Plan:
    return skrull.local(job, name="run7").plan(3, LENGTHS, attempt=1)


def tokens(sequence: int, length: int) -> npt.NDArray[np.int64]:
    return 1_000_000 * sequence + np.arange(length)


def test_a_plan_tells_what_it_is_for(plan: skrull.Plan, job: skrull.Job) -> None:
    assert (plan.job, plan.step, plan.attempt) == ("run7", 3, 1)
    assert plan.policy == job.policy
    assert plan.lengths.tolist() == LENGTHS
    assert len(plan.digest) == 64
    assert plan.num_micro_batches == plan.figures.micro_batch_count > 0
    assert plan.figures.predicted_seconds >= plan.figures.lower_bound_seconds > 0
    assert not plan.committed
    assert not plan.from_fallback


def test_json_and_bytes_are_the_same_plan(plan: skrull.Plan) -> None:
    told = json.loads(plan.to_json())
    assert told["digest"] == plan.digest
    assert told["summary"]["predicted_seconds"] == plan.figures.predicted_seconds
    assert len(told["micro_batches"]) == plan.num_micro_batches
    again = skrull.Plan.from_bytes(plan.to_bytes(), plan.world_size)
    assert again == plan
    assert again.to_json() == plan.to_json()


def test_bytes_that_are_no_plan_are_refused(plan: skrull.Plan) -> None:
    data = bytearray(plan.to_bytes())
    with pytest.raises(skrull.InvalidArgumentError, match=r"not a skrull\.v1\.Plan"):
        skrull.Plan.from_bytes(b"", 8)
    data[data.index(b"run7") + 3] = ord("8")
    with pytest.raises(skrull.InvalidArgumentError, match="digest"):
        skrull.Plan.from_bytes(bytes(data), 8)


def test_every_token_is_on_one_rank_once(plan: skrull.Plan) -> None:
    whole = [tokens(i, n) for i, n in enumerate(LENGTHS)]
    seen: list[npt.NDArray[np.int64]] = []
    weight = 0.0
    for rank in range(plan.world_size):
        share = plan.rank_plan(rank)
        assert share.digest == plan.digest
        assert (share.rank, share.world_size) == (rank, 8)
        assert share.batch_token_count == sum(LENGTHS)
        assert len(share.micro_batches) == plan.num_micro_batches
        for micro_batch in share.micro_batches:
            rows = micro_batch.gather(whole)
            # Two ways to the same rows: ranges here, maps of the executor there.
            expected = (
                1_000_000 * micro_batch.sequences.astype(np.int64)
                + micro_batch.positions
            )
            np.testing.assert_array_equal(rows, expected)
            assert rows.size == micro_batch.rows
            seen.append(rows)
            weight += micro_batch.token_weight
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.concatenate(whole))
    assert weight == pytest.approx(1.0)


def test_cu_seqlens_are_the_segments(plan: skrull.Plan) -> None:
    for rank in range(plan.world_size):
        for micro_batch in plan.rank_plan(rank).micro_batches:
            offsets, longest = micro_batch.to_cu_seqlens()
            parts = [
                end - begin
                for segment in micro_batch.segments
                for begin, end in (segment.low, segment.high)
                if end > begin
            ]
            assert np.diff(offsets).tolist() == parts
            assert longest == max(parts, default=0)
            assert micro_batch.local_rows == sum(
                s.rows for s in micro_batch.segments if s.degree == 1
            )


def test_gather_takes_rows_of_any_shape_and_names_what_is_wrong(
    plan: skrull.Plan,
) -> None:
    micro_batch = next(
        mb
        for rank in range(plan.world_size)
        for mb in plan.rank_plan(rank).micro_batches
        if mb.rows
    )
    whole = {s.sequence: np.ones((s.token_count, 3)) for s in micro_batch.segments}
    assert micro_batch.gather(whole, dtype=np.float32).shape == (micro_batch.rows, 3)
    sequence = micro_batch.segments[0].sequence
    whole[sequence] = whole[sequence][:-1]
    with pytest.raises(skrull.InvalidArgumentError, match=f"sequence {sequence} has"):
        micro_batch.gather(whole)
    del whole[sequence]
    with pytest.raises(skrull.InvalidArgumentError, match="is missing") as caught:
        micro_batch.gather(whole)
    assert caught.value.indices == (sequence,)


def test_a_rank_without_rows_has_empty_arrays(job: skrull.Job) -> None:
    plan = skrull.local(job).plan(0, [5], policy="POLICY_SKRULL")
    rows = [plan.rank_plan(rank).micro_batches[0].rows for rank in range(8)]
    assert sorted(rows) == [0] * 7 + [5]
    empty = plan.rank_plan(rows.index(0)).micro_batches[0]
    assert empty.positions.shape == empty.sequences.shape == (0,)
    assert empty.to_cu_seqlens()[0].tolist() == [0]
    assert empty.gather([[1, 2, 3, 4, 5]]).shape == (0,)
    assert empty.token_weight == 0
    assert empty.token_count == 5


def test_arrays_are_read_only(plan: skrull.Plan) -> None:
    micro_batch = plan.rank_plan(0).micro_batches[0]
    for array in (plan.lengths, micro_batch.positions, micro_batch.sequences):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


def test_ranks_outside_the_pool_are_refused(plan: skrull.Plan) -> None:
    for rank in (-1, 8):
        with pytest.raises(skrull.InvalidArgumentError, match=r"0 \.\. 7"):
            plan.rank_plan(rank)


def test_plans_and_shares_survive_pickling(plan: skrull.Plan) -> None:
    again = pickle.loads(pickle.dumps(plan))
    assert again.to_bytes() == plan.to_bytes()
    assert again.planning_seconds == plan.planning_seconds
    share = plan.rank_plan(2)
    assert share.native.value  # a handle must not be what is pickled
    for copy in (pickle.loads(pickle.dumps(share)), again.rank_plan(2)):
        assert copy.native.value != share.native.value
        assert copy.blocks == share.blocks
        for mine, theirs in zip(copy.micro_batches, share.micro_batches, strict=True):
            assert mine.segments == theirs.segments
            np.testing.assert_array_equal(mine.positions, theirs.positions)
    micro_batch = pickle.loads(pickle.dumps(share.micro_batches[0]))
    np.testing.assert_array_equal(
        micro_batch.positions, share.micro_batches[0].positions
    )


def test_plans_of_chunks_are_data_and_not_run(job: skrull.Job) -> None:
    plan = skrull.local(job).plan(0, LENGTHS, policy="POLICY_CHUNK_FLOW")
    assert plan.lengths.tolist() == LENGTHS
    assert plan.num_micro_batches == 0
    assert json.loads(plan.to_json())["chunk_plan"]["chunks"]
    with pytest.raises(skrull.UnsupportedError, match="chunks"):
        plan.rank_plan(0)
    with pytest.raises(skrull.UnsupportedError, match="chunks"):
        plan.to_html(job)
    assert "no micro-batches to draw" in plan._repr_html_()


class Balanced(html.parser.HTMLParser):
    """Fails on tags that do not match, and on what would load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "img", "link", "iframe")
        assert not {"src", "href"} & {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_notebook_shows_the_loads_escaped(job: skrull.Job) -> None:
    plan = skrull.local(job, name="run7").plan(0, LENGTHS)
    plan.job = "<script>alert(1)</script>"
    page = plan._repr_html_()
    parser = Balanced()
    parser.feed(page)
    assert not parser.open
    assert plan.digest in page
    for rank in range(8):
        assert f"rank {rank}</span>" in page


def test_a_report_is_of_a_plan_of_that_job(plan: skrull.Plan, job: skrull.Job) -> None:
    page = plan.to_html(job)
    assert page.startswith("<!DOCTYPE html>")
    assert plan.digest in page
    other = skrull.Job.from_text(job.text.replace("dp_size: 2", "dp_size: 1"))
    with pytest.raises(skrull.InvalidArgumentError, match="not one of this job"):
        plan.to_html(other)
