#!/usr/bin/env python3
"""The oracle itself: plans worked out by hand pass, each mutation is caught."""

import copy
import unittest

import contract
import contract_oracle
import fuzz
import job_spec
import pipeline

# With h = h_kv = 1, c1 = 24 and c2 = 4: at 0.125 s a FLOP a token costs 3 s, a
# token squared 0.5 s. K/V of a token are 4 bytes.
SPEC = """
model { hidden_size: 1 layer_count: 1 attention_head_count: 1 kv_head_count: 1
        head_dim: 1 }  # the smallest model there is
parallelism { dp_size: %(dp)d cp_size: %(cp)d block_scope: %(scope)s %(more)s }
memory { bucket_size_tokens: %(bucket)d %(memory)s }
cost { seconds_per_flop: 0.125, pass_multiplier: 1
       seconds_per_micro_batch: 100 collectives_per_layer: 1 %(cost)s
       intra_node { seconds_per_collective: 7 seconds_per_byte: 0.25 } }
"""


def job(dp=1, cp=2, bucket=10, scope="BLOCK_SCOPE_GROUP", more="", memory="",
        cost=""):
    return job_spec.Job(SPEC % locals())


def placement(sequence, token_count, first_rank, degree):
    return {"sequence": sequence, "token_count": token_count,
            "first_rank": first_rank, "degree": degree}


def micro_batch(placements, seconds, fullest):
    return {"placements": placements,
            "token_count": sum(p["token_count"] for p in placements),
            "predicted_seconds": seconds, "max_rank_tokens": fullest}


def two_ranks_plan():
    """[4, 1, 3] on two ranks: 4 sharded, 1 and 3 local.

    comp(4, 2) = (3*4 + 16/2) / 2 = 10; comp(1, 1) = 3.5; comp(3, 1) = 13.5.
    Exchange: 7 + 4 * 4 bytes * 0.25 = 11. Rank 0: max(11, 3.5) + 10 = 21;
    rank 1: max(11, 13.5) + 10 = 23.5.
    """
    return {
        "policy": "POLICY_OPTIMIZED",
        "micro_batches": [micro_batch(
            [placement(1, 1, 0, 1), placement(0, 4, 0, 2),
             placement(2, 3, 1, 1)], 123.5, 5)],
        "blocks": [{"first_rank": 0, "degree": 2}],
        "summary": {
            "predicted_seconds": 123.5,
            # max((20 + 3.5 + 13.5) / 2, min(20, 10 + 11)) + 100
            "lower_bound_seconds": 120.0,
            "roll_back_count": "0",
            "sharded_sequence_count": "1", "sharded_token_count": "4",
            "micro_batch_count": 1, "max_rank_tokens": 5,
            "rank_imbalance": 23.5 / 18.5 - 1}}


LENGTHS = [4, 1, 3]


class TextprotoTest(unittest.TestCase):

    def test_reads_nested_messages_lists_comments_and_strings(self):
        parsed = job_spec.parse_textproto(
            "a: 1 b { c: -2.5e-3, c: \"x # y\" } b { }"
            " d: [1, 2] # end\n e: TRUE_NAME")
        self.assertEqual(parsed, {"a": ["1"],
                                  "b": [{"c": ["-2.5e-3", "x # y"]}, {}],
                                  "d": ["1", "2"], "e": ["TRUE_NAME"]})

    def test_refuses_garbage(self):
        for text in ("a: }", "a {", "?", "1: 2"):
            with self.assertRaises((ValueError, IndexError)):
                job_spec.parse_textproto(text)


class BlocksTest(unittest.TestCase):

    def test_scopes(self):
        def wide(blocks):
            return [b for b in blocks if b[1] > 1]
        self.assertEqual(wide(job(dp=2, cp=3).blocks), [(0, 3), (3, 3)])
        self.assertEqual(
            wide(job(dp=1, cp=6, scope="BLOCK_SCOPE_SUBGROUP").blocks),
            [(0, 2), (0, 4), (0, 6), (2, 2), (4, 2)])
        self.assertEqual(
            wide(job(dp=3, cp=2, scope="BLOCK_SCOPE_POOL").blocks),
            [(0, 2), (0, 4), (0, 6), (2, 2), (4, 2)])


