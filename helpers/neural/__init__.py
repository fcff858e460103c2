"""Private training of neural networks: one schedule for noise, accounting and calibration, and a trainer that runs it.

Modules: `schedule` (noise, clipping and sampling of every step), `losses` (of single records), `training` (per-record
gradients, Poisson batches, checkpoints). The only room that imports PyTorch.
"""

from helpers.neural.losses import LDAM, CrossEntropy, Focal, LogitAdjusted, effective_number_weights
from helpers.neural.schedule import Schedule
from helpers.neural.training import ExecutedStep, Trained, clipped_sum, poisson_sample, read_checkpoint, train

__all__ = [
    "LDAM",
    "CrossEntropy",
    "ExecutedStep",
    "Focal",
    "LogitAdjusted",
    "Schedule",
    "Trained",
    "clipped_sum",
    "effective_number_weights",
    "poisson_sample",
    "read_checkpoint",
    "train",
]
