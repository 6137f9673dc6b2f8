"""The experiments as Markdown: ours beside what the paper prints."""

import published
from experiments import SKRULL, STEPS

POLICY_NAMES = {"POLICY_STATIC_CP": "static CP",
                "POLICY_ROUND_ROBIN": "round-robin",
                "POLICY_SKRULL": "Skrull", "POLICY_OPTIMIZED": "optimized"}


def table(header, rows, text_columns=1):
    """Columns after the first `text_columns` are aligned right."""
    rule = ["---"] * text_columns + ["--:"] * (len(header) - text_columns)
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])


def times(value):
    return f"{value:.2f}x"


def milliseconds(seconds):
    return f"{1000 * seconds:.3g} ms"


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def overheads(fitted, given):
    rows = [[model, times(published.MEAN_OF_MODEL[model]),
             milliseconds(fitted[model]), milliseconds(given[model])]
            for model in published.MODELS]
    return table(["model", "published mean", "fitted", "job file"], rows)


def figure3(speed_ups):
    """Speed-ups over static CP, a row a setting."""
    rows = [[setting.model, setting.dataset,
             *(times(values[step.name]) for step in STEPS)]
            for setting, values in speed_ups.items()]
    return table(["model", "lengths", *(step.name for step in STEPS)], rows,
                 text_columns=2)


def _summary(speed_ups):
    """What the paper says of its Fig. 3, of one run of ours."""
    skrull = {s: v[SKRULL] for s, v in speed_ups.items()}
    over_sorted = [v[SKRULL] / v["sorted"] for v in speed_ups.values()]
    return [*(mean(v for s, v in skrull.items() if s.model == model)
              for model in published.MODELS),
            mean(skrull.values()), max(skrull.values()), mean(over_sorted),
            max(over_sorted)]


def headline(fitted, given, fitted_best, given_best):
    """The paper's headline figures; *_best are the best single steps."""
    names = ["0.5B, mean of the three lists", "7B, mean of the three lists",
             "mean of all six", "best of the six", "over sorted, mean",
             "over sorted, best of the six"]
    printed = [published.MEAN_OF_MODEL["0.5B"], published.MEAN_OF_MODEL["7B"],
               published.MEAN, published.PEAK, published.MEAN_OVER_SORTED,
               published.PEAK_OVER_SORTED]
    rows = [[name, times(p), times(f) + (" (fitted)" if i < 3 else ""),
             times(g)]
            for i, (name, p, f, g) in enumerate(
                zip(names, printed, _summary(fitted), _summary(given)))]
    rows.append(["best single step", "", times(fitted_best),
                 times(given_best)])
    return table(["Skrull over static CP", "published", "fitted overhead",
                  "job file's overhead"], rows)


def left_out(counts):
    parts = [f"{out} of {out + planned} ({setting.model} {setting.dataset})"
             for setting, (out, planned) in counts.items() if out]
    return ", ".join(parts) if parts else "none"


def sweep(axis, fitted, given):
    """Fig. 4a along one axis: {value: {policy: speed-up}}, twice."""
    rows = [[f"{value:,}", *(times(run[value][policy])
                             for run in (fitted, given)
                             for policy in ("POLICY_SKRULL",
                                            "POLICY_OPTIMIZED"))]
            for value in fitted]
    return table([axis, "Skrull, fitted", "optimized, fitted",
                  "Skrull, job file", "optimized, job file"], rows,
                 text_columns=0)


def _case_cell(outcome):
    speed_up, planned, out_of_memory = outcome
    if out_of_memory:
        return f"OOM on {out_of_memory} of {planned + out_of_memory} batches"
    return times(speed_up)


def table3(fitted, given):
    rows = [[POLICY_NAMES[policy], "yes" if roll_back else "no",
             times(published.CASE_SPEED_UP[policy]) if roll_back else "OOM",
             _case_cell(fitted[policy][roll_back]),
             _case_cell(given[policy][roll_back])]
            for policy in published.CASE_SPEED_UP
            for roll_back in (True, False)]
    return table(["policy", "roll-back", "published", "fitted overhead",
                  "job file's overhead"], rows, text_columns=2)


def table1(lists):
    rows = []
    for dataset, (percent, longest, count) in lists.items():
        rows.append([dataset, f"ours, {count:,} sequences",
                     *(f"{p:.2f} %" for p in percent), f"{longest:,}"])
        rows.append(["", "published",
                     *(f"{p:.2f} %" for p in published.PERCENT_UNDER[dataset]),
                     published.LONGEST[dataset]])
    limits = [f"< {limit // 1024}K" for limit in published.LIMITS]
    return table(["lengths", "", *limits, "longest"], rows, text_columns=2)


def peaks(tokens):
    steps = len(next(iter(tokens.values())))
    rows = []
    for policy, printed in published.PEAK_GB.items():
        name = POLICY_NAMES[policy]
        rows.append([name, "ours, tokens", *(f"{low:,} .. {high:,}" for
                                             low, high in tokens[policy])])
        rows.append(["", "published, GB", *(f"{low} .. {high}" for low, high
                                            in printed[:steps])])
    return table(["policy", "", *(f"step {i + 1}" for i in range(steps))],
                 rows, text_columns=2)
