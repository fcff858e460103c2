"""Stability of two variants of oversampling: copies drawn at random, and several classes at once."""

from collections.abc import Sequence

from helpers.privacy import REPLACE_ONE, ChangedRows
from helpers.resampling.oversampling import substitution_bound


def multiclass_substitution_bound(n_new: Sequence[int], counts: Sequence[int]) -> int:
    """Substitutions that one replaced record causes when N_k copies are made in class k.

    A record that moves from class a to class b takes its own ceil(N_a/n_a) copies out of class a, whose other
    members fill the gap, and in class b, of n_b + 1 records then, ceil(N_b/(n_b + 1)) copies of others make room
    for its own. Hence 1 plus the *sum* over the two classes; the larger of the two alone is exceeded as soon as
    two classes are oversampled.

    Parameters
    ----------
    n_new : sequence of K int
        N_k >= 0, fixed and public.
    counts : sequence of K int
        n_k >= 1 in one of the two data sets.

    Source: corrects the extension in Rosenblatt et al. 2025, Section 6.

    >>> multiclass_substitution_bound([0, 1000, 1000], [5000, 100, 100])
    21
    """
    loss = [substitution_bound(n, count) - 1 for n, count in zip(n_new, counts, strict=True)]
    gain = [substitution_bound(n, count + 1) - 1 for n, count in zip(n_new, counts, strict=True)]
    moves = [loss[a] + gain[b] for a in range(len(loss)) for b in range(len(gain)) if a != b]
    return 1 + max([*loss, *moves])


def random_copies(*, n_new: int, n_minority: int) -> ChangedRows:
    """Stability of *random* oversampling: 1 + Bin(N, 1/n1) substituted rows, under replace-one.

    N copies are drawn independently and uniformly from the minority records (imbalanced-learn's RandomOverSampler).
    Take neighbours with n1 >= n1' minority records. Draw N members of the first data set; in the second take the same
    records, except that a draw of the replaced record becomes a draw of its replacement (same class) or a fresh
    uniform draw from the others (label flipped, n1' = n1 - 1). Both samples then have their own law, each row is
    changed with probability 1/n1 independently of the others, and the record's own row is changed too.

    A pure learner's guarantee is `log_mean`, exactly: a learner whose answer is e^eps0 times as likely with every copy
    attains it. In a flip the drawn row's law in the other data set is the common part alone, so that both directions
    obey the same bound.

    Parameters
    ----------
    n_new : int
        N, fixed and public.
    n_minority : int
        Public lower bound, >= 1, on the number of minority records.

    >>> round(random_copies(n_new=400, n_minority=40).log_mean(0.1), 4)
    1.1503
    """
    return ChangedRows(REPLACE_ONE, certain=1, trials=n_new, probability=1 / n_minority, assumes=("secret copies",))
