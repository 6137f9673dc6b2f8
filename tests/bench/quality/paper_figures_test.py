#!/usr/bin/env python3
"""Tests of the paper's figures, on two batches of each list.

  paper_figures_test.py SKRULLCTL JOBS_DIR LENGTHS_DIR
"""

import pathlib
import re
import sys
import tempfile
import unittest

import experiments
import paper_figures
import published
import splice
from skrullctl import Failed, Skrullctl, with_fields, without_roll_back

try:
    import matplotlib  # noqa: F401
    HAVE_MATPLOTLIB = True
except ImportError:
    HAVE_MATPLOTLIB = False

SKRULLCTL, JOBS, LENGTHS = None, None, None

# One DP rank of one CP rank; a token costs next to nothing beside the
# overhead of a micro-batch, one second.
OVERHEAD_ONLY = """
model { hidden_size: 64 layer_count: 1 kv_head_count: 1 head_dim: 64 }
parallelism { dp_size: 1 cp_size: 1 }
memory { bucket_size_tokens: 100 }
cost { seconds_per_flop: 1e-30 seconds_per_micro_batch: 1 }
"""


class WholeBatches(unittest.TestCase):
    def test_leaves_out_the_rest_and_what_is_too_long(self):
        lengths = [1, 2, 3, 9, 4, 5, 6]  # the last batch is short
        self.assertEqual(experiments.whole_batches(lengths, 2, 8),
                         ([1, 2, 4, 5], 1))
        self.assertEqual(experiments.whole_batches(lengths, 2, 9),
                         ([1, 2, 3, 9, 4, 5], 0))
        self.assertEqual(experiments.whole_batches(lengths, 2, 8, most=1),
                         ([1, 2], 0))


class Fit(unittest.TestCase):
    def test_finds_where_a_rising_function_is_the_target(self):
        self.assertEqual(experiments.fit(lambda x: 1 + 4 * x, 2, 1), 0.25)
        self.assertEqual(experiments.fit(lambda x: 1 + x * x, 1.25, 2), 0.5)

    def test_refuses_a_target_out_of_reach(self):
        for target in (0.5, 5.5):
            with self.assertRaises(ValueError):
                experiments.fit(lambda x: 1 + 4 * x, target, 1)


class PercentUnder(unittest.TestCase):
    def test_a_length_is_not_under_itself(self):
        self.assertEqual(
            experiments.percent_under([1024, 1023, 8191, 5, 200000]),
            [40, 60, 80, 80, 80])


class JobText(unittest.TestCase):
    def test_changes_one_field(self):
        self.assertEqual(with_fields("a: 1 b { ba: 2 }", a=7),
                         "a: 7 b { ba: 2 }")

    def test_refuses_a_field_that_is_not_there_once(self):
        for text in ("b: 1", "a: 1 x { a: 2 }"):
            with self.assertRaises(ValueError):
                with_fields(text, a=7)

    def test_refuses_to_add_a_second_heuristic_section(self):
        with self.assertRaises(ValueError):
            without_roll_back("heuristic { roll_back: true }")


class Splice(unittest.TestCase):
    def page(self, between):
        return f"before\n\n{splice.BEGIN}\n{between}{splice.END}\n\nafter\n"

    def test_replaces_what_is_between_the_markers(self):
        for old in ("", "\nold\n\n", "old\n"):
            self.assertEqual(splice.splice(self.page(old), "new\ntext\n"),
                             self.page("\nnew\ntext\n\n"))

    def test_refuses_other_pages(self):
        for page in ("", splice.BEGIN, f"{splice.END}\n{splice.BEGIN}",
                     self.page(splice.BEGIN + "\n")):
            with self.assertRaises(ValueError):
                splice.splice(page, "new")


