"""Ends, and so does a child of it, with sessions and a graph that nobody closed."""

import os

import pool
import skrull
from skrull.torch import InProcessPeers, attention

import torch

engine = skrull.local(pool.make_job(bucket=64))
share = engine.plan(0, [6]).rank_plan(0)
peers = [InProcessPeers(), InProcessPeers()]
sessions = [pool.open_session(engine, 0, one) for one in peers]
steps = [session.prepare(share) for session in sessions]
q = torch.randn(6, 4, 8, dtype=torch.float64, requires_grad=True)
o = attention(q, q[:, :2], q[:, :2], steps[0][0])
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    print(f"left open, as by a child that ended with {status}", flush=True)
