"""Draws the loss curves of the equivalence training, as the paper's appendix A does.

  plot_losses.py LOSSES.json OUT.svg

The JSON is what the test writes into its build folder.
"""

from __future__ import annotations

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

INK, MUTED, GRID = "#1f2328", "#59636e", "#d9dee3"
# Wide and pale below, narrow and dark above: curves that lie on each other show.
CURVES = {
    "one process": ("one process", "#d0d7de", 9.0),
    "static-CP": ("8 ranks, static CP", "#8c959f", 5.5),
    "scope-GROUP": ("8 ranks, optimized, GROUP", "#fdae6b", 3.0),
    "scope-POOL": ("8 ranks, optimized, POOL", "#d94801", 1.2),
}

plt.rcParams.update(
    {
        "svg.hashsalt": "skrull",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": MUTED,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "legend.frameon": False,
        "axes.titlesize": 11,
    }
)


def draw(runs: dict[str, dict[str, list[float]]], path: pathlib.Path) -> None:
    """Losses on the left; their distance from those of one process on the right."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    alone = runs["one process"]["losses"]
    for name, (label, color, width) in CURVES.items():
        losses = runs[name]["losses"]
        left.plot(losses, color=color, linewidth=width, label=label)
        if name != "one process":
            distances = [abs(a - b) for a, b in zip(losses, alone, strict=True)]
            right.plot(distances, "o", color=color, markersize=2 + width, label=label)
    left.set_title("loss", loc="left")
    left.set_xlabel("step")
    left.legend()
    right.set_title("distance from one process (float64)", loc="left")
    right.set_xlabel("step")
    right.set_yscale("symlog", linthresh=1e-16)
    right.set_ylim(0, 1e-13)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    text = path.read_text(encoding="utf-8")
    lines = [line.rstrip() for line in text.splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw(json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2]))
