"""Plans as HTML for notebooks: self-contained, without scripts."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skrull.plan import Plan

# More bars than fit a screen say nothing.
_MOST_RANKS = 64
_MOST_MICRO_BATCHES = 16
_LOCAL = "#4c78a8"
_SHARDED = "#f58518"


def plan_html(plan: Plan) -> str:
    """Figures of a plan and, per micro-batch, a bar of each rank's rows."""
    figures = plan.figures
    gap = (
        figures.predicted_seconds / figures.lower_bound_seconds - 1
        if figures.lower_bound_seconds > 0
        else 0.0
    )
    rows = {
        "job": plan.job or "none",
        "step, attempt": f"{plan.step}, {plan.attempt}",
        "policy": plan.policy,
        "predicted": f"{figures.predicted_seconds * 1e3:.3f} ms",
        "above the lower bound": f"{gap:.2%}",
        "sequences": f"{plan.lengths.size}, sharded {figures.sharded_sequence_count}",
        "micro-batches": str(figures.micro_batch_count),
        "imbalance of ranks": f"{figures.rank_imbalance:.2%}",
        "digest": plan.digest,
    }
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    return f"<div><table>{cells}</table>{_loads(plan)}</div>"


def _loads(plan: Plan) -> str:
    if plan.num_micro_batches == 0:
        return "<p>A plan of chunks has no micro-batches to draw.</p>"
    ranks = range(min(plan.world_size, _MOST_RANKS))
    most = max(1, plan.figures.max_rank_tokens)
    shares = [plan.rank_plan(rank) for rank in ranks]
    parts = [
        "<p>Rows of each rank; "
        f"<span style='color:{_LOCAL}'>&#9632;</span> local, "
        f"<span style='color:{_SHARDED}'>&#9632;</span> sharded. "
        f"The fullest has {plan.figures.max_rank_tokens}.</p>"
    ]
    shown = min(plan.num_micro_batches, _MOST_MICRO_BATCHES)
    for index in range(shown):
        bars = "".join(
            _bar(
                rank,
                share.micro_batches[index].local_rows,
                share.micro_batches[index].rows,
                most,
            )
            for rank, share in zip(ranks, shares, strict=True)
        )
        parts.append(
            f"<details{' open' if index == 0 else ''}><summary>micro-batch "
            f"{index}</summary>{bars}</details>"
        )
    left_out = [
        f"{count} more {name}"
        for count, name in (
            (plan.num_micro_batches - shown, "micro-batches"),
            (plan.world_size - len(ranks), "ranks"),
        )
        if count > 0
    ]
    if left_out:
        parts.append(f"<p>Not shown: {' and '.join(left_out)}.</p>")
    return "".join(parts)


def _bar(rank: int, local: int, rows: int, most: int) -> str:
    def piece(count: int, color: str) -> str:
        return (
            f"<span style='display:inline-block;height:0.8em;background:{color};"
            f"width:{24 * count / most:.3f}em'></span>"
        )

    return (
        f"<div style='white-space:nowrap'><span style='display:inline-block;width:4em'>"
        f"rank {rank}</span>{piece(local, _LOCAL)}{piece(rows - local, _SHARDED)} "
        f"{rows}</div>"
    )
