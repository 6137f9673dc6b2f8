"""A ``transformers.Trainer`` whose batches are planned.

Example:
    >>> arguments = TrainingArguments(...)     # joins torch.distributed
    >>> use_skrull(model)
    >>> rank = arguments.process_index
    >>> loader = SkrullDataLoader(dataset, engine, rank, batch_size=256)
    >>> with session_of(model, engine, rank) as session:
    ...     SkrullTrainer(model, arguments, session=session, loader=loader).train()

Everything else is the ``Trainer``'s: optimizer, schedule, clipping, logging,
checkpoints, DDP or FSDP. One of its steps is one global batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer

from skrull.errors import InvalidArgumentError, UnsupportedError
from skrull.integrations.data_parallel import gradient_sync
from skrull.integrations.transformers import model_inputs
from skrull.torch import Session, global_label_count, token_weighted_loss

if TYPE_CHECKING:
    from skrull.torch import SkrullDataLoader, TrainBatch


class SkrullTrainer(Trainer):
    """Trains on what a ``SkrullDataLoader`` yields.

    The data loader decides about batch size, shuffling, epochs and where to resume:
    options of ``TrainingArguments`` about these have no effect, except how long to
    train. Evaluation has an attention implementation of its own to need: pass the
    model through ``set_attn_implementation("sdpa")`` for it.

    Args:
        *arguments: As of ``Trainer``.
        session: For the attention of the model.
        loader: This rank's.
        **options: As of ``Trainer``.

    Raises:
        InvalidArgumentError: ``gradient_accumulation_steps`` is not 1, or the
            ranks of torch.distributed are not those of the job.
        UnsupportedError: DeepSpeed is on; see ``skrull.integrations.deepspeed``.
    """

    def __init__(
        self,
        *arguments: Any,
        session: Session,
        loader: SkrullDataLoader,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._session = session
        self._loader = loader
        if self.args.gradient_accumulation_steps != 1:
            raise InvalidArgumentError(
                "gradient_accumulation_steps: must be 1, is "
                f"{self.args.gradient_accumulation_steps}: a plan says how many "
                "micro-batches a step has",
                field="gradient_accumulation_steps",
            )
        if self.args.world_size != session.engine.world_size:
            raise InvalidArgumentError(
                f"there are {self.args.world_size} ranks, where the job has "
                f"{session.engine.world_size} (dp_size * cp_size)"
            )
        if self.is_deepspeed_enabled:
            raise UnsupportedError(
                "DeepSpeed inside the Trainer is not supported: use a loop of your own "
                "with skrull.integrations.deepspeed"
            )

    def get_train_dataloader(self) -> Any:
        """The loader as it is: its batches are this rank's already."""
        return self._loader

    def training_step(  # type: ignore[override]
        self, model: torch.nn.Module, inputs: TrainBatch, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Forward and backward of all micro-batches of a step.

        Args:
            model: Wrapped by DDP or FSDP.
            inputs: This rank's share of the global batch.
            num_items_in_batch: Not used: a batch is one whole step.

        Returns:
            This rank's loss, detached: the mean over the ranks is that of the
            global batch.
        """
        model.train()
        self._session.prepare(inputs.rank_plan)
        labels_of_step = global_label_count(
            inputs.labels, world_size=self.args.world_size
        )
        loss_sum = torch.zeros((), device=self.args.device)
        for index, batch in enumerate(inputs):
            with gradient_sync(model, when=index + 1 == len(inputs)):
                keywords, labels = model_inputs(batch.to(self.args.device))
                loss = token_weighted_loss(
                    model(**keywords).logits,
                    labels,
                    labels_of_step,
                    world_scale=self.args.world_size,
                )
                self.accelerator.backward(loss)
            loss_sum += loss.detach()
        return loss_sum

    def floating_point_ops(self, inputs: TrainBatch) -> int:  # type: ignore[override]
        """Of this rank's rows, by the model's own count."""
        return sum(
            super(SkrullTrainer, self).floating_point_ops({"input_ids": b.input_ids})
            for b in inputs
        )
