"""The paper's experiments on the objective of docs/concepts.md, as data.

A speed-up is the ratio of the total predicted times of the same batches: what
a training run would see. Batches with a sequence that no CP group of the job
holds are left out for every policy, since BLOCK_SCOPE_GROUP cannot plan them,
as is a last, shorter batch.
"""

import bisect
import collections
import pathlib
import sys

import published
from skrullctl import with_fields, without_roll_back

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "oracle"))
import job_spec  # noqa: E402
from contract import rank_loads  # noqa: E402

BASE = "POLICY_STATIC_CP"

# What Fig. 3 adds step by step, what the paper compares with, and what is ours.
Step = collections.namedtuple("Step", "name policy scope")
STEPS = (
    Step("sorted", "POLICY_SORTED", "BLOCK_SCOPE_GROUP"),
    Step("packed static CP", "POLICY_PACKED_STATIC_CP", "BLOCK_SCOPE_GROUP"),
    Step("+ DACP", "POLICY_DACP_ONLY", "BLOCK_SCOPE_GROUP"),
    Step("+ GDS = Skrull", "POLICY_SKRULL", "BLOCK_SCOPE_GROUP"),
    Step("optimized, GROUP", "POLICY_OPTIMIZED", "BLOCK_SCOPE_GROUP"),
    Step("optimized, POOL", "POLICY_OPTIMIZED", "BLOCK_SCOPE_POOL"),
)
SKRULL = "+ GDS = Skrull"


def whole_batches(lengths, size, longest, most=None):
    """The batches that every policy plans, as one list, and how many of the
    first `most` were left out for a sequence over `longest` tokens."""
    count = len(lengths) // size
    batches = [lengths[i * size:(i + 1) * size]
               for i in range(min(count, most or count))]
    kept = [batch for batch in batches if max(batch) <= longest]
    return [length for batch in kept for length in batch], \
        len(batches) - len(kept)


def fit(speed_up, target, most, steps=18):
    """The argument in 0 .. most at which a rising function is `target`, to
    three digits; ValueError if it is not between the ends."""
    low, high = 0.0, most
    if not speed_up(low) <= target <= speed_up(high):
        raise ValueError(f"no value in 0 .. {most} gives {target}")
    for _ in range(steps):
        middle = (low + high) / 2
        if speed_up(middle) < target:
            low = middle
        else:
            high = middle
    return float(f"{high:.3g}")


