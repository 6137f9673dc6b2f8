"""Checks one plan, or one refusal, against the contract, from scratch."""

import hashlib
import re
import struct

import chunks
import pipeline
from violation import Violation, close, integer, real, require

MAX_TOKENS = 2**31 - 1
POLICIES = {"POLICY_SKRULL": 1, "POLICY_STATIC_CP": 2,
            "POLICY_PACKED_STATIC_CP": 3,
            "POLICY_OPTIMIZED": 4, "POLICY_DACP_ONLY": 5,
            "POLICY_ROUND_ROBIN": 6, "POLICY_SORTED": 7,
            "POLICY_CHUNK_FLOW": 8}
# Those that heuristic.roll_back is for.
HEURISTICS = ("POLICY_SKRULL", "POLICY_DACP_ONLY", "POLICY_ROUND_ROBIN")
BOTTLENECKS = ["BOTTLENECK_UNSPECIFIED", "BOTTLENECK_WORK",
               "BOTTLENECK_SEQUENCE", "BOTTLENECK_EXCHANGE",
               "BOTTLENECK_OVERHEAD", "BOTTLENECK_PLACEMENT"]


class Clock:
    """Ready time of every DP rank, as the contract's cost section defines it."""

    def __init__(self, job):
        self.job = job
        self.ready = [0.0] * job.dp
        self.compute = [0.0] * job.ranks
        # Per micro-batch: (DP ranks that ran it together, seconds).
        self.history = []

    def run(self, placements):
        """Runs one micro-batch; returns its own predicted_seconds."""
        job = self.job
        local = [[0.0, 0.0] for _ in range(job.ranks)]
        sharded = [[0.0, 0.0] for _ in range(job.ranks)]
        totals = {}
        busy = [False] * job.dp
        joined = [{d} for d in range(job.dp)]
        for _, tokens, first, degree in placements:
            linear, attention = job.comp(tokens, degree)
            into = local if degree == 1 else sharded
            for rank in range(first, first + degree):
                into[rank][0] += linear
                into[rank][1] += attention
                self.compute[rank] += linear + attention
            if degree > 1:
                totals[first, degree] = totals.get((first, degree), 0) + tokens
            members = range(first // job.cp, (first + degree - 1) // job.cp + 1)
            if len(members) > 1:
                union = set().union(*(joined[d] for d in members))
                for d in union:
                    joined[d] = union
            for d in members:
                busy[d] = True
        comm = [0.0] * job.ranks
        for (first, degree), tokens in totals.items():
            seconds = job.exchange(first, degree, tokens)
            for rank in range(first, first + degree):
                comm[rank] += seconds
        time = [job.rank_seconds(local[r], sharded[r], comm[r])
                for r in range(job.ranks)]
        start = list(self.ready)
        groups = {}
        for d in range(job.dp):
            if busy[d]:
                slowest = max(time[m * job.cp + r] for m in joined[d]
                              for r in range(job.cp))
                self.ready[d] = (max(start[m] for m in joined[d]) +
                                 job.overhead + slowest)
                groups[tuple(sorted(joined[d]))] = job.overhead + slowest
            elif job.uniform:
                self.ready[d] = start[d] + job.overhead
                groups[d,] = job.overhead
        self.history.append(list(groups.items()))
        if not placements and not job.uniform:
            return 0.0
        return job.overhead + max(time)


def imbalance(values):
    mean = sum(values) / len(values)
    return max(values) / mean - 1 if mean > 0 else 0.0


def rank_loads(job, placements):
    """Rows of every rank by the rotation-pointer rule, and gathered tokens."""
    load = [0] * job.ranks
    gathered = [0] * job.ranks
    pointer = {}
    for _, tokens, first, degree in placements:
        if degree == 1:
            load[first] += tokens
            continue
        rot = pointer.get((first, degree), 0)
        q, e = divmod(tokens, degree)
        for r in range(degree):
            load[first + r] += q + (1 if (r - rot) % degree < e else 0)
            gathered[first + r] += tokens
        pointer[first, degree] = (rot + e) % degree
    return load, gathered


def _check_micro_batch(job, lengths, index, message, seen, clock):
    where = f"micro-batch {index}"
    placements = []
    for p in message.get("placements", []):
        placement = tuple(integer(p, name) for name in
                          ("sequence", "token_count", "first_rank", "degree"))
        sequence, tokens, first, degree = placement
        require(0 <= sequence < len(lengths),
                f"{where}: sequence {sequence} is not in the batch")
        require(sequence not in seen,
                f"{where}: sequence {sequence} is placed twice")
        seen.add(sequence)
        require(tokens == lengths[sequence],
                f"{where}: sequence {sequence} has token_count {tokens}, "
                f"the batch says {lengths[sequence]}")
        require((first, degree) in job.block_set,
                f"{where}: sequence {sequence} is on a block "
                f"({first}, {degree}) that {job.scope} does not allow")
        placements.append(placement)
    load, gathered = rank_loads(job, placements)
    for rank in range(job.ranks):
        require(job.fits(load[rank], gathered[rank]),
                f"{where}: rank {rank} holds {load[rank]} tokens and gathers "
                f"{gathered[rank]}: bucket {job.bucket}, budget {job.budget}")
    for d in range(job.dp):
        count = sum(1 for _, _, first, degree in placements
                    if first < (d + 1) * job.cp and first + degree > d * job.cp)
        require(count <= job.cap,
                f"{where}: {count} sequences on DP rank {d}, cap {job.cap}")
    seconds = clock.run(placements)
    total = sum(p[1] for p in placements)
    require(integer(message, "token_count") == total,
            f"{where}: token_count {message.get('token_count')} != {total}")
    require(integer(message, "max_rank_tokens") == max(load),
            f"{where}: max_rank_tokens {message.get('max_rank_tokens')} != "
            f"{max(load)}")
    require(close(real(message, "predicted_seconds"), seconds),
            f"{where}: predicted_seconds {message.get('predicted_seconds')} "
            f"!= {seconds}")
    return placements, max(load)


def _placement_figures(job, lengths, plan):
    """What blocks and summary of a plan of micro-batches must say."""
    require("chunk_plan" not in plan, "a plan of placements has chunks")
    seen = set()
    clock = Clock(job)
    placements = []
    fullest = 0
    micro_batches = plan.get("micro_batches", [])
    for index, message in enumerate(micro_batches):
        placed, load = _check_micro_batch(job, lengths, index, message, seen,
                                          clock)
        placements += placed
        fullest = max(fullest, load)
    missing = set(range(len(lengths))) - seen
    require(not missing, f"sequences {sorted(missing)[:5]} are not placed")
    sharded = [p for p in placements if p[3] > 1]
    return {"blocks": sorted({p[2:] for p in sharded}),
            "sharded_sequence_count": len(sharded),
            "sharded_token_count": sum(p[1] for p in sharded),
            "micro_batch_count": len(micro_batches),
            "max_rank_tokens": fullest,
            "ready": clock.ready,
            "compute": clock.compute,
            "stages": pipeline.step_figures(job, clock.history),
            "bound": job.lower_bound(lengths)}


def check_plan(job, lengths, plan, policy=None):
    """Raises Violation at the first rule that `plan` of `lengths` breaks."""
    require(plan.get("policy") == (policy or job.policy),
            f"policy is {plan.get('policy')}, wanted {policy or job.policy}")
    if plan["policy"] == "POLICY_CHUNK_FLOW":
        require("chunk_plan" in plan, "a plan of POLICY_CHUNK_FLOW has none")
        figures = chunks.ChunkCheck(job, lengths, plan).run()
    else:
        figures = _placement_figures(job, lengths, plan)
    blocks = [(integer(b, "first_rank"), integer(b, "degree"))
              for b in plan.get("blocks", [])]
    require(blocks == figures["blocks"],
            f"blocks are {blocks}, the plan uses {figures['blocks']}")

    summary = plan.get("summary", {})
    for name in ("sharded_sequence_count", "sharded_token_count",
                 "micro_batch_count", "max_rank_tokens"):
        require(integer(summary, name) == figures[name],
                f"summary.{name} {summary.get(name)} != {figures[name]}")
    require(integer(summary, "roll_back_count") >= 0,
            "summary.roll_back_count is negative")
    require(job.roll_back or plan["policy"] not in HEURISTICS or
            integer(summary, "roll_back_count") == 0,
            "summary.roll_back_count is not 0 without roll-back")
    predicted = real(summary, "predicted_seconds")
    for name, value, offset in (
            ("predicted_seconds", max(figures["ready"]), 0),
            ("dp_imbalance", imbalance(figures["ready"]), 1),
            ("rank_imbalance", imbalance(figures["compute"]), 1),
            ("pipeline_seconds", figures["stages"][0], 0),
            ("pipeline_bubble", figures["stages"][1], 1)):
        require(close(real(summary, name), value, offset),
                f"summary.{name} {summary.get(name)} != {value}")
    bound, least = real(summary, "lower_bound_seconds"), figures["bound"]
    require(bound >= least * (1 - 1e-9),
            f"summary.lower_bound_seconds {bound} < the contract's {least}")
    require(bound <= predicted * (1 + 1e-9),
            f"summary.lower_bound_seconds {bound} > predicted {predicted}")
    if "digest" in plan:
        require(plan["digest"] == digest(plan),
                f"digest {plan['digest']} != {digest(plan)}")


def _check_out_of_memory(job, lengths, message, policy):
    require(not job.roll_back and policy in HEURISTICS,
            f"{policy} cannot run out of memory: {message}")
    where = re.search(r"micro-batch (\d+) rank (\d+) holds (\d+) tokens"
                      r"(?: and gathers the K/V of (\d+))?", message)
    require(where, f"the refusal does not say where: {message}")
    index, rank, load, gathered = (int(n or 0) for n in where.groups())
    require(index < len(lengths) and rank < job.ranks and
            load <= sum(lengths) and not job.fits(load, gathered),
            f"that is no overflow: {message}")


def check_refusal(job, lengths, error, policy=None):
    """Raises Violation unless refusing `lengths` with `error` is justified."""
    policy = policy or job.policy
    code = error.get("code")
    message = error.get("message", "")
    malformed = (not lengths or
                 any(not 1 <= n <= MAX_TOKENS for n in lengths))
    too_long = [k for k, n in enumerate(lengths)
                if 1 <= n <= MAX_TOKENS and not _can_hold(job, n, policy)]
    if not malformed and policy == "POLICY_CHUNK_FLOW" and job.uniform:
        require(code == "INVALID_ARGUMENT" and "uniform" in message,
                f"a uniform job refused as {code}: {message}")
        return
    if malformed:
        require(code == "INVALID_ARGUMENT", f"malformed batch refused as {code}")
        return
    require(code == "FAILED_PRECONDITION", f"refused with {code}: {message}")
    if not too_long and "out of memory (simulated)" in message:
        _check_out_of_memory(job, lengths, message, policy)
        return
    require(too_long, f"refused although every sequence fits: {message}")
    numbers = [too_long[0], lengths[too_long[0]]]
    if policy != "POLICY_CHUNK_FLOW":
        numbers.append(max(n for n in _limits(job)))
    for number in numbers:
        require(str(number) in message,
                f"the refusal does not say {number}: {message}")


def _can_hold(job, tokens, policy):
    if policy == "POLICY_CHUNK_FLOW":
        return chunks.holds(job, tokens)
    return job.placeable(tokens)


def _limits(job):
    """The longest sequence each allowed degree holds."""
    for degree in job.degrees:
        low, high = 0, min(job.bucket * degree, MAX_TOKENS)
        while low < high:
            middle = (low + high + 1) // 2
            if job.holds(middle, degree):
                low = middle
            else:
                high = middle - 1
        yield low


def must_be_refused(job, lengths, policy=None):
    policy = policy or job.policy
    return (not lengths or
            (policy == "POLICY_CHUNK_FLOW" and job.uniform) or
            any(not 1 <= n <= MAX_TOKENS or not _can_hold(job, n, policy)
                for n in lengths))


# SHA-256 of the deterministic proto3 serialization, digest field empty ---------

def _varint(value):
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _int(number, value):
    return _varint(number << 3) + _varint(value) if value else b""


def _double(number, value):
    bits = struct.pack("<d", value)
    return _varint(number << 3 | 1) + bits if any(bits) else b""


def _bytes(number, value):
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _ints(message, names):
    return b"".join(_int(i, integer(message, name))
                    for i, name in enumerate(names, 1))


def _explanation(e):
    out = _int(1, BOTTLENECKS.index(e.get("bottleneck", BOTTLENECKS[0])))
    out += _int(2, integer(e, "rank")) + _int(3, integer(e, "sequence"))
    out += _double(4, real(e, "sequence_share"))
    for what_if in e.get("what_ifs", []):
        body = b"".join(_bytes(i, what_if[name].encode())
                        for i, name in enumerate(("field", "value"), 1)
                        if what_if.get(name))
        body += _double(3, real(what_if, "lower_bound_seconds"))
        out += _bytes(5, body)
    if e.get("text"):
        out += _bytes(6, e["text"].encode())
    return out


def _chunk_plan(plan):
    out = _ints(plan, ("chunk_size_tokens", "retained_chunks"))
    for chunk in plan.get("chunks", []):
        body = _int(1, integer(chunk, "dp_rank"))
        for piece in chunk.get("pieces", []):
            part = _ints(piece, ("sequence", "token_count"))
            if "range" in piece:
                part += _bytes(3, _ints(piece["range"], ("begin", "end")))
            body += _bytes(2, part)
        for number, name in enumerate(
                ("group_index", "group_size", "token_count"), 3):
            body += _int(number, integer(chunk, name))
        out += _bytes(3, body + _double(6, real(chunk, "predicted_seconds")))
    for schedule in plan.get("schedules", []):
        body = _int(1, integer(schedule, "dp_rank"))
        for operation in schedule.get("operations", []):
            body += _bytes(2, _int(1, chunks.PASSES[operation["pass"]]) +
                           _int(2, integer(operation, "chunk")))
        out += _bytes(4, body + _double(3, real(schedule, "predicted_seconds")))
    return out + _int(5, integer(plan, "cp_size"))


def digest(plan):
    """The digest of a plan in JSON form, from the field numbers of plan.proto."""
    out = b""
    if plan.get("job"):
        out += _bytes(1, plan["job"].encode())
    out += _int(2, integer(plan, "step")) + _int(3, integer(plan, "attempt"))
    out += _int(5, POLICIES[plan["policy"]])
    out += _int(6, integer(plan, "calibration_epoch"))
    for mb in plan.get("micro_batches", []):
        body = b"".join(
            _bytes(1, _ints(p, ("sequence", "token_count", "first_rank",
                                "degree")))
            for p in mb.get("placements", []))
        body += _int(2, integer(mb, "token_count"))
        body += _double(3, real(mb, "predicted_seconds"))
        body += _int(4, integer(mb, "max_rank_tokens"))
        out += _bytes(7, body)
    for block in plan.get("blocks", []):
        out += _bytes(8, _ints(block, ("first_rank", "degree")))
    if "summary" in plan:
        s = plan["summary"]
        body = (_double(1, real(s, "predicted_seconds")) +
                _double(2, real(s, "lower_bound_seconds")))
        for number, name in enumerate(
                ("roll_back_count", "sharded_sequence_count",
                 "sharded_token_count", "micro_batch_count",
                 "max_rank_tokens"), 3):
            body += _int(number, integer(s, name))
        body += (_double(8, real(s, "dp_imbalance")) +
                 _double(9, real(s, "rank_imbalance")) +
                 _double(10, real(s, "pipeline_seconds")) +
                 _double(11, real(s, "pipeline_bubble")))
        if "explanation" in s:
            body += _bytes(12, _explanation(s["explanation"]))
        out += _bytes(9, body)
    if "chunk_plan" in plan:
        out += _bytes(10, _chunk_plan(plan["chunk_plan"]))
    return hashlib.sha256(out).hexdigest()
