"""Random jobs and batches for the oracle."""

import random


def _link(rng, name):
    if rng.random() < 0.4:
        points, size, seconds = [], 0, 0.0
        for _ in range(rng.randint(1, 5)):
            points.append((size, seconds))
            size += rng.choice([1, 1000, 10**6, 10**8])
            seconds += rng.choice([0.0, 1e-5, 1e-3, 0.1])
        if len(points) > 2 and rng.random() < 0.3:  # a table that dips
            points[:2] = [(0, 0.2), (points[1][0], 0.0)]
        body = " ".join(f"table {{ bytes: {b} seconds: {s!r} }}"
                        for b, s in points)
    else:
        body = (f"seconds_per_collective: {rng.choice([0.0, 4.1e-5, 0.01])!r} "
                f"seconds_per_byte: {rng.choice([0.0, 6e-12, 1e-9])!r}")
    return f"  {name} {{ {body} }}"


def _memory(rng):
    lines = []
    bucket = rng.choice([1, 3, 10, 97, 128, 1000, 4096, 26624])
    bucket = rng.choice([bucket, rng.randint(1, 2 * bucket)])
    gather = rng.random() < 0.3
    per_token = rng.choice([1.0, 3.5, 1000.0])
    if rng.random() < 0.7:
        lines.append(f"bucket_size_tokens: {bucket}")
    else:
        static = rng.choice([0, 12345])
        reserve = rng.choice([0.0, 0.05, 0.25])
        device = int((bucket * per_token + static) / (1 - reserve)) + 1
        lines += [f"device_bytes: {device}", f"static_bytes: {static}",
                  f"reserve_fraction: {reserve!r}"]
        gather = gather or rng.random() < 0.3
    if gather or "device_bytes" in "".join(lines) or rng.random() < 0.2:
        lines.append(f"bytes_per_token: {per_token!r}")
    if gather:
        share = rng.choice([0.0, 0.01, 0.1, 0.4, 1.0])
        lines.append(f"gather_bytes_per_token: {share * per_token!r}")
    if rng.random() < 0.3:
        lines.append(
            f"max_sequences_per_micro_batch: {rng.choice([1, 2, 3, 8, 50])}")
    return bucket, lines


def random_job(rng):
    """Returns (textproto, dp, cp, bucket, scope)."""
    dp, cp = rng.randint(1, 6), rng.randint(1, 12)
    scope = rng.choice(["GROUP", "SUBGROUP", "POOL"])
    bucket, memory = _memory(rng)
    heads = rng.choice([1, 4, 14])
    head_dim = rng.choice([8, 64])
    lines = [
        "model {",
        f"  hidden_size: {heads * head_dim * rng.choice([1, 2])}",
        f"  layer_count: {rng.choice([1, 24, 80])}",
        f"  attention_head_count: {heads}",
        f"  kv_head_count: {rng.choice([1, heads])}",
        f"  head_dim: {head_dim}",
        f"  intermediate_size: {rng.choice([16, 4864])}",
        f"  vocab_size: {rng.choice([100, 151936])}",
        "}",
        f"parallelism {{ dp_size: {dp} cp_size: {cp} "
        f"pp_size: {rng.choice([1, 1, 2, 4, 7])} "
        f"ranks_per_node: {rng.choice([0, 1, 2, 8])} "
        f"block_scope: BLOCK_SCOPE_{scope} "
        f"uniform_micro_batch_count: {rng.choice(['true', 'false'])} }}",
        "memory {"] + ["  " + line for line in memory] + ["}", "cost {"]
    if rng.random() < 0.7:
        lines.append("  flops_formula: FLOPS_FORMULA_" +
                     rng.choice(["PAPER", "EXACT"]))
    if rng.random() < 0.7:
        lines.append("  overlap_scope: OVERLAP_SCOPE_" +
                     rng.choice(["LAYER", "ATTENTION"]))
    for name, values in (("seconds_per_flop", [2.5e-15, 1e-12]),
                         ("pass_multiplier", [1.0, 3.0, 4.0]),
                         ("seconds_per_micro_batch", [0.0, 0.035, 10.0]),
                         ("efficiency_half_tokens", [0.0, 1.0, 256.0]),
                         ("collectives_per_layer", [0.0, 3.0]),
                         ("bytes_per_element", [1.0, 2.0]),
                         ("backward_forward_ratio", [0.5, 2.0])):
        if rng.random() < 0.6:
            lines.append(f"  {name}: {rng.choice(values)!r}")
    for name in ("intra_node", "inter_node"):
        if rng.random() < 0.7:
            lines.append(_link(rng, name))
    lines.append("}")
    if rng.random() < 0.5:
        size = (f"chunk_size_tokens: {rng.randint(1, 2 * bucket * cp)} "
                if rng.random() < 0.4 else "")
        lines.append(f"chunk_flow {{ {size}"
                     f"retained_chunks: {rng.choice([1, 2, 3, 16])} }}")
    if rng.random() < 0.2:
        lines.append("heuristic { roll_back: false }")
    return "\n".join(lines) + "\n", dp, cp, bucket, scope


def random_lengths(rng, dp, cp, bucket, scope):
    """Up to ~60 lengths around what one rank, group and pool can hold."""
    wide = cp * (dp if scope == "POOL" else 1)
    tops = [2, bucket, bucket, bucket * 2, bucket * wide]
    lengths = []
    for _ in range(rng.choice([1, 2, 3, 7, 20, 60])):
        top = max(1, rng.choice(tops))
        length = rng.choice([top, rng.randint(1, top), rng.randint(1, top)])
        lengths.append(length)
    if rng.random() < 0.05:
        lengths[rng.randrange(len(lengths))] = bucket * wide * 2 + 1
    return lengths


def cases(count, seed):
    """Yields (name, job text, lengths, batch size, policy or None)."""
    for index in range(count):
        rng = random.Random(f"{seed}/{index}")
        text, dp, cp, bucket, scope = random_job(rng)
        lengths = random_lengths(rng, dp, cp, bucket, scope)
        batch = rng.choice([len(lengths), rng.randint(1, len(lengths))])
        policy = rng.choice([None, "POLICY_SKRULL", "POLICY_STATIC_CP",
                             "POLICY_PACKED_STATIC_CP",
                             "POLICY_OPTIMIZED", "POLICY_DACP_ONLY",
                             "POLICY_ROUND_ROBIN", "POLICY_SORTED",
                             "POLICY_CHUNK_FLOW", "POLICY_CHUNK_FLOW"])
        yield f"--seed {seed}, run {index}", text, lengths, batch, policy