class Experiments:
    """The experiments on one folder of jobs and one of lists.

    `overhead` is {model: seconds_per_micro_batch}; None as the value leaves
    that of the job file.
    """

    def __init__(self, skrullctl, jobs, lengths, most_batches=None):
        self._skrullctl = skrullctl
        self._jobs = pathlib.Path(jobs)
        self._most = most_batches
        self.lists = {
            dataset: [int(line) for line in
                      (pathlib.Path(lengths) / f"{dataset}.txt").read_text(
                          encoding="utf-8").split()]
            for dataset in published.DATASETS}

    def _job_text(self, name, overhead, **fields):
        text = (self._jobs / f"{name}.textproto").read_text(encoding="utf-8")
        if overhead is not None:
            fields["seconds_per_micro_batch"] = repr(overhead)
        return with_fields(text, **fields)

    def overhead_of_file(self, model):
        name = next(s.job for s in published.SETTINGS if s.model == model)
        return job_spec.Job(self._job_text(name, None)).overhead

    def _batches(self, setting):
        job = job_spec.Job(self._job_text(setting.job, None))
        return whole_batches(self.lists[setting.dataset], setting.batch_size,
                             job.bucket * job.cp, self._most)

    def left_out(self):
        """{setting: (batches left out, batches planned)}."""
        result = {}
        for setting in published.SETTINGS:
            kept, left_out = self._batches(setting)
            result[setting] = left_out, len(kept) // setting.batch_size
        return result

    def speed_up(self, setting, overhead, policy="POLICY_SKRULL"):
        kept, _ = self._batches(setting)
        seconds = self._skrullctl.mean_seconds(
            self._job_text(setting.job, overhead), kept, setting.batch_size,
            (BASE, policy))
        return seconds[BASE] / seconds[policy]

    def mean_speed_up(self, model, overhead):
        """Of POLICY_SKRULL, over the model's datasets."""
        values = [self.speed_up(setting, overhead)
                  for setting in published.SETTINGS if setting.model == model]
        return sum(values) / len(values)

    def fit_overhead(self):
        """{model: the overhead that gives its published mean speed-up}."""
        return {model: fit(lambda x, m=model: self.mean_speed_up(m, x), target,
                           most=0.1)
                for model, target in published.MEAN_OF_MODEL.items()}

    def figure3(self, overhead):
        """{setting: {name of step: speed-up}}."""
        result = {}
        for setting in published.SETTINGS:
            kept, _ = self._batches(setting)
            seconds = {}
            for scope in ("BLOCK_SCOPE_GROUP", "BLOCK_SCOPE_POOL"):
                policies = [s.policy for s in STEPS if s.scope == scope]
                seconds[scope] = self._skrullctl.mean_seconds(
                    self._job_text(setting.job, overhead[setting.model],
                                   block_scope=scope),
                    kept, setting.batch_size, [BASE] + policies)
            base = seconds["BLOCK_SCOPE_GROUP"][BASE]
            result[setting] = {step.name: base / seconds[step.scope][step.policy]
                               for step in STEPS}
        return result

    def best_step(self, overhead):
        """Most that POLICY_SKRULL gains on one batch, over all settings."""
        best = 0.0
        for setting in published.SETTINGS:
            kept, _ = self._batches(setting)
            job = self._job_text(setting.job, overhead[setting.model])
            base, skrull = (
                [plan["summary"]["predicted_seconds"] for plan in
                 self._skrullctl.plans(job, kept, setting.batch_size, policy)]
                for policy in (BASE, "POLICY_SKRULL"))
            best = max(best, *(b / s for b, s in zip(base, skrull)))
        return best

    def _case_job(self, overhead, **fields):
        return self._job_text(published.CASE_JOB, overhead, dp_size=1, **fields)

    def _case_batches(self, size, bucket=None):
        job = job_spec.Job(self._case_job(None))
        return whole_batches(self.lists[published.CASE_DATASET], size,
                             (bucket or job.bucket) * job.cp, self._most)[0]

    def _case_speed_ups(self, job, kept, size):
        policies = ("POLICY_SKRULL", "POLICY_OPTIMIZED")
        seconds = self._skrullctl.mean_seconds(job, kept, size,
                                               (BASE, *policies))
        return {policy: seconds[BASE] / seconds[policy] for policy in policies}

    def figure4a_batch_sizes(self, overhead):
        """{batch size: {policy: speed-up}}."""
        return {size: self._case_speed_ups(self._case_job(overhead),
                                           self._case_batches(size), size)
                for size in published.BATCH_SIZES}

    def figure4a_buckets(self, overhead):
        """{bucket: {policy: speed-up}}, on the batches that the smallest
        bucket can plan."""
        size = published.CASE_BATCH_SIZE
        kept = self._case_batches(size, min(published.BUCKETS))
        return {bucket: self._case_speed_ups(
                    self._case_job(overhead, bucket_size_tokens=bucket), kept,
                    size)
                for bucket in published.BUCKETS}

    def table3(self, overhead):
        """{policy: {roll_back: (speed-up or None, batches planned, batches
        out of memory)}}."""
        size = published.CASE_BATCH_SIZE
        kept = self._case_batches(size)
        policies = tuple(published.CASE_SPEED_UP)
        result = {policy: {} for policy in policies}
        for roll_back in (True, False):
            job = self._case_job(overhead)
            rows = self._skrullctl.compare(
                job if roll_back else without_roll_back(job), kept, size,
                policies)
            for policy in policies:
                row = rows[policy]
                result[policy][roll_back] = (
                    row["speed_up"], row["planned_batches"],
                    row["refusals"].get("SIMULATED_OUT_OF_MEMORY", 0))
        return result

    def peak_tokens(self, steps=4):
        """{policy: [(least, most) peak rows of a rank, a step]} of the case
        study; a rank's peak is its fullest micro-batch."""
        size = published.CASE_BATCH_SIZE
        kept = self._case_batches(size)[:steps * size]
        text = self._case_job(None)
        job = job_spec.Job(text)
        result = {}
        for policy in published.PEAK_GB:
            result[policy] = []
            for plan in self._skrullctl.plans(text, kept, size, policy):
                loads = [rank_loads(job, [
                    (int(p.get("sequence", 0)), int(p["token_count"]),
                     int(p.get("first_rank", 0)), int(p["degree"]))
                    for p in batch.get("placements", [])])[0]
                    for batch in plan["micro_batches"]]
                peaks = [max(rank) for rank in zip(*loads)]
                result[policy].append((min(peaks), max(peaks)))
        return result

    def table1(self):
        """{dataset: (percent under each limit, longest, count)}."""
        return {dataset: (percent_under(lengths), max(lengths), len(lengths))
                for dataset, lengths in self.lists.items()}


def percent_under(lengths, limits=published.LIMITS):
    ordered = sorted(lengths)
    return [100 * bisect.bisect_left(ordered, limit) / len(ordered)
            for limit in limits]
