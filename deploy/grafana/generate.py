#!/usr/bin/env python3
"""Make skrull.json, the Grafana dashboard, from the list of panels below.

  generate.py [--check]    # writes it, or exits 1 if it is not up to date

A dashboard is one JSON file in which every panel repeats the same forty lines;
here a panel is what is its own: title, what it tells, queries, unit. Ids and
positions follow from the order, so that a new panel belongs at the end of its
row if links to the others are to stay. Standard library of Python only.
"""
import json
import pathlib
import sys

OUTPUT = pathlib.Path(__file__).with_name("skrull.json")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
ROW_IDS = 100  # ids of one row's panels begin at a multiple of this

# Selectors. A daemon's own label `job` arrives as exported_job, since `job` is
# the name of the scrape.
INSTANCE = 'instance=~"$instance"'
JOB = f'{INSTANCE}, exported_job=~"$job"'
METHOD = f'{INSTANCE}, method=~"$method"'
PHASE = f'{INSTANCE}, phase=~"$phase"'
POLICY = f'{INSTANCE}, policy=~"$policy"'


def panel(kind, title, description, queries, unit="short", width=8, height=8,
          limits=(), **options):
    """A panel. `queries` are (expression, legend); `limits` are the values from
    which it turns yellow and red."""
    colors = ["green", "yellow", "red"]
    steps = [{"color": color, "value": value}
             for color, value in zip(colors, [None, *limits])]
    if kind == "timeseries":
        defaults = {"custom": {"drawStyle": "line", "fillOpacity": 10,
                               "showPoints": "never", "spanNulls": False},
                    "min": 0}
        if limits:
            defaults["custom"]["thresholdsStyle"] = {"mode": "line"}
        view = {"legend": {"displayMode": "list", "placement": "bottom"},
                "tooltip": {"mode": "multi", "sort": "desc"}}
    elif kind == "stat":
        defaults = {}
        view = {"colorMode": "value", "graphMode": "area",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "",
                                  "values": False},
                "textMode": "auto"}
    else:
        defaults = {}
        view = {"calculate": False, "color": {"mode": "scheme",
                                              "scheme": "Oranges"},
                "yAxis": {"unit": unit}}
    view.update(options)
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "gridPos": {"w": width, "h": height},
        "fieldConfig": {
            "defaults": {**defaults, "unit": unit,
                         "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": []},
        "options": view,
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": DATASOURCE,
             "expr": expression, "legendFormat": legend, "range": True,
             "format": "heatmap" if kind == "heatmap" else "time_series"}
            for index, (expression, legend) in enumerate(queries)],
    }


def stat(title, description, query, unit="short", limits=(), legend="",
         **options):
    return panel("stat", title, description, [(query, legend)], unit,
                 width=4, height=4, limits=limits, **options)


def graph(title, description, queries, unit="short", **options):
    return panel("timeseries", title, description, queries, unit, **options)


def quantiles(series, labels, legend):
    """Median and 99th percentile of what rules.yml records."""
    return [(f"{series}:p50_5m{{{labels}}}", f"{legend} median"),
            (f"{series}:p99_5m{{{labels}}}", f"{legend} p99")]


def histogram_quantile(quantile, metric, window="$__rate_interval"):
    return (f"histogram_quantile({quantile}, sum by (instance, le) "
            f"(rate({metric}_bucket{{{INSTANCE}}}[{window}])))")


OVERVIEW = [
    stat("Daemons", "Daemons that answer Prometheus.",
         f'sum(up{{job="skrulld", {INSTANCE}}})'),
    stat("Alerts", "Alerts of deploy/prometheus/alerts.yml that fire now.",
         'count(ALERTS{alertname=~"Skrull.+", alertstate="firing"}) or vector(0)',
         limits=(1, 3)),
    stat("Jobs", "Registered jobs; daemons with one store share theirs.",
         f"max(skrull_jobs{{{INSTANCE}}})"),
    stat("Plans per second", "Plans made, over five minutes.",
         f"sum(instance_policy:skrull_plans:rate5m{{{INSTANCE}}})"),
    stat("Refused", "Share of requests that were refused, over five minutes; "
         "callers that went away and daemons that stop do not count.",
         f"max(instance:skrull_refusals:ratio_rate5m{{{INSTANCE}}})",
         unit="percentunit", limits=(0.01, 0.05)),
    stat("Version", "What runs, and for how long; several versions side by side "
         "are an upgrade that has not ended.",
         f"time() - process_start_time_seconds{{{INSTANCE}}} "
         f"* on (instance) group_left (version) skrull_build_info{{{INSTANCE}}}",
         unit="s", legend="{{version}} {{instance}}", textMode="value_and_name",
         graphMode="none"),
    graph("Requests by method", "Calls answered a second; each batch of a "
          "StreamPlans call counts.",
          [(f"instance_method:skrull_rpcs:rate5m{{{METHOD}}}",
            "{{instance}} {{method}}")], unit="reqps"),
    graph("Plans by policy", "Plans made a second.",
          [(f"instance_policy:skrull_plans:rate5m{{{POLICY}}}",
            "{{instance}} {{policy}}")], unit="ops"),
    graph("Refusals by reason", "Requests refused a second. docs/errors.md says "
          "what each reason means and who can act.",
          [(f"instance_reason:skrull_refusals:rate5m{{{INSTANCE}}} > 0",
            "{{instance}} {{reason}}")], unit="reqps"),
]

