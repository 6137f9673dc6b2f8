#!/usr/bin/env python3
"""The Skrull paper's tables and figures on this project's objective.

  paper_figures.py --skrullctl PATH --jobs DIR --lengths DIR
                   [--images DIR] [--batches N]

Prints Markdown; with --images also draws the SVGs it refers to (needs
matplotlib). --batches takes only the first N batches of each list. Everything
is planned in process: the figures depend on the commit, not on the machine.
Exit: 0 done, 1 a plan or the fit failed, 2 usage.
"""

import argparse
import pathlib
import sys

import report
from experiments import Experiments
from skrullctl import Failed, Skrullctl

IMAGES = "images"  # where docs/benchmarks.md finds them

TEXT = """\
## The paper's tables

Made by `tests/bench/quality/paper_figures.py`, which plans with
`skrullctl compare` the jobs of `deploy/examples/jobs` on the lists of
`deploy/examples/lengths`: all whole batches, 256 sequences each (7B on chatqa2: 80).
Constants are those of the job files but for `seconds_per_micro_batch`, which is
given twice: as fitted, and as in the file. A speed-up is the ratio of the total
predicted times of the same batches. Batches with a sequence that no CP group holds are
left out: {left_out}.

### The fit

One `seconds_per_micro_batch` a model, so that the mean speed-up of POLICY_SKRULL over
POLICY_STATIC_CP on the three lists is the published one. Nothing else is fitted.

{overheads}

### Headline figures

The published mean of all six is the mean of the two models' means, so "peak" is read as
the best of the same six settings.

{headline}

### Figure 3: what each step adds

Speed-up over POLICY_STATIC_CP with the fitted overhead:

{figure3_fitted}

![Speed-up of each step over static context parallelism]({images}/paper-figure3.svg)

The same with the job files' overhead:

{figure3_given}

### Figure 4a: batch size and bucket

The case study (0.5B, chatqa2, dp_size 1, cp_size 8): the batch grows at a bucket of
26,624 tokens; the bucket grows at a batch of 64, on the batches that the smallest
bucket holds.

{batch_sizes}

{buckets}

![Speed-up by batch size and by bucket]({images}/paper-figure4a.svg)

### Table 3: roll-back

The case study at a batch of 64; "no" is `heuristic.roll_back: false`.

{table3}

### Peak memory of a step

The case study's first four batches: least and most, over the ranks, of the tokens of
a rank's fullest micro-batch, beside the gigabytes that the paper prints for its own
first four.

{peaks}

### Table 1: the lists

Percent of the sequences under so many tokens.

{table1}

![Lengths of our lists against the published shares]({images}/paper-table1.svg)
"""


def run(experiments, images=None):
    """The Markdown; draws into the folder `images`, if given."""
    fitted = experiments.fit_overhead()
    given = {model: None for model in fitted}
    figure3 = [experiments.figure3(o) for o in (fitted, given)]
    case = (fitted["0.5B"], None)
    batch_sizes = [experiments.figure4a_batch_sizes(o) for o in case]
    buckets = [experiments.figure4a_buckets(o) for o in case]
    if images is not None:
        import plots  # only drawing needs matplotlib
        images.mkdir(parents=True, exist_ok=True)
        plots.figure3(figure3[0], images / "paper-figure3.svg")
        plots.figure4a([("sequences in a batch", *batch_sizes),
                        ("bucket, tokens", *buckets)], images / "paper-figure4a.svg")
        plots.table1(experiments.lists, images / "paper-table1.svg")
    return TEXT.format(
        left_out=report.left_out(experiments.left_out()),
        overheads=report.overheads(
            fitted, {m: experiments.overhead_of_file(m) for m in fitted}),
        headline=report.headline(*figure3, experiments.best_step(fitted),
                                 experiments.best_step(given)),
        figure3_fitted=report.figure3(figure3[0]),
        figure3_given=report.figure3(figure3[1]),
        batch_sizes=report.sweep("batch", *batch_sizes),
        buckets=report.sweep("bucket", *buckets),
        table3=report.table3(*(experiments.table3(o) for o in case)),
        peaks=report.peaks(experiments.peak_tokens()),
        table1=report.table1(experiments.table1()),
        images=IMAGES)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skrullctl", required=True)
    parser.add_argument("--jobs", required=True)
    parser.add_argument("--lengths", required=True)
    parser.add_argument("--images", type=pathlib.Path)
    parser.add_argument("--batches", type=int)
    options = parser.parse_args()
    try:
        with Skrullctl(options.skrullctl) as skrullctl:
            print(run(Experiments(skrullctl, options.jobs, options.lengths,
                                  options.batches), options.images), end="")
    except (Failed, ValueError) as error:
        print(f"paper_figures: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
