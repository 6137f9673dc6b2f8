"""What the rules, the alerts and the dashboard promise about each other.

  monitoring_files_test.py SOURCE_DIR

Whether their queries return anything is for monitoring_test, which has a daemon.
Standard library of Python only: what is read of YAML is what these files hold.
"""
import importlib.util
import json
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".")
PROMETHEUS = ROOT / "deploy/prometheus"
GRAFANA = ROOT / "deploy/grafana"
SEVERITIES = {"critical", "warning"}
UNITS = {"short", "s", "bytes", "percentunit", "reqps", "ops"}
BUILT_IN_VARIABLES = {"__rate_interval"}


def text_of(path):
    return path.read_text(encoding="utf-8")


def alerts():
    """Name -> the lines of each alert."""
    found = {}
    for block in re.split(r"^ {6}- alert: ", text_of(PROMETHEUS / "alerts.yml"),
                          flags=re.MULTILINE)[1:]:
        name, _, body = block.partition("\n")
        # Up to the next group.
        found[name] = re.split(r"^ {2}- name:", body, flags=re.MULTILINE)[0]
    return found


def records():
    """Name -> the lines of each recording rule."""
    text = text_of(PROMETHEUS / "rules.yml")
    return {block.partition("\n")[0]: block.partition("\n")[2] for block in
            re.split(r"^ {6}- record: ", text, flags=re.MULTILINE)[1:]}


def metrics_in(query):
    """The daemon's metrics that a query reads, also by way of rules."""
    found = set()
    for name in re.findall(r"\b(?:[a-z_]+:)?(?:skrull|process)_[a-z0-9_:]+",
                           query):
        found |= metrics_in(records()[name]) if ":" in name else {name}
    return found


def anchor_of(heading):
    """How Markdown viewers name a heading."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


class Alerts(unittest.TestCase):
    def test_each_says_what_it_must(self):
        self.assertGreater(len(alerts()), 10)
        for name, body in alerts().items():
            with self.subTest(alert=name):
                self.assertRegex(name, r"^Skrull[A-Z][A-Za-z]+$")
                self.assertIn(re.search(r"severity: (\w+)", body).group(1),
                              SEVERITIES)
                for key in ("expr:", "summary:", "description:"):
                    self.assertIn(key, body)

    def test_each_has_its_heading_in_the_runbook(self):
        runbook = text_of(ROOT / "docs/runbook.md")
        section = re.split(r"^## ", runbook.split("\n## Alerts\n")[1],
                           flags=re.MULTILINE)[0]
        headings = re.findall(r"^### (.+)$", section, flags=re.MULTILINE)
        self.assertEqual(sorted(headings), sorted(alerts()))
        for name, body in alerts().items():
            with self.subTest(alert=name):
                self.assertIn("runbook: docs/runbook.md#" + anchor_of(name), body)
                text = section.split(f"### {name}\n")[1].split("### ")[0]
                for part in ("**Meaning.**", "**Check.**", "**Act.**"):
                    self.assertIn(part, text)

    def test_each_fires_in_one_unit_test_and_not_in_another(self):
        tests = text_of(PROMETHEUS / "rules_test.yml").split("\n  - name: ")[1:]
        query = 'expr: count by (alertname) (ALERTS{alertstate="firing"})'
        quiet = [test for test in tests if query in test
                 and "exp_samples: []" in test.split(query)[1]]
        firing = {name for test in tests if query in test for name in
                  re.findall(r"labels: '\{alertname=\"(\w+)\"\}'",
                             test.split(query)[1])}
        self.assertEqual(firing, set(alerts()))
        self.assertEqual(len(quiet), 1)
        # The quiet daemon has a series of every metric that an alert reads: it
        # is not quiet for lack of data.
        for metric in metrics_in(" ".join(alerts().values())):
            with self.subTest(metric=metric):
                self.assertIn(f"series: '{metric}{{", quiet[0])


class Dashboard(unittest.TestCase):
    def setUp(self):
        self.dashboard = json.loads(text_of(GRAFANA / "skrull.json"))
        self.panels = self.dashboard["panels"]

    def test_is_what_the_generator_makes(self):
        spec = importlib.util.spec_from_file_location(
            "generate", GRAFANA / "generate.py")
        generate = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(generate)
        self.assertEqual(self.dashboard, generate.dashboard(),
                         "run deploy/grafana/generate.py")

    def test_has_what_grafana_needs(self):
        for key in ("uid", "title", "schemaVersion", "templating", "time"):
            self.assertIn(key, self.dashboard)
        for panel in self.panels:
            with self.subTest(panel=panel["title"]):
                self.assertIn(panel["type"],
                              {"row", "stat", "timeseries", "heatmap"})
                if panel["type"] == "row":
                    continue
                self.assertTrue(panel["description"].endswith("."))
                self.assertIn(panel["fieldConfig"]["defaults"]["unit"], UNITS)
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")
                refs = [target["refId"] for target in panel["targets"]]
                self.assertTrue(refs)
                self.assertEqual(len(refs), len(set(refs)))
                steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
                values = [step["value"] for step in steps]
                self.assertIsNone(values[0])
                self.assertEqual(values[1:], sorted(values[1:]))

    def test_ids_are_unique_and_titles_within_a_row(self):
        ids = [panel["id"] for panel in self.panels]
        self.assertEqual(len(ids), len(set(ids)))
        titles = [(panel["id"] // 100, panel["title"]) for panel in self.panels]
        self.assertEqual(len(titles), len(set(titles)))

    def test_panels_do_not_overlap(self):
        taken = {}
        for panel in self.panels:
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24)
            for x in range(at["x"], at["x"] + at["w"]):
                for y in range(at["y"], at["y"] + at["h"]):
                    self.assertNotIn((x, y), taken,
                                     f"{panel['title']} over {taken.get((x, y))}")
                    taken[x, y] = panel["title"]

    def test_variables_are_defined_and_used(self):
        defined = {variable["name"]
                   for variable in self.dashboard["templating"]["list"]}
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(self.dashboard)))
        self.assertEqual(used - BUILT_IN_VARIABLES - {"__all"}, defined)


if __name__ == "__main__":
    unittest.main()