class CostTest(unittest.TestCase):

    def test_exact_formula(self):
        spec = SPEC % dict(dp=1, cp=1, bucket=9, scope="BLOCK_SCOPE_GROUP",
                           more="", memory="",
                           cost="flops_formula: FLOPS_FORMULA_EXACT")
        spec = spec.replace("head_dim: 1",
                            "head_dim: 1 intermediate_size: 5 vocab_size: 7")
        exact = job_spec.Job(spec)
        # c1 = 2 (2 + 2 + 15) = 38, c0 = 14, c2 = 2.
        self.assertEqual(exact.comp(3, 1), (0.125 * 52 * 3, 0.125 * 2 * 9))

    def test_efficiency_slows_attention_only(self):
        slow = job(cost="efficiency_half_tokens: 2")
        # eff(4 / 2) = 1/2.
        self.assertEqual(slow.comp(4, 2), (6.0, 8.0))

    def test_table_replaces_constants(self):
        spec = (SPEC % dict(dp=1, cp=2, bucket=9, scope="BLOCK_SCOPE_GROUP",
                            more="", memory="", cost="")).replace(
            "seconds_per_byte: 0.25", "table { bytes: 8 seconds: 1 } "
            "table { bytes: 16 seconds: 3 }")
        link = job_spec.Job(spec).intra
        self.assertEqual([link.seconds(b) for b in (0, 8, 12, 16, 24)],
                         [1, 1, 2, 3, 5])

    def test_two_ranks_by_hand(self):
        contract.check_plan(job(), LENGTHS, two_ranks_plan())

    def test_overlap_scope_attention(self):
        # Linear: rank 0 3 + 6, rank 1 9 + 6. Exchange 11 hides under local
        # attention: 0.5 and 4.5. Sharded attention: 4.
        clock = contract.Clock(job(cost="overlap_scope: OVERLAP_SCOPE_ATTENTION"))
        self.assertEqual(clock.run([(1, 1, 0, 1), (0, 4, 0, 2), (2, 3, 1, 1)]),
                         100 + 15 + 11 + 4)

    def test_components_wait_for_their_last_member(self):
        pool = job(dp=3, cp=1, scope="BLOCK_SCOPE_POOL")
        clock = contract.Clock(pool)
        clock.run([(0, 2, 0, 1)])               # rank 0: 108
        clock.run([(1, 2, 0, 2), (2, 1, 2, 1)])  # ranks 0 and 1 join
        joint = 100 + (7 + 2 * 4 * 0.25) + 4
        self.assertEqual(clock.ready, [108 + joint, 108 + joint, 103.5])

    def test_uniform_jobs_pay_for_empty_slots(self):
        pool = job(dp=2, cp=1, more="uniform_micro_batch_count: true")
        clock = contract.Clock(pool)
        self.assertEqual(clock.run([(0, 1, 1, 1)]), 103.5)
        self.assertEqual(clock.ready, [100, 103.5])
        self.assertEqual(clock.run([]), 100)


class PipelineTest(unittest.TestCase):

    @staticmethod
    def chunks(forward, backward_order, recomputed=()):
        slots = [[((0,), f, 2 * f + (f if i in recomputed else 0))]
                 for i, f in enumerate(forward)]
        return pipeline.train_times(4, [0], slots, backward_order)[0]

    def test_the_toy_of_chunk_flow(self):
        self.assertEqual(self.chunks([4, 2, 1, 1], [0, 1, 2, 3]), 56)
        self.assertEqual(self.chunks([2, 2, 2, 2], [0, 1, 3, 2]), 46)
        self.assertEqual(self.chunks([4, 4], [0, 1]), 60)
        self.assertEqual(self.chunks([2, 2, 2, 2], [0, 1, 3, 2], {2}), 54)
        self.assertEqual(self.chunks([2, 2, 2, 2], [0, 2, 1, 3], {1}), 52)

    def test_two_stages_by_hand(self):
        staged = job(dp=2, cp=1, more="pp_size: 2",
                     cost="backward_forward_ratio: 3")
        # Rank 0: 8 + 24 twice, rank 1: 41 + 123 once.
        self.assertEqual(
            pipeline.step_figures(staged, [[((0,), 32.0), ((1,), 164.0)],
                                           [((0,), 32.0)]]),
            (328.0, 1 - 2 * 228 / (4 * 328)))
        self.assertEqual(pipeline.step_figures(job(), [[((0,), 32.0)]]),
                         (0.0, 0.0))

    def test_a_plan_must_state_it(self):
        plan = two_ranks_plan()
        with self.assertRaisesRegex(contract.Violation, "pipeline_seconds"):
            contract.check_plan(job(more="pp_size: 2"), LENGTHS, plan)
        # One micro-batch: 123.5 on each stage, one after the other.
        plan["summary"].update(pipeline_seconds=247.0, pipeline_bubble=0.5)
        contract.check_plan(job(more="pp_size: 2"), LENGTHS, plan)
        with self.assertRaisesRegex(contract.Violation, "pipeline_seconds"):
            contract.check_plan(job(), LENGTHS, plan)


