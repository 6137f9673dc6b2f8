"""A job as the contract describes it, read from its text form (*.textproto).

Independent of the C++ sources: the parser, the defaults and the derived numbers
are written from the contract and the comments of job.proto.
"""

import functools
import math
import re

_TOKEN = re.compile(
    r"\s+|#[^\n]*|(?P<name>[A-Za-z_][A-Za-z0-9_.]*)"
    r"|(?P<number>-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf|nan))"
    r"|(?P<string>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<punct>[{}<>:\[\],;])")


def _tokens(text):
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise ValueError(f"textproto: unexpected {text[at:at + 20]!r}")
        at = match.end()
        if match.lastgroup:
            yield match.lastgroup, match.group()
    yield "end", ""


def parse_textproto(text):
    """Returns {field: [values]}; messages are such dicts, scalars are str."""
    tokens = list(_tokens(text))
    at = 0

    def value():
        nonlocal at
        kind, token = tokens[at]
        at += 1
        if token == "{":
            return message("}")
        if kind == "string":
            return token[1:-1]
        if kind in ("name", "number"):
            return token
        raise ValueError(f"textproto: a value is wanted, not {token!r}")

    def message(closer):
        nonlocal at
        fields = {}
        while True:
            kind, token = tokens[at]
            at += 1
            if token == closer:
                return fields
            if token in (",", ";"):
                continue
            if kind != "name":
                raise ValueError(f"textproto: a field is wanted, not {token!r}")
            if tokens[at][1] == ":":
                at += 1
            values = fields.setdefault(token, [])
            if tokens[at][1] == "[":
                at += 1
                while tokens[at][1] != "]":
                    if tokens[at][1] == ",":
                        at += 1
                    else:
                        values.append(value())
                at += 1
            else:
                values.append(value())

    return message("")


class _Message:
    """Typed access to a parsed message, by the defaults of job.proto."""

    def __init__(self, fields):
        self._fields = fields

    def has(self, name):
        return name in self._fields

    def message(self, name):
        return _Message(self._fields.get(name, [{}])[-1])

    def messages(self, name):
        return [_Message(m) for m in self._fields.get(name, [])]

    def integer(self, name, default=None):
        return int(self._fields[name][-1]) if self.has(name) else default

    def real(self, name, default=None):
        return float(self._fields[name][-1]) if self.has(name) else default

    def boolean(self, name, default=False):
        if not self.has(name):
            return default
        return self._fields[name][-1] in ("true", "True", "t", "1")

    def enum(self, name, default):
        value = self._fields.get(name, [default])[-1]
        return default if value.endswith("_UNSPECIFIED") else value


class Link:
    """Seconds of one collective over a link."""

    def __init__(self, fields):
        self.latency = fields.real("seconds_per_collective", 0.0)
        self.per_byte = fields.real("seconds_per_byte", 0.0)
        self.table = [(m.integer("bytes", 0), m.real("seconds", 0.0))
                      for m in fields.messages("table")]

    def seconds(self, size):
        if not self.table:
            return self.latency + size * self.per_byte
        if size <= self.table[0][0] or len(self.table) == 1:
            return self.table[0][1]
        for (b0, s0), (b1, s1) in zip(self.table, self.table[1:]):
            if size <= b1:
                break
        slope = (s1 - s0) / (b1 - b0)
        if size > self.table[-1][0]:
            return s1 + max(0.0, slope) * (size - b1)
        return s0 + slope * (size - b0)

    def least_seconds(self, size):
        """Least time of a collective of `size` bytes or more."""
        return min([self.seconds(size)] + [s for b, s in self.table if b > size])


