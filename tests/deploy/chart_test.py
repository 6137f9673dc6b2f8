#!/usr/bin/env python3
"""The chart renders objects that fit each other, and refuses what cannot work.

  chart_test.py ROOT

Runs with PyYAML and jsonschema; skipped (77) where they are missing.
"""
import pathlib
import re
import sys
import unittest

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import chart
import manifests

ROOT = pathlib.Path(sys.argv.pop(1))
CHART = ROOT / "deploy/helm/skrull"

REPLICAS = {
    "replicas": 3,
    "store": {"etcd": "etcd://e0:2379,e1:2379/p", "etcdSecret": "etcd-tls"},
    "drainSeconds": 45,
    "config": {"max_lengths": 1048576, "max_wait_seconds": 0.5, "reflection": "off"},
    "security": {"tlsSecret": "tls", "clientCertificates": "required",
                 "authSecret": "tokens"},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podLabels": {"team": "training"},
    "networkPolicy": {"metrics": []},
}
CASES = {"one": {}, "replicas": REPLICAS,
         "bare": {"networkPolicy": {"enabled": False}, "resources": {}}}


def objects(over):
    """{(kind, name): object} of a release called r."""
    found = {}
    for text in chart.render(CHART, "r", over).values():
        for one in yaml.safe_load_all(text):
            found[one["kind"], one["metadata"]["name"]] = one
    return found


def workload(found):
    (one,) = [o for (kind, _), o in found.items() if kind in ("StatefulSet", "Deployment")]
    return one


def config(found):
    """The options of the daemon, {name: value}."""
    text = found["ConfigMap", "r"]["data"]["skrulld.conf"]
    pairs = [line.split(" = ", 1) for line in text.splitlines()]
    assert len(dict(pairs)) == len(pairs), "an option twice"
    return dict(pairs)