class MutationTest(unittest.TestCase):

    def refused(self, text, mutate, the_job=None):
        plan = copy.deepcopy(two_ranks_plan())
        mutate(plan)
        with self.assertRaisesRegex(contract.Violation, text):
            contract.check_plan(the_job or job(), LENGTHS, plan)

    def test_each_rule(self):
        mb = lambda plan: plan["micro_batches"][0]
        first = lambda plan: mb(plan)["placements"][0]
        self.refused("not in the batch", lambda p: first(p).update(sequence=3))
        self.refused("placed twice", lambda p: mb(p)["placements"].append(
            placement(2, 3, 0, 1)))
        self.refused("token_count", lambda p: first(p).update(token_count=2))
        self.refused("block", lambda p: first(p).update(degree=3))
        self.refused("block", lambda p: first(p).update(first_rank=-1))
        self.refused("not placed", lambda p: p["micro_batches"].pop())
        self.refused("rank 1", lambda p: None, job(bucket=4))
        self.refused("cap", lambda p: None,
                     job(memory="max_sequences_per_micro_batch: 2"))
        self.refused("gathers 4", lambda p: None, job(
            memory="bytes_per_token: 1 gather_bytes_per_token: 1.5"))
        for name in ("token_count", "max_rank_tokens", "predicted_seconds"):
            self.refused(name, lambda p, n=name: mb(p).update({n: 7}))
        self.refused("blocks", lambda p: p["blocks"].clear())
        self.refused("policy", lambda p: p.update(policy="POLICY_STATIC_CP"))
        for name in two_ranks_plan()["summary"]:
            self.refused(name, lambda p, n=name: p["summary"].update({n: -9}))
        self.refused("dp_imbalance",
                     lambda p: p["summary"].update(dp_imbalance=1))
        self.refused("lower_bound", lambda p: p["summary"].update(
            lower_bound_seconds=124))
        self.refused("digest", lambda p: p.update(digest="00"))

    def test_infinite_seconds(self):
        self.refused("predicted_seconds",
                     lambda p: p["micro_batches"][0].update(
                         predicted_seconds="Infinity"))


def chunk_job(retained=2, **more):
    return job_spec.Job(SPEC % dict(
        dict(dp=1, cp=1, bucket=4, scope="BLOCK_SCOPE_GROUP", more="",
             memory="", cost=""), **more) +
        "chunk_flow { retained_chunks: %d }" % retained)


def chunk(pieces, index, size, seconds):
    return {"dp_rank": 0, "group_index": index, "group_size": size,
            "pieces": [{"sequence": s, "token_count": n,
                        "range": {"begin": b, "end": e}}
                       for s, n, b, e in pieces],
            "token_count": sum(e - b for _, _, b, e in pieces),
            "predicted_seconds": seconds}


def operations(text):
    names = {"F": "FORWARD", "D": "FORWARD_DISCARD", "R": "RECOMPUTE",
             "B": "BACKWARD"}
    return [{"pass": "CHUNK_PASS_" + names[word[0]], "chunk": int(word[1:])}
            for word in text.split()]


CHUNKED = [5, 1, 1]


