"""DeepSpeed ZeRO on planned batches; --zero 2 or 3.

    torchrun --nproc-per-node 4 train_deepspeed.py --zero 3

Needs no GPU, with DS_ACCELERATOR=cpu. Lines that a loop without skrull does not
have end in `# +`.
"""

from __future__ import annotations

import deepspeed
import tiny_qwen
import torch
import torch.distributed as dist

from skrull.integrations.deepspeed import check_config, train_step
from skrull.integrations.transformers import model_inputs, session_of, use_skrull
from skrull.torch import (
    SkrullDataLoader,
    TrainMicroBatch,
    global_label_count,
    token_weighted_loss,
)


def main() -> None:
    """Trains on a rank; torchrun starts one each."""
    options = tiny_qwen.arguments()
    deepspeed.init_distributed("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    config = {
        "train_micro_batch_size_per_gpu": 1,  # of packed rows
        "gradient_accumulation_steps": 1,
        "zero_optimization": {"stage": options.zero},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    check_config(config)  # +
    model = tiny_qwen.make_model()
    use_skrull(model)  # +
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with (
        tiny_qwen.connect(options.address, model, world_size, options.zero) as planner,
        session_of(model, planner, rank) as session,  # +
    ):
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=config
        )
        data = tiny_qwen.make_dataset(32 * options.steps)
        loader = SkrullDataLoader(data, planner, rank, batch_size=32)  # +
        for step in loader:
            session.prepare(step.rank_plan)  # +
            labels_of_step = global_label_count(step.labels, world_size=world_size)  # +

            def loss_of(
                batch: TrainMicroBatch, count: int = labels_of_step
            ) -> torch.Tensor:
                inputs, labels = model_inputs(batch.to(engine.device))  # +
                logits = engine(**inputs).logits
                return token_weighted_loss(  # +
                    logits, labels, count, world_scale=world_size
                )

            total = train_step(engine, step, loss_of) / world_size  # +
            dist.all_reduce(total)
            if rank == 0:
                print(f"step {step.step}: loss {total.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
