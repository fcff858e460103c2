"""Private training of neural networks: one schedule for noise, accounting and calibration, and a trainer that runs it.

Modules: `schedule` (noise, clipping and sampling of every step), `losses` (of single records), `gradients` (of single
records, clipped and summed), `training` (Poisson batches, noise), `classifier` (all of it as a scikit-
learn estimator), `decisions` (its private cut-off), `models` (that treat every record alone), `attention` (of few
tokens). The only room that imports PyTorch.
"""

from helpers.neural.classifier import DPNeuralClassifier
from helpers.neural.decisions import balanced_cut_off
from helpers.neural.gradients import clipped_sum
from helpers.neural.losses import CrossEntropy, Focal
from helpers.neural.models import FTTransformer, ResNet18, linear, load_pretrained, mlp, with_prior
from helpers.neural.schedule import Schedule
from helpers.neural.training import Trained, train

__all__ = [
    "CrossEntropy",
    "DPNeuralClassifier",
    "FTTransformer",
    "Focal",
    "ResNet18",
    "Schedule",
    "Trained",
    "balanced_cut_off",
    "clipped_sum",
    "linear",
    "load_pretrained",
    "mlp",
    "train",
    "with_prior",
]
