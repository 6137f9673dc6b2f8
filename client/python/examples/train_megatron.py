"""A Megatron-Core GPTModel on planned batches.

    torchrun --nproc-per-node 4 train_megatron.py

Needs no GPU: on a machine without one, what Megatron asks CUDA for on its way is
answered with the CPU. Lines that a loop without skrull does not have end in `# +`.
"""

from __future__ import annotations

import tiny_qwen
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.parallel import DistributedDataParallel

import skrull
from skrull.integrations.data_parallel import gradient_sync
from skrull.integrations.megatron import (
    follow_positions,
    model_inputs,
    use_skrull,
)
from skrull.torch import (
    Session,
    SkrullDataLoader,
    global_label_count,
    token_weighted_loss,
)

JOB = """
model { hidden_size: 64 layer_count: 2 attention_head_count: 4 kv_head_count: 2
        head_dim: 16 intermediate_size: 128 vocab_size: 128 }
parallelism { dp_size: 1 cp_size: %d }
memory { bucket_size_tokens: 512 }
"""


def make_model() -> GPTModel:
    """Two layers; the same weights on every rank."""
    config = TransformerConfig(
        num_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        num_query_groups=2,
        ffn_hidden_size=128,
        gated_linear_unit=True,
        normalization="RMSNorm",
        attention_dropout=0.0,
        hidden_dropout=0.0,
        use_cpu_initialization=True,
        persist_layer_norm=False,
    )
    spec = get_gpt_layer_local_spec(normalization="RMSNorm")
    use_skrull(spec)  # +
    torch.manual_seed(0)
    model = GPTModel(
        config, spec, tiny_qwen.VOCABULARY, 2048, position_embedding_type="rope"
    )
    follow_positions(model)  # +
    return model


def connect(address: str | None, world_size: int) -> skrull.Engine:
    """The planner in this process, or a daemon's."""
    job = skrull.Job.from_text(JOB % world_size)
    if address is None:
        return skrull.local(job)
    return skrull.connect(address, job="example", spec=job)


def main() -> None:
    """Trains on a rank; torchrun starts one each."""
    options = tiny_qwen.arguments()
    if not torch.cuda.is_available():
        torch.cuda.current_device = lambda: "cpu"
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(1, 1)  # all ranks are data-parallel
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with (
        connect(options.address, world_size) as engine,  # +
        Session(  # +
            engine, rank, q_heads=4, kv_heads=2, head_dim=16, dtype=torch.float32
        ) as session,
    ):
        data = tiny_qwen.make_dataset(32 * options.steps)
        loader = SkrullDataLoader(data, engine, rank, batch_size=32)  # +
        for step in loader:
            session.prepare(step.rank_plan)  # +
            count = global_label_count(step.labels, world_size=world_size)  # +
            total = torch.zeros(())
            for index, batch in enumerate(step):
                with gradient_sync(model, when=index + 1 == len(step)):
                    inputs, labels = model_inputs(batch)  # +
                    loss = token_weighted_loss(  # +
                        model(**inputs), labels, count, world_scale=world_size
                    )
                    loss.backward()
                total += loss.detach() / world_size
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(total)
            if rank == 0:
                print(f"step {step.step}: loss {total.item():.4f}", flush=True)
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