def chunked_plan():
    """[5, 1, 1] on one rank of four tokens, two chunks kept: chunks of two.

    3 s a token and 0.5 (e^2 - b^2) a piece: 8, 12, 7.5 and 7. Recomputing the
    first: a third of 8 + 100.
    """
    return {
        "policy": "POLICY_CHUNK_FLOW",
        "chunk_plan": {
            "chunk_size_tokens": 2, "retained_chunks": 2, "cp_size": 1,
            "chunks": [chunk([(0, 5, 0, 2)], 0, 3, 8.0),
                       chunk([(0, 5, 2, 4)], 1, 3, 12.0),
                       chunk([(0, 5, 4, 5)], 2, 3, 7.5),
                       chunk([(1, 1, 0, 1), (2, 1, 0, 1)], 0, 1, 7.0)],
            "schedules": [{"dp_rank": 0, "predicted_seconds": 470.5,
                           "operations": operations(
                               "D0 F1 F2 B2 B1 R0 B0 F3 B3")}]},
        "summary": {"predicted_seconds": 470.5,
                    # 34.5 + two chunks' overhead
                    "lower_bound_seconds": 234.5, "max_rank_tokens": 3}}


class ChunkTest(unittest.TestCase):

    def check(self, plan, the_job=None):
        contract.check_plan(the_job or chunk_job(), CHUNKED, plan,
                            "POLICY_CHUNK_FLOW")

    def refused(self, text, mutate, the_job=None):
        plan = chunked_plan()
        mutate(plan)
        with self.assertRaisesRegex(contract.Violation, text):
            self.check(plan, the_job)

    def test_by_hand(self):
        self.check(chunked_plan())

    def test_each_rule(self):
        chunks = lambda plan: plan["chunk_plan"]["chunks"]
        piece = lambda plan, i: chunks(plan)[i]["pieces"][0]
        schedule = lambda plan: plan["chunk_plan"]["schedules"][0]

        def order(text):
            return lambda plan: schedule(plan).update(
                operations=operations(text))

        self.refused("has none", lambda p: p.pop("chunk_plan"))
        self.refused("micro-batches", lambda p: p.update(micro_batches=[{}]))
        self.refused("uniform", lambda p: None,
                     chunk_job(more="uniform_micro_batch_count: true"))
        for name in ("cp_size", "retained_chunks"):
            self.refused(name, lambda p, n=name: p["chunk_plan"].update({n: 3}))
        self.refused("tokens > 1",
                     lambda p: p["chunk_plan"].update(chunk_size_tokens=1))
        self.refused("0 schedules",
                     lambda p: p["chunk_plan"]["schedules"].clear())
        self.refused("DP rank 1", lambda p: chunks(p)[0].update(dp_rank=1))
        self.refused("0 pieces", lambda p: chunks(p)[0]["pieces"].clear())
        self.refused("token_count",
                     lambda p: piece(p, 0).update(token_count=4))
        self.refused("token_count", lambda p: chunks(p)[0].update(token_count=1))
        self.refused("predicted_seconds",
                     lambda p: chunks(p)[1].update(predicted_seconds=11.0))
        self.refused("begins at", lambda p: chunks(p).__setitem__(
            1, chunk([(0, 5, 3, 5)], 1, 3, 6 + 0.5 * 16)))
        self.refused("group_index", lambda p: chunks(p)[1].update(group_index=2))
        self.refused("group_size", lambda p: chunks(p)[1].update(group_size=4))
        self.refused("tokens are in chunks", lambda p: chunks(p).pop())
        self.refused("left undone", lambda p: schedule(p).update(
            operations=operations("D0 F1 F2 B2 B1 R0 B0"),
            predicted_seconds=363.5))
        self.refused("not kept", order("D0 F1 F2 B2 B1 B0"))
        self.refused("backward too early", order("F0 F1 B0"))
        self.refused("forward too early", order("F1"))
        self.refused("again", order("F0 F0"))
        self.refused("recompute", order("F0 R0"))
        self.refused("3 kept", order("F0 F1 F2"), chunk_job(bucket=9))
        self.refused("5 tokens", order("F0 F1 F2"), chunk_job(retained=2))
        self.refused("single chunk", order("D0 F1 F2 B2 B1 R0 B0 D3"))
        self.refused("predicted_seconds",
                     lambda p: schedule(p).update(predicted_seconds=1.0))
        self.refused("K/V of 5", lambda p: None, chunk_job(
            memory="bytes_per_token: 1 gather_bytes_per_token: 0.5"))
        for name in chunked_plan()["summary"]:
            self.refused(name, lambda p, n=name: p["summary"].update({n: 1}))

    def test_refusals(self):
        text = "uniform_micro_batch_count must be false"
        uniform = chunk_job(more="uniform_micro_batch_count: true")
        policy = "POLICY_CHUNK_FLOW"
        contract.check_refusal(uniform, [1], {
            "code": "INVALID_ARGUMENT", "message": text}, policy)
        self.assertTrue(contract.must_be_refused(uniform, [1], policy))
        # Five chunks of one token where a rank holds four.
        self.assertFalse(contract.must_be_refused(chunk_job(5), [4], policy))
        self.assertTrue(contract.must_be_refused(chunk_job(5), [5], policy))
        self.assertFalse(contract.must_be_refused(chunk_job(4), [99], policy))
        with self.assertRaisesRegex(contract.Violation, "every sequence fits"):
            contract.check_refusal(chunk_job(), [99], {
                "code": "FAILED_PRECONDITION", "message": "99"}, policy)