QUALITY = [
    graph("Gap to the lower bound", "Predicted time over what no plan can beat, "
          "minus 1. It shifts when the data or the bucket changes.",
          [(f"instance:skrull_plan_gap_ratio:avg5m{{{INSTANCE}}}",
            "{{instance}} mean"),
           (histogram_quantile(0.9, "skrull_plan_gap_ratio"),
            "{{instance}} p90")], unit="percentunit"),
    graph("Imbalance", "Busiest rank's compute time, and slowest DP rank's time, "
          "over the mean of all, minus 1.",
          [(f"instance:skrull_plan_imbalance_ratio:avg5m{{{INSTANCE}}}",
            "{{instance}} ranks"),
           (f"instance:skrull_plan_dp_imbalance_ratio:avg5m{{{INSTANCE}}}",
            "{{instance}} DP ranks")], unit="percentunit"),
    graph("Tokens in sharded sequences", "Share of tokens whose keys and values "
          "are exchanged. Near 1, a larger bucket would keep more local.",
          [(f"instance:skrull_sharded_tokens:ratio_rate5m{{{INSTANCE}}}",
            "{{instance}} of all tokens"),
           (histogram_quantile(0.9, "skrull_plan_sharded_ratio"),
            "{{instance}} p90 of plans")], unit="percentunit"),
    graph("Predicted tokens per second and rank", "What a rank trains on in a "
          "second of predicted time; no padding counts.",
          [(f"instance:skrull_rank_tokens_per_second:rate5m{{{INSTANCE}}}",
            "{{instance}}")]),
    graph("Tokens planned per second", "Tokens placed by the plans made.",
          [(f"instance:skrull_planned_tokens:rate5m{{{INSTANCE}}}",
            "{{instance}}")]),
    graph("Roll-backs per plan", "How often the heuristic took a sequence back "
          "because it did not fit: many mean a bucket that is nearly too small.",
          [(f"sum by (instance) (rate(skrull_roll_backs_total{{{INSTANCE}}}"
            "[$__rate_interval])) / sum by (instance) "
            f"(rate(skrull_plans_total{{{INSTANCE}}}[$__rate_interval]))",
            "{{instance}}")]),
]

MEMORY = [
    graph("Step reports by outcome", "What ranks reported, a second.",
          [(f"instance_outcome:skrull_step_reports:rate5m{{{INSTANCE}}} > 0",
            "{{instance}} {{outcome}}")], unit="ops"),
    graph("Out of memory", "Share of step reports that say that a rank ran out "
          "of device memory, over an hour.",
          [(f"instance:skrull_out_of_memory:ratio_rate1h{{{INSTANCE}}}",
            "{{instance}}")], unit="percentunit", limits=(0.001, 0.01)),
    graph("The daemon's memory", "In RAM, and what committed plans take of it.",
          [(f"process_resident_memory_bytes{{{INSTANCE}}}",
            "{{instance}} resident"),
           (f"skrull_cached_plan_bytes{{{INSTANCE}}}", "{{instance}} plans"),
           (f"skrull_cached_plan_bytes_limit{{{INSTANCE}}}",
            "{{instance}} limit of plans")], unit="bytes"),
]

