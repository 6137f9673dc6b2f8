"""Checks plans of POLICY_CHUNK_FLOW by docs/concepts.md ("Chunks")."""

import pipeline
from violation import close, integer, real, require

PASSES = {"CHUNK_PASS_FORWARD": 1, "CHUNK_PASS_FORWARD_DISCARD": 2,
          "CHUNK_PASS_RECOMPUTE": 3, "CHUNK_PASS_BACKWARD": 4}


def rows_of(tokens, ranks):
    """Rows of each rank of a group that shares a chunk of so many tokens."""
    q, e = divmod(tokens, ranks)
    return [q + (1 if r < e else 0) for r in range(ranks)]


def holds(job, tokens):
    """Whether the job's chunks can hold a sequence, whatever else there is."""
    group, kept = job.cp, job.retained_chunks
    single = job.chunk_size
    if single is None:
        single = group * max(1, job.bucket // kept)
    if tokens <= single and job.fits(-(-tokens // group),
                                     tokens if group > 1 else 0):
        return True
    # Where the size is open, chunks of one row a rank keep the fewest rows.
    size = group if job.chunk_size is None else job.chunk_size
    if tokens <= size:
        return False
    count = -(-tokens // size)
    full = -(-size // group)
    last = -(-(tokens - (count - 1) * size) // group)
    rows = kept * full if kept < count else (count - 1) * full + last
    return job.fits(rows, tokens)


class ChunkCheck:

    def __init__(self, job, lengths, plan):
        self.job = job
        self.lengths = lengths
        self.plan = plan
        self.message = plan["chunk_plan"]
        self.chunks = self.message.get("chunks", [])

    def run(self):
        job, message = self.job, self.message
        require(not plan_has_micro_batches(self.plan),
                "a plan of chunks has micro-batches")
        require(not job.uniform, "chunks for a uniform job")
        require(integer(message, "cp_size") == job.cp, "cp_size")
        require(integer(message, "retained_chunks") == job.retained_chunks,
                "retained_chunks")
        self.size = integer(message, "chunk_size_tokens")
        require(job.chunk_size in (None, self.size), "chunk_size_tokens")
        self.compute = [self._chunk(i, c) for i, c in enumerate(self.chunks)]
        self._coverage()
        schedules = message.get("schedules", [])
        require(len(schedules) == job.dp, f"{len(schedules)} schedules")
        self.state = ["waiting"] * len(self.chunks)
        self.fullest = 0
        results = [self._schedule(d, s) for d, s in enumerate(schedules)]
        require(set(self.state) <= {"done"}, "a chunk is left undone")
        return self._figures(results)

    def _chunk(self, index, chunk):
        job, where = self.job, f"chunk {index}"
        dp_rank = integer(chunk, "dp_rank")
        require(0 <= dp_rank < job.dp, f"{where}: DP rank {dp_rank}")
        pieces = chunk.get("pieces", [])
        require(1 <= len(pieces) <= job.cap, f"{where}: {len(pieces)} pieces")
        require(integer(chunk, "group_size") == 1 or len(pieces) == 1,
                f"{where}: a part of a sequence and something else")
        compute, total = 0.0, 0
        for piece in pieces:
            sequence = integer(piece, "sequence")
            require(0 <= sequence < len(self.lengths), f"{where}: {sequence}")
            require(integer(piece, "token_count") == self.lengths[sequence],
                    f"{where}: token_count of sequence {sequence}")
            begin = integer(piece.get("range", {}), "begin")
            end = integer(piece.get("range", {}), "end")
            require(0 <= begin < end <= self.lengths[sequence],
                    f"{where}: [{begin}, {end}) of sequence {sequence}")
            compute += job.piece_seconds(begin, end)
            total += end - begin
        require(total <= self.size, f"{where}: {total} tokens > {self.size}")
        require(integer(chunk, "token_count") == total, f"{where}: token_count")
        seconds = compute
        if job.cp > 1:
            seconds += job.exchange(dp_rank * job.cp, job.cp, total)
        require(close(real(chunk, "predicted_seconds"), seconds),
                f"{where}: predicted_seconds "
                f"{chunk.get('predicted_seconds')} != {seconds}")
        return compute

    def _coverage(self):
        """Every token once; fills self.group: (chunks of the group, place)."""
        parts = {}
        for index, chunk in enumerate(self.chunks):
            for piece in chunk["pieces"]:
                span = piece["range"]
                parts.setdefault(integer(piece, "sequence"), []).append(
                    (integer(chunk, "group_index"), integer(span, "begin"),
                     integer(span, "end"), index))
        self.group = [([i], 0) for i in range(len(self.chunks))]
        for sequence, length in enumerate(self.lengths):
            mine, at = sorted(parts.get(sequence, [])), 0
            ids = [part[3] for part in mine]
            for place, (index, begin, end, chunk) in enumerate(mine):
                where = f"sequence {sequence}, chunk {chunk}"
                require(index == place, f"{where}: group_index {index}")
                require(begin == at, f"{where}: begins at {begin}, not {at}")
                require(integer(self.chunks[chunk], "group_size") == len(mine),
                        f"{where}: group_size")
                require(integer(self.chunks[chunk], "dp_rank") ==
                        integer(self.chunks[ids[0]], "dp_rank"),
                        f"{where}: on another DP rank")
                at = end
                if len(mine) > 1:
                    self.group[chunk] = (ids, place)
            require(at == length, f"sequence {sequence}: {at} of {length} "
                                  f"tokens are in chunks")

    def _gathered(self, index):
        chunk = self.chunks[index]
        if integer(chunk, "group_size") > 1:
            return integer(chunk["pieces"][0], "token_count")
        return integer(chunk, "token_count") if self.job.cp > 1 else 0

    def _schedule(self, dp_rank, message):
        """(seconds, compute seconds, pipeline makespan, busy)"""
        job, share = self.job, 1 / (1 + self.job.ratio)
        require(integer(message, "dp_rank") == dp_rank, "schedule order")
        load, gathered, seconds, compute = [0] * job.cp, 0, 0.0, 0.0
        slots, slot_of, backward = [], {}, []
        for at, operation in enumerate(message.get("operations", [])):
            index, kind = integer(operation, "chunk"), operation["pass"]
            where = f"DP rank {dp_rank}, operation {at}"
            require(0 <= index < len(self.chunks) and
                    integer(self.chunks[index], "dp_rank") == dp_rank,
                    f"{where}: chunk {index}")
            ids, place = self.group[index]
            rows = rows_of(integer(self.chunks[index], "token_count"), job.cp)
            if kind == "CHUNK_PASS_BACKWARD":
                require(self.state[index] == "kept", f"{where}: not kept")
                require(all(self.state[i] == "done" for i in ids[place + 1:]),
                        f"{where}: backward too early")
                self.state[index] = "done"
                load = [a - b for a, b in zip(load, rows)]
                gathered -= self._gathered(index) if place == 0 else 0
                backward.append(slot_of[index])
                continue
            if kind == "CHUNK_PASS_RECOMPUTE":
                require(self.state[index] == "discarded", f"{where}: recompute")
                again = (self.compute[index] + job.overhead) * share
                seconds += again
                compute += self.compute[index] * share
                members, forward, back = slots[slot_of[index]][0]
                slots[slot_of[index]] = [(members, forward, back + again)]
            else:
                require(self.state[index] == "waiting", f"{where}: again")
                require(all(self.state[i] != "waiting" for i in ids[:place]),
                        f"{where}: forward too early")
                gathered += self._gathered(index) if place == 0 else 0
                full = (real(self.chunks[index], "predicted_seconds") +
                        job.overhead)
                seconds += full
                compute += self.compute[index]
                slot_of[index] = len(slots)
                slots.append([((0,), full * share, full * (1 - share))])
            then = [a + b for a, b in zip(load, rows)]
            require(job.fits(max(then), gathered),
                    f"{where}: {max(then)} tokens and K/V of {gathered}")
            self.fullest = max(self.fullest, max(then))
            if kind == "CHUNK_PASS_FORWARD_DISCARD":
                require(len(ids) > 1, f"{where}: a single chunk is discarded")
                self.state[index] = "discarded"
            else:
                require(kind != "CHUNK_PASS_UNSPECIFIED", f"{where}: {kind}")
                self.state[index], load = "kept", then
                kept = sum(self.state[i] == "kept" for i in ids)
                require(kept <= job.retained_chunks, f"{where}: {kept} kept")
        require(close(real(message, "predicted_seconds"), seconds),
                f"DP rank {dp_rank}: predicted_seconds "
                f"{message.get('predicted_seconds')} != {seconds}")
        require(len(backward) == len(slots), f"DP rank {dp_rank}: unfinished")
        makespan = busy = 0.0
        if job.stages > 1 and slots:
            makespan, busy = pipeline.train_times(job.stages, [0], slots,
                                                  backward)
        return seconds, compute, makespan, busy

    def _figures(self, results):
        """What the summary must say."""
        job = self.job
        used = [d for d, s in enumerate(self.message["schedules"])
                if s.get("operations")]
        sharded = job.cp > 1
        stages = pipeline.figures(job.stages, job.dp,
                                  max(r[2] for r in results),
                                  sum(r[3] for r in results))
        bound = job.chunk_lower_bound(self.lengths)
        if all(job.placeable(n) for n in self.lengths):
            bound = min(bound, job.lower_bound(self.lengths))
        return {
            "blocks": [(d * job.cp, job.cp) for d in used] if sharded else [],
            "sharded_sequence_count": len(self.lengths) if sharded else 0,
            "sharded_token_count": sum(self.lengths) if sharded else 0,
            "micro_batch_count": 0,
            "max_rank_tokens": self.fullest,
            "ready": [r[0] for r in results],
            "compute": [r[1] for r in results],
            "stages": stages,
            "bound": bound}


def plan_has_micro_batches(plan):
    return bool(plan.get("micro_batches"))
