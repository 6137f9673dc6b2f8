"""One rank as a process: host_rank.py RANK RANKS FILE; the ranks meet at FILE.

When all is checked, rank 1 kills itself and the others must notice.
"""

import os
import signal
import sys

import pool
import skrull
import torch.distributed
from skrull.torch import Session, global_label_count

rank, ranks, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{file}", rank=rank, world_size=ranks
)
lengths = [1, 2, 5, 45]
engine = skrull.local(pool.make_job(cp=ranks, bucket=54 // ranks))
share = engine.plan(0, lengths).rank_plan(rank)
batch = pool.Batch.random(lengths)
with Session(
    engine,
    rank,
    q_heads=pool.Q_HEADS,
    kv_heads=pool.KV_HEADS,
    head_dim=pool.HEAD_DIM,
    dtype=torch.float64,
    time_limit=60,
) as session:
    for _ in range(2):
        for part in session.prepare(share):
            pool.check_micro_batch(part.micro_batch, batch)
        session.restart()
    count = global_label_count([torch.tensor([rank, -100])], world_size=ranks)
    assert count == ranks, count
    print(f"rank {rank} is right", flush=True)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        session.agree("all are well")
    except skrull.SkrullError as error:
        print("rank 1 is missed" if "rank 1" in error.message else error.message)