LATENCY = [
    graph("Calls", "From a call to its answer, waiting included: GetRankPlan "
          "and Rendezvous wait for other ranks.",
          quantiles("instance_method:skrull_rpc_seconds", METHOD,
                    "{{instance}} {{method}}"), unit="s"),
    graph("Planning by phase", "What a batch takes in each phase of its "
          "planning.",
          quantiles("instance_phase:skrull_planning_seconds", PHASE,
                    "{{instance}} {{phase}}"), unit="s"),
    graph("Queue", "How long a batch waits for a planning thread.",
          quantiles("instance:skrull_queue_wait_seconds", INSTANCE,
                    "{{instance}}"), unit="s"),
    graph("Store", "What an operation of the store takes: commit_plan is on the "
          "way of every plan.",
          quantiles("instance_operation:skrull_store_seconds", INSTANCE,
                    "{{instance}} {{operation}}"), unit="s"),
    panel("heatmap", "Planning, all plans", "How long plans took to make: a "
          "second band is a second kind of job.",
          [("sum by (le) (increase(skrull_planning_seconds_bucket"
            f'{{{INSTANCE}, phase="plan"}}[$__rate_interval]))', "{{le}}")],
          unit="s", width=16),
]

SATURATION = [
    graph("Planning threads", "Share of the planning threads' time that they "
          "work.",
          [(f"instance:skrull_planning_threads:busy_ratio5m{{{INSTANCE}}}",
            "{{instance}}")], unit="percentunit", limits=(0.7, 0.9)),
    graph("Planning queue", "Batches that wait for a planning thread, and the "
          "number from which they are refused.",
          [(f"skrull_planning_queue_depth{{{INSTANCE}}}", "{{instance}} waiting"),
           (f"skrull_planning_queue_limit{{{INSTANCE}}}", "{{instance}} limit")]),
    graph("Waiting ranks", "Calls that wait for a plan or for other ranks, and "
          "the number from which they are refused.",
          [(f"skrull_rank_waits{{{INSTANCE}}}", "{{instance}} for a plan"),
           (f"skrull_rendezvous_waits{{{INSTANCE}}}", "{{instance}} for ranks"),
           (f"skrull_waits_limit{{{INSTANCE}}}", "{{instance}} limit")]),
    graph("Calls in flight", "Calls that are not answered yet.",
          [(f"skrull_rpcs_in_flight{{{METHOD}}}", "{{instance}} {{method}}")]),
    graph("CPU", "Cores that the daemon uses.",
          [(f"rate(process_cpu_seconds_total{{{INSTANCE}}}[$__rate_interval])",
            "{{instance}}")]),
    graph("Open files and connections", "Share of those it may have.",
          [(f"process_open_fds{{{INSTANCE}}} / process_max_fds{{{INSTANCE}}}",
            "{{instance}}")], unit="percentunit", limits=(0.6, 0.8)),
    graph("Work saved and dropped", "Requests answered by the planning of an "
          "identical one, and requests dropped because nobody waited any more.",
          [(f"rate(skrull_coalesced_requests_total{{{INSTANCE}}}"
            "[$__rate_interval])", "{{instance}} coalesced"),
           (f"rate(skrull_dropped_requests_total{{{INSTANCE}}}"
            "[$__rate_interval])", "{{instance}} dropped")], unit="reqps"),
    graph("Failures of the store", "Operations that failed by the store's own "
          "fault, a second.",
          [("sum by (instance) (rate(skrull_store_operations_total"
            f'{{{INSTANCE}, outcome="failed"}}[$__rate_interval]))',
            "{{instance}}")], unit="ops", limits=(0.001, 0.1)),
]

CALIBRATION = [
    graph("Predicted over measured", "Mean over an hour's steps, and the range "
          "that four of five are in. 1 is right; below, steps take longer than "
          "predicted.",
          [(f"instance:skrull_step_time_ratio:avg1h{{{INSTANCE}}}",
            "{{instance}} mean"),
           (histogram_quantile(0.1, "skrull_step_time_ratio", "1h"),
            "{{instance}} p10"),
           (histogram_quantile(0.9, "skrull_step_time_ratio", "1h"),
            "{{instance}} p90")]),
    graph("Error of predictions", "Mean of |predicted / measured - 1| over an "
          "hour.",
          [(f"instance:skrull_step_time_error_ratio:avg1h{{{INSTANCE}}}",
            "{{instance}}")], unit="percentunit", limits=(0.05, 0.2)),
    graph("Epochs by cause", "Changes of what jobs are believed to cost or hold, "
          "in an hour.",
          [(f"3600 * instance_cause:skrull_calibration_epochs:rate1h"
            f"{{{INSTANCE}}} > 0", "{{instance}} {{cause}}")]),
    graph("Attempts after running out of memory", "Steps that were planned anew, "
          "and those that no plan fits, in an hour.",
          [(f"increase(skrull_attempts_total{{{INSTANCE}}}[1h])",
            "{{instance}} planned anew"),
           (f"increase(skrull_attempts_exhausted_total{{{INSTANCE}}}[1h])",
            "{{instance}} given up")], limits=(1, 10)),
]

