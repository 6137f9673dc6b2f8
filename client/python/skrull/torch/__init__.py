"""Training with PyTorch: attention by plan, batches by plan, losses that add up.

Needs torch >= 2.4. ``import skrull`` alone does not import torch.
"""

from skrull.torch.attention import attention
from skrull.torch.batch import TrainBatch, TrainMicroBatch
from skrull.torch.loader import SkrullDataLoader
from skrull.torch.loss import global_label_count, label_count, token_weighted_loss
from skrull.torch.rendezvous import InProcessPeers
from skrull.torch.reporting import StepReporter
from skrull.torch.retry import run_step
from skrull.torch.sampler import SkrullBatchSampler, StepPlan
from skrull.torch.session import Session
from skrull.torch.step import Part, Step

__all__ = [
    "InProcessPeers",
    "Part",
    "Session",
    "SkrullBatchSampler",
    "SkrullDataLoader",
    "Step",
    "StepPlan",
    "StepReporter",
    "TrainBatch",
    "TrainMicroBatch",
    "attention",
    "global_label_count",
    "label_count",
    "run_step",
    "token_weighted_loss",
]