class Figures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.skrullctl = Skrullctl(SKRULLCTL)
        cls.experiments = experiments.Experiments(cls.skrullctl, JOBS, LENGTHS,
                                                  most_batches=2)

    @classmethod
    def tearDownClass(cls):
        cls.skrullctl.__exit__()

    def test_static_cp_pays_an_overhead_a_sequence(self):
        seconds = self.skrullctl.mean_seconds(
            OVERHEAD_ONLY, [10] * 16, 8, ("POLICY_STATIC_CP", "POLICY_SKRULL"))
        self.assertAlmostEqual(seconds["POLICY_STATIC_CP"], 8)
        self.assertAlmostEqual(seconds["POLICY_SKRULL"], 1)

    def test_a_refused_batch_is_an_error(self):
        for call in (lambda: self.skrullctl.mean_seconds(
                         OVERHEAD_ONLY, [1, 101], 1, ("POLICY_SKRULL",)),
                     lambda: self.skrullctl.plans(
                         OVERHEAD_ONLY, [1, 101], 1, "POLICY_SKRULL")):
            with self.assertRaises(Failed):
                call()

    def test_a_bad_job_is_an_error(self):
        with self.assertRaises(Failed):
            self.skrullctl.compare("nonsense", [1], 1, ("POLICY_SKRULL",))

    def test_the_speed_up_rises_with_the_overhead(self):
        for model in published.MODELS:
            values = [self.experiments.mean_speed_up(model, overhead)
                      for overhead in (0, 0.005, 0.01, 0.02, 0.04, 0.08, 1)]
            self.assertEqual(values, sorted(set(values)))

    def test_the_fit_gives_the_published_means(self):
        fitted = self.experiments.fit_overhead()
        for model, target in published.MEAN_OF_MODEL.items():
            speed_up = self.experiments.mean_speed_up(model, fitted[model])
            self.assertAlmostEqual(speed_up / target, 1, delta=0.005)

    def test_the_scope_of_a_step_is_that_of_its_name(self):
        speed_ups = self.experiments.figure3({"0.5B": None, "7B": None})
        self.assertEqual(set(speed_ups), set(published.SETTINGS))
        for values in speed_ups.values():
            self.assertGreaterEqual(values["optimized, GROUP"],
                                    values[experiments.SKRULL])
        # On two DP ranks of 16, blocks across them gain much.
        values = speed_ups[published.SETTINGS[-1]]
        self.assertGreater(values["optimized, POOL"],
                           1.1 * values["optimized, GROUP"])

    def test_without_roll_back_every_batch_runs_out_of_memory(self):
        for policy, outcome in self.experiments.table3(None).items():
            speed_up, planned, out_of_memory = outcome[True]
            self.assertGreater(speed_up, 1, policy)
            self.assertEqual((planned, out_of_memory), (2, 0), policy)
            self.assertEqual(outcome[False], (None, 0, 2), policy)

    def test_the_peak_of_static_cp_is_its_longest_sequence(self):
        peaks = self.experiments.peak_tokens(steps=2)
        size = published.CASE_BATCH_SIZE
        lengths = self.experiments.lists[published.CASE_DATASET]
        for step, (least, most) in enumerate(peaks["POLICY_STATIC_CP"]):
            longest = max(lengths[step * size:(step + 1) * size])
            self.assertEqual((least, most), (longest // 8, -(-longest // 8)))
        for least, most in peaks["POLICY_SKRULL"]:
            self.assertLessEqual(least, most)
            self.assertLessEqual(most, 26624)

    def test_the_page_has_every_table(self):
        page = paper_figures.run(self.experiments)
        self.assertEqual(page.count("OOM on 2 of 2 batches"), 4)
        self.assertEqual(page.count("(fitted)"), 3)
        for line in page.splitlines():
            if line.startswith("|") and "---" in line:
                columns = line.count("|")
            elif not line.startswith("|"):
                columns = None
            elif columns:
                self.assertEqual(line.count("|"), columns, line)

    # Plots are drawn by `./dev bench --figures` alone, which installs it.
    @unittest.skipUnless(HAVE_MATPLOTLIB, "matplotlib is not installed")
    def test_the_same_data_makes_the_same_pictures(self):
        with tempfile.TemporaryDirectory() as folder:
            pictures = []
            for name in ("first", "second"):
                images = pathlib.Path(folder) / name
                page = paper_figures.run(self.experiments, images)
                pictures.append({f.name: f.read_text(encoding="utf-8")
                                 for f in images.iterdir()})
            self.assertEqual(*pictures)
            self.assertEqual(
                {f"{paper_figures.IMAGES}/{name}" for name in pictures[0]},
                set(re.findall(r"\]\((\S+\.svg)\)", page)))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    SKRULLCTL, JOBS, LENGTHS = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
