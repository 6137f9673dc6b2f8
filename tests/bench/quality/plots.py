"""The experiments as SVG. The same data gives the same bytes with the same
version of matplotlib: no date, no random ids."""

import matplotlib

import published
from experiments import STEPS

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

INK, MUTED, GRID = "#1f2328", "#59636e", "#d9dee3"
# Skrull's steps in blues, ours in oranges, other baselines in grays; they
# differ in lightness too.
STEP_COLORS = {"sorted": "#d0d7de", "packed static CP": "#8c959f",
               "+ DACP": "#9ecae1", "+ GDS = Skrull": "#2171b5",
               "optimized, GROUP": "#fdae6b", "optimized, POOL": "#d94801"}
POLICY_COLORS = {"POLICY_SKRULL": "#2171b5", "POLICY_OPTIMIZED": "#d94801"}
POLICY_NAMES = {"POLICY_SKRULL": "Skrull", "POLICY_OPTIMIZED": "optimized"}
LIST_COLORS = {"wikipedia": "#2171b5", "lmsyschat1m": "#d94801",
               "chatqa2": "#41782c"}

plt.rcParams.update({
    "svg.hashsalt": "skrull", "svg.fonttype": "none",
    "font.family": "sans-serif", "font.size": 10, "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": MUTED, "axes.titlesize": 11,
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True,
    "grid.color": GRID, "xtick.color": MUTED, "ytick.color": MUTED,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "figure.facecolor": "white", "axes.facecolor": "white",
    "savefig.facecolor": "white", "legend.frameon": False,
})


def _save(figure, path):
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    text = path.read_text(encoding="utf-8")
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) +
                    "\n", encoding="utf-8")


def _short(value):
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def figure3(speed_ups, path):
    """Bars of every step, a panel a model."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.6))
    width = 0.8 / len(STEPS)
    for panel, model in zip(panels, published.MODELS):
        rows = [(s.dataset, v) for s, v in speed_ups.items()
                if s.model == model]
        for i, step in enumerate(STEPS):
            x = [at + (i - (len(STEPS) - 1) / 2) * width
                 for at in range(len(rows))]
            bars = panel.bar(x, [v[step.name] for _, v in rows], width * 0.92,
                             color=STEP_COLORS[step.name], label=step.name)
            panel.bar_label(bars, [_short(v[step.name]) for _, v in rows],
                            fontsize=8, padding=2)
        target = published.MEAN_OF_MODEL[model]
        panel.axhline(target, color=STEP_COLORS["+ GDS = Skrull"],
                      linestyle="--", linewidth=1)
        panel.text(2.45, target, f"published mean\nof Skrull, {target:.2f}x",
                   ha="right", va="bottom", fontsize=8, color=MUTED)
        panel.set_xticks(range(len(rows)), [dataset for dataset, _ in rows])
        panel.tick_params(axis="x", length=0)
        panel.set_title(f"Qwen2.5-{model}", loc="left")
    panels[0].set_ylabel("speed-up over static CP")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(STEPS),
                  fontsize=9, columnspacing=1.4, handlelength=1.2)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    _save(figure, path)


def figure4a(axes, path):
    """`axes` is [(label, fitted, given)]: {value: {policy: speed-up}}."""
    figure, panels = plt.subplots(1, len(axes), figsize=(10, 4.2), sharey=True)
    for panel, (label, fitted, given) in zip(panels, axes):
        for run, style, name in ((fitted, "-", "fitted overhead"),
                                 (given, "--", "job file's overhead")):
            for policy, color in POLICY_COLORS.items():
                panel.plot(list(run), [v[policy] for v in run.values()],
                           style, color=color, marker="o", markersize=4,
                           label=f"{POLICY_NAMES[policy]}, {name}")
        panel.axhline(1, color=MUTED, linewidth=1)
        panel.set_xticks(list(fitted), [f"{x // 1024}K" if x >= 1024 else str(x)
                                        for x in fitted])
        panel.set_xlabel(label)
    most = max(v for _, *runs in axes for run in runs
               for values in run.values() for v in values.values())
    panels[0].set_ylim(0, 1.08 * most)
    panels[0].set_ylabel("speed-up over static CP")
    panels[0].text(max(axes[0][1]), 0.95, "static CP", ha="right", va="top",
                   fontsize=8, color=MUTED)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, fontsize=9)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    _save(figure, path)


def table1(lists, path):
    """Shares of sequences under a length: lines ours, rings the paper's."""
    figure, panel = plt.subplots(figsize=(7, 4.2))
    for dataset, lengths in lists.items():
        ordered = sorted(lengths)
        shown = [int(i * (len(ordered) - 1) / 400) for i in range(401)]
        panel.plot([ordered[i] for i in shown],
                   [100 * (i + 1) / len(ordered) for i in shown],
                   color=LIST_COLORS[dataset], label=f"{dataset}, ours",
                   linestyle="--" if dataset == "lmsyschat1m" else "-")
        panel.plot(published.LIMITS, published.PERCENT_UNDER[dataset], "o",
                   color=LIST_COLORS[dataset], markerfacecolor="white",
                   label=f"{dataset}, published")
    panel.set_xscale("log", base=2)
    ticks = (64, 256, *published.LIMITS, 1 << 20)
    panel.set_xticks(ticks, [f"{x // 1024}K" if x >= 1024 else str(x)
                             for x in ticks])
    panel.set_ylim(0, 102)
    panel.set_xlabel("tokens")
    panel.set_ylabel("percent of the sequences under")
    panel.legend(loc="lower right", fontsize=9)
    figure.tight_layout()
    _save(figure, path)