JOBS = [
    graph("Predicted step time", "Of each job's latest plan.",
          [(f"skrull_job_predicted_seconds{{{JOB}}}", "{{exported_job}}")],
          unit="s"),
    graph("Gap", "Of each job's latest plan to its lower bound.",
          [(f"skrull_job_gap_ratio{{{JOB}}}", "{{exported_job}}")],
          unit="percentunit"),
    graph("Plans and reports", "A second.",
          [(f"rate(skrull_job_plans_total{{{JOB}}}[$__rate_interval])",
            "{{exported_job}} plans"),
           (f"rate(skrull_job_step_reports_total{{{JOB}}}[$__rate_interval])",
            "{{exported_job}} reports")], unit="ops"),
    graph("Calibration epoch", "A step is a change of what the job is believed "
          "to cost or to hold.",
          [(f"skrull_job_calibration_epoch{{{JOB}}}", "{{exported_job}}")]),
    graph("Bucket", "Tokens a rank may hold in the job's latest plan. It falls "
          "when a rank runs out of memory.",
          [(f"skrull_job_bucket_tokens{{{JOB}}}", "{{exported_job}}")]),
    graph("Out of memory", "Reports of ranks that ran out of memory, in an hour.",
          [(f"increase(skrull_job_out_of_memory_reports_total{{{JOB}}}[1h])",
            "{{exported_job}}")], limits=(1, 10)),
]

ROWS = [("Overview", OVERVIEW), ("Plan quality", QUALITY),
        ("Memory and out of memory", MEMORY), ("Latency", LATENCY),
        ("Saturation", SATURATION), ("Calibration", CALIBRATION),
        ("Jobs, with the option job_metrics", JOBS)]


def variable(name, label, metric, values_of=None):
    """A choice among the values of a label, all by default."""
    query = f"label_values({metric}, {values_of or name})"
    return {"name": name, "label": label, "type": "query",
            "datasource": DATASOURCE, "definition": query,
            "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1,
            "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}


VARIABLES = [
    {"name": "datasource", "label": "Prometheus", "type": "datasource",
     "query": "prometheus", "refresh": 1, "multi": False, "includeAll": False,
     "current": {}},
    variable("instance", "Daemon", "skrull_build_info"),
    variable("policy", "Policy", "skrull_plans_total"),
    variable("phase", "Phase", "skrull_planning_seconds_count"),
    variable("method", "Method", "skrull_rpc_seconds_count"),
    variable("job", "Job", f"skrull_job_plans_total{{{INSTANCE}}}",
             "exported_job"),
]


def place(rows):
    """All panels with ids and positions: each row from left to right."""
    panels, top = [], 0
    for number, (title, members) in enumerate(rows):
        if not members:
            continue
        first_id = ROW_IDS * (number + 1)
        panels.append({"id": first_id, "type": "row", "title": title,
                       "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1}})
        top, left, tallest = top + 1, 0, 0
        for index, member in enumerate(members):
            size = member["gridPos"]
            if left + size["w"] > COLUMNS or (tallest and tallest != size["h"]):
                top, left, tallest = top + tallest, 0, 0
            position = {"x": left, "y": top, **size}
            panels.append({"id": first_id + index + 1, **member,
                           "gridPos": position})
            left += size["w"]
            tallest = size["h"]
        top += tallest
    return panels


def dashboard():
    return {
        "uid": "skrull",
        "title": "skrull",
        "description": "skrulld, the planning daemon: docs/monitoring.md.",
        "tags": ["skrull"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": [{
            "name": "Restarts", "enable": True, "iconColor": "red",
            "datasource": DATASOURCE,
            "expr": f"changes(process_start_time_seconds{{{INSTANCE}}}[1m]) > 0",
            "titleFormat": "{{instance}} restarted"}]},
        "templating": {"list": VARIABLES},
        "links": [],
        "panels": place(ROWS),
    }


def main():
    text = json.dumps(dashboard(), indent=1) + "\n"
    if sys.argv[1:] == ["--check"]:
        if OUTPUT.read_text(encoding="utf-8") != text:
            sys.exit(f"{OUTPUT} is not what {sys.argv[0]} makes: run it")
    elif sys.argv[1:]:
        sys.exit("usage: generate.py [--check]")
    else:
        OUTPUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