class RefusalTest(unittest.TestCase):

    def test_justified(self):
        error = {"code": "FAILED_PRECONDITION",
                 "message": "sequence 0: 21 tokens > 20"}
        contract.check_refusal(job(), [21], error)
        with self.assertRaisesRegex(contract.Violation, "every sequence fits"):
            contract.check_refusal(job(), [20], error)
        with self.assertRaisesRegex(contract.Violation, "does not say 22"):
            contract.check_refusal(job(), [22], error)

    def test_simulated_out_of_memory(self):
        without = job_spec.Job(SPEC % dict(
            dp=1, cp=2, bucket=10, scope="BLOCK_SCOPE_GROUP", more="",
            memory="bytes_per_token: 1 gather_bytes_per_token: 0.5",
            cost="") +
            "heuristic { roll_back: false } policy: POLICY_SKRULL")
        text = ("out of memory (simulated): in micro-batch %d rank %d holds %d "
                "tokens%s, more than")
        gathers = " and gathers the K/V of 3"
        for place in ((0, 1, 11, ""), (1, 0, 9, gathers)):
            error = {"code": "FAILED_PRECONDITION", "message": text % place}
            contract.check_refusal(without, [1, 10], error)
            with self.assertRaisesRegex(contract.Violation, "cannot run out"):
                contract.check_refusal(job(), [1, 10], error)
            with self.assertRaisesRegex(contract.Violation, "cannot run out"):
                contract.check_refusal(without, [1, 10], error,
                                       "POLICY_SORTED")
        for place in ((0, 1, 10, ""), (2, 1, 11, ""), (0, 2, 11, ""),
                      (0, 1, 12, ""), (0, 1, 8, gathers)):
            with self.assertRaisesRegex(contract.Violation, "no overflow"):
                contract.check_refusal(
                    without, [1, 10],
                    {"code": "FAILED_PRECONDITION", "message": text % place})

    def test_a_batch_that_never_fits_must_be_refused(self):
        self.assertTrue(contract.must_be_refused(job(), [1, 21]))
        self.assertFalse(contract.must_be_refused(job(), [20]))
        gather = job(memory="bytes_per_token: 1 gather_bytes_per_token: 0.5")
        self.assertTrue(contract.must_be_refused(gather, [11]))


class InputTest(unittest.TestCase):

    def test_lengths_files(self):
        self.assertEqual(contract_oracle.read_lengths(
            "# head\n5\n\n7 # tail\n{\"length\": 9, \"id\": \"#\"}\n"),
            [5, 7, 9])
        self.assertEqual(contract_oracle.batches([1, 2, 3], 2), [[1, 2], [3]])

    def test_fuzz_jobs_can_be_read(self):
        for name, text, lengths, _, _ in fuzz.cases(200, "self"):
            the_job = job_spec.Job(text)
            self.assertGreaterEqual(the_job.bucket, 1, name)
            self.assertTrue(lengths, name)
            self.assertIn((0, 1), the_job.block_set, name)


if __name__ == "__main__":
    unittest.main()
