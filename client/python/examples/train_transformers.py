"""Hugging Face transformers' Trainer on planned batches.

    torchrun --nproc-per-node 4 train_transformers.py

Needs no GPU. Lines that a Trainer without skrull does not have end in `# +`.
"""

from __future__ import annotations

import tempfile

import tiny_qwen
from transformers import TrainingArguments

from skrull.integrations.trainer import SkrullTrainer
from skrull.integrations.transformers import session_of, use_skrull
from skrull.torch import SkrullDataLoader


def main() -> None:
    """Trains on a rank; torchrun starts one each."""
    options = tiny_qwen.arguments()
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(),
        max_steps=options.steps,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
    )
    rank, world_size = arguments.process_index, arguments.world_size
    model = tiny_qwen.make_model()
    data = tiny_qwen.make_dataset(32 * options.steps)
    use_skrull(model)  # +
    with (
        tiny_qwen.connect(options.address, model, world_size) as engine,  # +
        session_of(model, engine, rank) as session,  # +
    ):
        loader = SkrullDataLoader(data, engine, rank, batch_size=32)  # +
        trainer = SkrullTrainer(model, arguments, session=session, loader=loader)  # +
        trainer.train()
    if rank == 0:
        for entry in trainer.state.log_history:
            if "loss" in entry:
                print(f"step {entry['step'] - 1}: loss {float(entry['loss']):.4f}")


if __name__ == "__main__":
    main()
