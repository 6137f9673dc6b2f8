"""A model of your own under DDP, or FSDP with --fsdp, on sequences of any length.

    torchrun --nproc-per-node 4 train_ddp.py                        # plans here
    torchrun --nproc-per-node 4 train_ddp.py --address HOST:7419    # at a daemon

Needs no GPU. Lines that a loop without skrull does not have end in `# +`.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import skrull
from skrull.integrations.data_parallel import gradient_sync
from skrull.torch import (
    Session,
    SkrullDataLoader,
    attention,
    global_label_count,
    token_weighted_loss,
)

VOCABULARY, WIDTH, HEADS, KV_HEADS, HEAD_DIM = 128, 64, 4, 2, 16
JOB = """
model { hidden_size: 64 layer_count: 2 attention_head_count: 4 kv_head_count: 2
        head_dim: 16 intermediate_size: 256 vocab_size: 128 }
parallelism { dp_size: 1 cp_size: %d }
memory { bucket_size_tokens: 512 }
"""


class Layer(nn.Module):
    """Attention and a feed-forward part, with their residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.q = nn.Linear(WIDTH, HEADS * HEAD_DIM)
        self.kv = nn.Linear(WIDTH, 2 * KV_HEADS * HEAD_DIM)
        self.out = nn.Linear(HEADS * HEAD_DIM, WIDTH)
        self.feed_forward = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor, micro_batch: skrull.MicroBatch) -> torch.Tensor:
        """X and result [rows, WIDTH]."""
        rows = x.shape[0]
        y = self.norms[0](x)
        q = self.q(y).view(rows, HEADS, HEAD_DIM)
        k, v = self.kv(y).view(rows, 2, KV_HEADS, HEAD_DIM).unbind(1)
        o = attention(q, k, v, micro_batch)  # +
        x = x + self.out(o.reshape(rows, HEADS * HEAD_DIM))
        return x + self.feed_forward(self.norms[1](x))


class Model(nn.Module):
    """A decoder with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(1024, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        micro_batch: skrull.MicroBatch,
    ) -> torch.Tensor:
        """input_ids and position_ids [1, rows] -> logits [1, rows, VOCABULARY]."""
        x = self.tokens(input_ids[0]) + self.positions(position_ids[0])
        for layer in self.layers:
            x = layer(x, micro_batch)
        return self.head(x[None])


def make_dataset(count: int) -> list[dict[str, torch.Tensor]]:
    """Sequences of 1 .. 1024 tokens, few of them long; one counts up."""
    random = torch.Generator().manual_seed(1)
    lengths = torch.empty(count).log_normal_(4.0, 1.2, generator=random)
    return [
        {"input_ids": (torch.arange(length) + length) % VOCABULARY}
        for length in lengths.long().clamp(1, 1024).tolist()
    ]


def connect(address: str | None, world_size: int) -> skrull.Engine:
    """The planner in this process, or a daemon's."""
    job = skrull.Job.from_text(JOB % world_size)
    if address is None:
        return skrull.local(job)
    return skrull.connect(address, job="example", spec=job)


def main() -> None:
    """Trains on a rank; torchrun starts one each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", help="HOST:PORT of a skrulld")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--fsdp", action="store_true")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model: nn.Module = Model()
    if arguments.fsdp:
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    with (
        connect(arguments.address, world_size) as engine,  # +
        Session(  # +
            engine,
            rank,
            q_heads=HEADS,
            kv_heads=KV_HEADS,
            head_dim=HEAD_DIM,
            dtype=torch.float32,
        ) as session,
    ):
        data = make_dataset(32 * arguments.steps)
        loader = SkrullDataLoader(data, engine, rank, batch_size=32)  # +
        for step in loader:
            session.prepare(step.rank_plan)  # +
            labels = global_label_count(step.labels, world_size=world_size)  # +
            total = torch.zeros(())
            for index, batch in enumerate(step):
                with gradient_sync(model, when=index + 1 == len(step)):
                    logits = model(
                        batch.input_ids, batch.position_ids, batch.micro_batch
                    )
                    loss = token_weighted_loss(  # +
                        logits, batch.labels, labels, world_scale=world_size
                    )
                    loss.backward()
                total += loss.detach() / world_size
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(total)
            if rank == 0:
                print(f"step {step.step}: loss {total.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