class Job:
    """Shape, memory and cost of a job; all quantities as the contract names them."""

    def __init__(self, text):
        spec = _Message(parse_textproto(text))
        self._read_parallelism(spec.message("parallelism"))
        self._read_memory(spec.message("memory"))
        self._read_cost(spec.message("cost"))
        self._read_model(spec.message("model"))
        self.policy = spec.enum("policy", "POLICY_OPTIMIZED")
        chunk_flow = spec.message("chunk_flow")
        self.chunk_size = chunk_flow.integer("chunk_size_tokens")
        self.retained_chunks = chunk_flow.integer("retained_chunks", 1)
        self.roll_back = spec.message("heuristic").boolean("roll_back", True)
        self.blocks = self._all_blocks()
        self.block_set = set(self.blocks)
        self.degrees = sorted({degree for _, degree in self.blocks})
        self.degree_links = {degree: set() for degree in self.degrees}
        for first_rank, degree in self.blocks:
            if degree > 1:
                self.degree_links[degree].add(self.link(first_rank, degree))

    def _read_parallelism(self, m):
        self.dp = m.integer("dp_size", 1)
        self.cp = m.integer("cp_size", 1)
        self.ranks = self.dp * self.cp
        self.stages = m.integer("pp_size", 1)
        self.ranks_per_node = m.integer("ranks_per_node", 0)
        self.scope = m.enum("block_scope", "BLOCK_SCOPE_GROUP")
        self.uniform = m.boolean("uniform_micro_batch_count")

    def _read_memory(self, m):
        self.bytes_per_token = m.real("bytes_per_token", 0.0)
        self.gather = m.real("gather_bytes_per_token", 0.0)
        self.cap = m.integer("max_sequences_per_micro_batch", 65535)
        self.bucket = m.integer("bucket_size_tokens")
        if m.has("device_bytes"):
            self.budget = (m.integer("device_bytes") *
                           (1 - m.real("reserve_fraction", 0.0)) -
                           m.integer("static_bytes", 0))
            if self.bucket is None:
                self.bucket = math.floor(self.budget / self.bytes_per_token)
        else:
            self.budget = self.bucket * self.bytes_per_token

    def _read_cost(self, m):
        self.formula = m.enum("flops_formula", "FLOPS_FORMULA_PAPER")
        self.overlap = m.enum("overlap_scope", "OVERLAP_SCOPE_LAYER")
        self.seconds_per_flop = m.real("seconds_per_flop", 2.5e-15)
        self.passes = m.real("pass_multiplier", 4.0)
        self.ratio = m.real("backward_forward_ratio", 2.0)
        self.overhead = m.real("seconds_per_micro_batch", 0.0)
        self.half_tokens = m.real("efficiency_half_tokens", 0.0)
        self.collectives = m.real("collectives_per_layer", 3.0)
        self.element_bytes = m.real("bytes_per_element", 2.0)
        self.intra = Link(m.message("intra_node"))
        self.inter = (Link(m.message("inter_node"))
                      if m.has("inter_node") else self.intra)

    def _read_model(self, m):
        h = m.integer("hidden_size")
        heads = m.integer("attention_head_count")
        kv_heads = m.integer("kv_head_count", heads)
        head_dim = m.integer("head_dim")
        if head_dim is None:
            head_dim = h // heads
        h_kv = kv_heads * head_dim
        self.layers = m.integer("layer_count")
        if self.formula == "FLOPS_FORMULA_PAPER":
            c1, c2, c0 = 20 * h * h + 4 * h * h_kv, 4 * h, 0
        else:
            q = heads * head_dim
            c1 = 2 * (2 * h * q + 2 * h * h_kv +
                      3 * h * m.integer("intermediate_size"))
            c2, c0 = 2 * q, 2 * h * m.integer("vocab_size")
        self.linear_flops = self.passes * (self.layers * c1 + c0)
        self.attention_flops = self.passes * self.layers * c2
        self.kv_bytes = 2 * h_kv * self.element_bytes

    def _all_blocks(self):
        """Every allowed block, by a plain reading of the contract."""
        found = {(rank, 1) for rank in range(self.ranks)}
        for group in range(self.dp):
            found.add((group * self.cp, self.cp))
        if self.scope in ("BLOCK_SCOPE_SUBGROUP", "BLOCK_SCOPE_POOL"):
            size = 2
            while size < self.cp:
                for group in range(self.dp):
                    for start in range(0, self.cp - size + 1, size):
                        found.add((group * self.cp + start, size))
                size *= 2
        if self.scope == "BLOCK_SCOPE_POOL":
            found.add((0, self.ranks))
            groups = 2
            while groups <= self.dp:
                for start in range(0, self.dp - groups + 1, groups):
                    found.add((start * self.cp, groups * self.cp))
                groups *= 2
        return sorted(found)

    # Cost -------------------------------------------------------------------

    def comp(self, tokens, degree):
        """(linear, attention) seconds of each rank of a block."""
        share = tokens / degree
        efficiency = 1.0
        if self.half_tokens > 0:
            efficiency = share / (share + self.half_tokens)
        rate = self.seconds_per_flop / degree
        return (rate * self.linear_flops * tokens,
                rate * self.attention_flops * tokens * tokens / efficiency)

    def piece_seconds(self, begin, end):
        """Compute of each rank of a CP group for tokens [begin, end)."""
        tokens = end - begin
        rate = self.seconds_per_flop / self.cp
        share = tokens / self.cp
        efficiency = share / (share + self.half_tokens)
        return rate * (self.linear_flops * tokens + self.attention_flops *
                       (end * end - begin * begin) / efficiency)

    def chunk_lower_bound(self, lengths):
        """No plan of chunks is faster."""
        each = [self.piece_seconds(0, n) for n in lengths]
        chunks = -(-sum(lengths) // (self.bucket * self.cp))
        return max(sum(each) / self.dp +
                   self.overhead * max(1.0, chunks / self.dp),
                   max(each) + self.overhead)

    def link(self, first_rank, degree):
        per_node = self.ranks_per_node or self.ranks
        same = first_rank // per_node == (first_rank + degree - 1) // per_node
        return self.intra if same else self.inter

    def exchange(self, first_rank, degree, tokens):
        link = self.link(first_rank, degree)
        return (self.layers * self.collectives *
                link.seconds(tokens * self.kv_bytes))

    def rank_seconds(self, local, sharded, comm):
        """Time_rank of sums of comp() and the rank's exchange."""
        if self.overlap == "OVERLAP_SCOPE_LAYER":
            return max(comm, local[0] + local[1]) + sharded[0] + sharded[1]
        return local[0] + sharded[0] + max(comm, local[1]) + sharded[1]

    # Memory -----------------------------------------------------------------

    def fits(self, load, gathered):
        if load > self.bucket:
            return False
        return (self.gather <= 0 or
                load * self.bytes_per_token + gathered * self.gather <=
                self.budget)

    def holds(self, tokens, degree):
        rows = -(-tokens // degree)
        return self.fits(rows, tokens if degree > 1 else 0)

    def placeable(self, tokens):
        return any(self.holds(tokens, degree) for degree in self.degrees)

    @functools.cache
    def _least_seconds(self, tokens):
        """(least g * comp, least comp + exchange) of one sequence."""
        degrees = [g for g in self.degrees if self.holds(tokens, g)]
        scale = self.layers * self.collectives
        return (min(g * sum(self.comp(tokens, g)) for g in degrees),
                min(sum(self.comp(tokens, g)) + scale *
                    min((link.least_seconds(tokens * self.kv_bytes)
                         for link in self.degree_links[g]), default=0.0)
                    for g in degrees))

    def lower_bound(self, lengths):
        """The bound that the contract asks for at least."""
        rank_seconds = 0.0
        longest = 0.0
        for tokens in lengths:
            work, alone = self._least_seconds(tokens)
            rank_seconds += work
            longest = max(longest, alone)
        count = -(-sum(lengths) // (self.bucket * self.cp)) / self.dp
        count = max(1.0, math.ceil(count) if self.uniform else count)
        return max(rank_seconds / self.ranks + self.overhead * count,
                   longest + self.overhead)