class Rendering(unittest.TestCase):
    def test_kubernetes_folder_is_what_the_chart_renders(self):
        self.assertEqual(0, manifests.main(ROOT, write=False))

    def test_pods_are_found_by_all_that_select_them(self):
        for name, over in CASES.items():
            with self.subTest(name):
                found = objects(over)
                labels = workload(found)["spec"]["template"]["metadata"]["labels"]
                selectors = [workload(found)["spec"]["selector"]["matchLabels"]]
                for (kind, _), one in found.items():
                    spec = one.get("spec", {})
                    if kind == "Service":
                        selectors.append(spec["selector"])
                    elif kind == "PodDisruptionBudget":
                        selectors.append(spec["selector"]["matchLabels"])
                    elif kind == "NetworkPolicy":
                        selectors.append(spec["podSelector"]["matchLabels"])
                for selector in selectors:
                    self.assertLessEqual(selector.items(), labels.items())
                    self.assertIn(("app.kubernetes.io/instance", "r"), selector.items())

    def test_service_monitor_finds_the_metrics_of_every_pod(self):
        found = objects(REPLICAS)
        monitor = found["ServiceMonitor", "r"]
        services = [one for (kind, _), one in found.items() if kind == "Service" and
                    monitor["spec"]["selector"]["matchLabels"].items() <=
                    one["metadata"]["labels"].items()]
        self.assertEqual(["r-headless"], [one["metadata"]["name"] for one in services])
        ports = [port["name"] for port in services[0]["spec"]["ports"]]
        self.assertIn(monitor["spec"]["endpoints"][0]["port"], ports)
        self.assertEqual("None", services[0]["spec"]["clusterIP"])
        # "job" of rules and dashboards, and of deploy/prometheus/scrape.yml.
        label = monitor["spec"]["jobLabel"]
        scrape = (ROOT / "deploy/prometheus/scrape.yml").read_text(encoding="utf-8")
        self.assertEqual(services[0]["metadata"]["labels"][label],
                         yaml.safe_load(scrape)["scrape_configs"][0]["job_name"])
        self.assertEqual("prometheus", monitor["metadata"]["labels"]["release"])

    def test_rules_are_those_of_the_prometheus_folder(self):
        found = objects({"prometheusRule": {"enabled": True, "labels": {"role": "x"}}})
        for name in ("rules", "alerts"):
            text = (ROOT / f"deploy/prometheus/{name}.yml").read_text(encoding="utf-8")
            rule = found["PrometheusRule", f"r-{name}"]
            self.assertEqual(yaml.safe_load(text), rule["spec"])
            self.assertEqual("x", rule["metadata"]["labels"]["role"])

    def test_ports_are_those_that_the_daemon_listens_on(self):
        for name, over in CASES.items():
            with self.subTest(name):
                found = objects(over)
                (pod,) = workload(found)["spec"]["template"]["spec"]["containers"]
                ports = {port["name"]: port["containerPort"] for port in pod["ports"]}
                listens = config(found)
                self.assertEqual(f"0.0.0.0:{ports['grpc']}", listens["listen_address"])
                self.assertEqual(f"0.0.0.0:{ports['metrics']}", listens["metrics_address"])
                used = [pod[probe]["httpGet"]["port"] for probe in
                        ("startupProbe", "livenessProbe", "readinessProbe")]
                for (kind, _), one in found.items():
                    if kind == "Service":
                        used += [port["targetPort"] for port in one["spec"]["ports"]]
                    elif kind == "NetworkPolicy":
                        used += [port["port"] for rule in one["spec"]["ingress"] or []
                                 for port in rule["ports"]]
                self.assertLessEqual(set(used), set(ports))

    def test_what_is_mounted_is_there_and_holds_the_files_that_options_name(self):
        for name, over in CASES.items():
            with self.subTest(name):
                found = objects(over)
                one = workload(found)
                spec = one["spec"]["template"]["spec"]
                (pod,) = spec["containers"]
                volumes = {v["name"] for v in spec["volumes"]}
                volumes |= {v["metadata"]["name"]
                            for v in one["spec"].get("volumeClaimTemplates", [])}
                mounts = {m["name"]: m["mountPath"] for m in pod["volumeMounts"]}
                self.assertEqual(volumes, set(mounts))
                folders = tuple(f"{path}/" for path in mounts.values())
                files = [value.removeprefix("sqlite:")
                         for option, value in config(found).items()
                         if option.endswith("_file") or value.startswith("sqlite:")]
                for file in [*files, pod["command"][2]]:
                    self.assertTrue(file.startswith(folders), file)

    def test_pods_have_no_privilege(self):
        for name, over in CASES.items():
            with self.subTest(name):
                spec = workload(objects(over))["spec"]["template"]["spec"]
                self.assertFalse(spec["automountServiceAccountToken"])
                self.assertTrue(spec["securityContext"]["runAsNonRoot"])
                self.assertEqual("RuntimeDefault",
                                 spec["securityContext"]["seccompProfile"]["type"])
                self.assertEqual({"allowPrivilegeEscalation": False,
                                  "readOnlyRootFilesystem": True,
                                  "capabilities": {"drop": ["ALL"]}},
                                 spec["containers"][0]["securityContext"])

    def test_the_image_s_user_is_the_pod_s(self):
        text = (ROOT / "deploy/docker/Dockerfile").read_text(encoding="utf-8")
        (user,) = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
        context = workload(objects({}))["spec"]["template"]["spec"]["securityContext"]
        self.assertEqual(int(user), context["runAsUser"])
        self.assertEqual(int(user), context["fsGroup"])

    def test_a_pod_may_drain(self):
        for over in ({}, REPLICAS):
            found = objects(over)
            spec = workload(found)["spec"]["template"]["spec"]
            self.assertGreater(spec["terminationGracePeriodSeconds"],
                               int(config(found)["drain_seconds"]))

    def test_other_options_make_other_pods(self):
        def mark(over):
            found = objects(over)
            return workload(found)["spec"]["template"]["metadata"]["annotations"]

        self.assertEqual(mark({}), mark({"service": {"port": 1}}))
        self.assertNotEqual(mark({}), mark({"config": {"planning_threads": 8}}))

    def test_options_exist_and_numbers_are_whole(self):
        text = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
        for name, over in CASES.items():
            with self.subTest(name):
                for option in config(objects(over)):
                    self.assertTrue(f"### `{option}`\n" in text, option)
        self.assertEqual("1048576", config(objects(REPLICAS))["max_lengths"])
        self.assertEqual("0.5", config(objects(REPLICAS))["max_wait_seconds"])

    def test_the_version_is_the_program_s(self):
        text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
        (version,) = re.findall(r"^project\(skrull VERSION (\S+)", text, re.MULTILINE)
        values = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
        self.assertEqual(version, values["version"])
        self.assertEqual(version, values["appVersion"])


