"""One thread and one seed of PyTorch: for the tests of helpers.neural, whose models then start alike in every run."""

import pytest
import torch


@pytest.fixture
def one_thread_and_one_seed():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.set_num_threads(before)
