"""Private training of neural networks: one schedule for noise, accounting and calibration, and a trainer that runs it.

Modules: `schedule` (noise, clipping and sampling of every step), `losses` (of single records), `gradients` (of single
records, clipped and summed), `training` (Poisson batches, noise), `classifier` (all of it as a scikit-
learn estimator), `decisions` (its private cut-off), `models` (that treat every record alone), `attention` (of few
tokens). The only room that imports PyTorch.
"""

from helpers.neural.classifier import DPNeuralClassifier
from helpers.neural.decisions import balanced_cut_off
from helpers.neural.gradients import clipped_sum
from helpers.neural.losses import LDAM, CrossEntropy, Focal, LogitAdjusted, effective_number_weights
from helpers.neural.models import FTTransformer, ResNet18, linear, load_pretrained, mlp, with_prior
from helpers.neural.schedule import Schedule
from helpers.neural.training import ExecutedStep, Trained, poisson_sample, train

__all__ = [
    "LDAM",
    "CrossEntropy",
    "DPNeuralClassifier",
    "ExecutedStep",
    "FTTransformer",
    "Focal",
    "LogitAdjusted",
    "ResNet18",
    "Schedule",
    "Trained",
    "balanced_cut_off",
    "clipped_sum",
    "effective_number_weights",
    "linear",
    "load_pretrained",
    "mlp",
    "poisson_sample",
    "train",
    "with_prior",
]