class Shapes(unittest.TestCase):
    def test_one_daemon_owns_a_volume_and_replicas_share_etcd(self):
        one, many = objects({}), objects(REPLICAS)
        self.assertIn(("StatefulSet", "r"), one)
        self.assertNotIn(("PodDisruptionBudget", "r"), one)
        self.assertEqual([], one["NetworkPolicy", "r"]["spec"]["egress"])
        self.assertIn(workload(one)["spec"]["serviceName"],
                      [name for kind, name in one if kind == "Service"])
        self.assertEqual(3, many["Deployment", "r"]["spec"]["replicas"])
        self.assertEqual(1, many["PodDisruptionBudget", "r"]["spec"]["maxUnavailable"])
        self.assertEqual("etcd://e0:2379,e1:2379/p", config(many)["store"])
        self.assertNotIn("allow_plaintext", config(many))

    def test_optional_objects_are_left_out(self):
        kinds = {kind for kind, _ in objects(CASES["bare"])}
        self.assertEqual({"ConfigMap", "Service", "StatefulSet"}, kinds)

    def test_what_cannot_work_is_refused(self):
        for over, message in (
                ({"replicas": 2}, "replicas above 1 need store.etcd"),
                ({"security": {"clientCertificates": "required"}}, "needs security.tls"),
                ({"store": {"etcdSecret": "s"}}, "needs store.etcd"),
                ({"security": {"authSecret": "a"}}, "tokens never go in plain text")):
            with self.assertRaisesRegex(chart.TemplateError, message):
                objects(over)

    def test_values_of_another_form_are_refused(self):
        for over in ({"replica": 2}, {"replicas": 0}, {"replicas": "2"},
                     {"store": {"etcd": "http://e0"}}, {"config": {"store": "memory"}},
                     {"config": {"Log": "x"}}, {"config": {"log_level": "a\nb"}},
                     {"drainSeconds": 0}, {"security": {"clientCertificates": "yes"}}):
            with self.assertRaises(jsonschema.ValidationError, msg=str(over)):
                objects(over)


class Renderer(unittest.TestCase):
    """That the test's own renderer stops at what it does not know."""

    def render(self, text):
        renderer = chart.Renderer(".")
        nodes = renderer.load(text)
        return renderer.render(nodes, {"a": {"b": "x"}, "n": 2}, {"$": {}})

    def test_trims_as_go_does(self):
        self.assertEqual("1x2", self.render("1 \n{{- .a.b -}}\n 2"))
        self.assertEqual("1\n 2", self.render("1{{/* no */}}\n 2"))
        self.assertEqual("yes", self.render("{{ if and .a (gt .n 1) }}yes{{ end }}"))

    def test_refuses_what_it_does_not_know(self):
        for text in ("{{ upper .a.b }}", "{{ .c }}", "{{ if .a }}", "{{ .a.b 1 }}",
                     "{{ if .a }}{{ else if .n }}{{ end }}", "{{ .a ! }}"):
            with self.assertRaises(chart.TemplateError, msg=text):
                self.render(text)


if __name__ == "__main__":
    unittest.main()
