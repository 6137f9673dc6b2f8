"""Times a step in a pipeline by the rules of docs/concepts.md ("Pipeline")."""


def stage_passes(stages, stage, backward_order):
    """[("F" or "B", slot)] of one stage, in the order it runs them."""
    count, passes, forward = len(backward_order), [], 0
    for k, slot in enumerate(backward_order):
        wanted = max(min(count, stages - 1 - stage + k + 1), slot + 1)
        while forward < wanted:
            passes.append(("F", forward))
            forward += 1
        passes.append(("B", slot))
    return passes


def train_times(stages, lanes, slots, backward_order):
    """(end of the last pass, busy seconds) of lanes with one list of slots.

    A slot is a list of (lanes that run it together, forward, backward seconds).
    """
    passes = [stage_passes(stages, s, backward_order) for s in range(stages)]
    ready = [dict.fromkeys(lanes, 0.0) for _ in range(stages)]
    ends, at, busy = {}, [0] * stages, 0.0
    while any(at[s] < len(passes[s]) for s in range(stages)):
        for s in range(stages):
            while at[s] < len(passes[s]):
                kind, slot = passes[s][at[s]]
                source = s - 1 if kind == "F" else s + 1
                if 0 <= source < stages and (kind, slot, source) not in ends:
                    break
                given = ends.get((kind, slot, source), {})
                ends[kind, slot, s] = {}
                for members, *seconds in slots[slot]:
                    end = max([ready[s][lane] for lane in members] +
                              [given.get(members, 0.0)])
                    end += seconds[kind == "B"]
                    busy += seconds[kind == "B"] * len(members)
                    ends[kind, slot, s][members] = end
                    ready[s].update(dict.fromkeys(members, end))
                at[s] += 1
    return max(max(lane.values()) for lane in ready), busy


def figures(stages, dp_size, makespan, busy):
    """(pipeline_seconds, pipeline_bubble)"""
    if makespan == 0:
        return 0.0, 0.0
    return makespan, 1 - busy / (makespan * dp_size * stages)


def step_figures(job, history):
    """Of micro-batches; history[i] lists (DP ranks that run i together,
    seconds)."""
    if job.stages == 1:
        return 0.0, 0.0
    trains = [{d} for d in range(job.dp)]
    for groups in history:
        for members, _ in groups:
            union = set().union(*(trains[d] for d in members))
            for d in union:
                trains[d] = union
    makespan = busy = 0.0
    for train in {min(t): t for t in trains}.values():
        slots = []
        for groups in history:
            slot = [(members, seconds / (1 + job.ratio),
                     seconds * job.ratio / (1 + job.ratio))
                    for members, seconds in groups if members[0] in train]
            if slot:
                slots.append(slot)
        if slots:
            end, work = train_times(job.stages, sorted(train), slots,
                                    range(len(slots)))
            makespan, busy = max(makespan, end), busy + work
    return figures(job.stages, job.dp, makespan, busy)
