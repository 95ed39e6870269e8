"""Better orders by simulated annealing: random exchanges of neighbouring steps, of which fewer and fewer add work.

A step P = (X Y) Z is exchanged for (X Z) Y or (Y Z) X. It is accepted with the probability of Metropolis at the
temperature T for the logarithm of the work of its two products, since the work of different steps differs by many
orders of magnitude. T falls from HOT to COLD. Such exchanges reach every tree (Robinson, J. Comb. Theory B 11, 105,
1971); `simulated_anneal` of cotengra's trees makes them too.
"""

from __future__ import annotations

from math import exp, fsum, log2
from random import Random

from trnqc.contraction.order.network import LabelNetwork, Splits
from trnqc.contraction.time_limit import ORDER, leave_out, spent

# Sweeps, in each of which as many exchanges are tried as there are steps: one for so many multiply-adds, so that the
# search does not take longer than a run, but not below the first and not above the second number. An exchange takes
# 2 microseconds.
FOR_A_SWEEP, FEWEST, MOST = 3e6, 1000, 10_000
# The logarithm of an amount of work that is worth the most sweeps, whose power of two is a number.
MUCH = 100.0
# Temperatures at first and at last, in powers of two of the work of an exchange.
HOT, COLD = 1.0, 0.05
# Share of the time for orders after which the annealing has cooled down. Subtrees are optimised in the rest.
SHARE = 0.8
# What is reported as not searched if it had to cool down faster.
ANNEALING = "exchanges of steps of the product"


def annealed(network: LabelNetwork, splits: Splits) -> Splits:
    """Return the order of least work that occurs in the annealing of an order, which may be that order itself.

    Symmetry of the operands is not counted in the work. The result depends on the time only if the time limit does not
    suffice for all sweeps.
    """
    begin = spent(ORDER)
    if 0 in network.extents or len(splits) < 2:
        return splits
    tree = _Tree(network, splits)
    least, best = tree.work(), splits
    random = Random(0)
    for sweep in range(MOST):
        cooled = sweep / _sweeps(least)
        passed = (spent(ORDER) - begin) / (SHARE - begin) if begin < SHARE else 1.0
        if cooled >= 1:
            break
        if passed >= 1:
            leave_out(ANNEALING)
            break
        tree.sweep(HOT * (COLD / HOT) ** max(cooled, passed), random)
        if (work := tree.work()) < least:
            least, best = work, tree.splits()
    return best


def _sweeps(work: float) -> float:
    """Return the number of sweeps for an order, given the logarithm of its multiply-adds."""
    return min(max(FEWEST, 2.0 ** min(work, MUCH) / FOR_A_SWEEP), MOST)


class _Tree:
    """An order as arrays over its steps, of which `left` and `right` are the operands, followed by the operands.

    `kept` has the labels of each result, `costs` the logarithms of the multiply-adds of each step.
    """

    def __init__(self, network: LabelNetwork, splits: Splits) -> None:
        self.network = network
        self.parts = [*splits, *(1 << k for k in range(len(network.operands)))]
        number = {part: n for n, part in enumerate(self.parts)}
        self.left = [number[one] for one, _ in splits.values()]
        self.right = [number[two] for _, two in splits.values()]
        self.kept = [network.kept(part) for part in self.parts]
        self.costs = [network.log_size(self.kept[a] | self.kept[b]) for a, b in zip(self.left, self.right)]

    def work(self) -> float:
        """Return the logarithm of the multiply-adds of all steps."""
        most = max(self.costs)
        return most + log2(fsum(2.0 ** (cost - most) for cost in self.costs))

    def splits(self) -> Splits:
        """Return the order."""
        parts = self.parts
        return {parts[n]: (parts[a], parts[b]) for n, (a, b) in enumerate(zip(self.left, self.right))}

    def sweep(self, temperature: float, random: Random) -> None:
        """Try an exchange in steps that are drawn at random, as many as there are steps."""
        network, log_size, uniform = self.network, self.network.log_size, random.random
        parts, left, right, kept, costs = self.parts, self.left, self.right, self.kept, self.costs
        steps, gone = len(left), network.summed_in_pairs
        for _ in range(steps):
            step = int(uniform() * steps)
            child, other = left[step], right[step]
            if child >= steps or (other < steps and uniform() < 0.5):
                child, other = other, child
            if child >= steps:
                continue
            joined, apart = left[child], right[child]
            if uniform() < 0.5:
                joined, apart = apart, joined
            one, two = kept[joined], kept[other]
            labels = one ^ two
            if common := one & two & ~gone:
                labels |= network.needed(common, parts[joined] | parts[other])
            below, above = log_size(one | two), log_size(labels | kept[apart])
            growth = _sum(below, above) - _sum(costs[child], costs[step])
            if growth <= 0 or uniform() < exp(-growth / temperature):
                parts[child], kept[child] = parts[joined] | parts[other], labels
                left[child], right[child], left[step], right[step] = joined, other, child, apart
                costs[child], costs[step] = below, above


def _sum(one: float, two: float) -> float:
    """Return the logarithm of a sum, given the logarithms of its terms."""
    if one < two:
        one, two = two, one
    return one + log2(1.0 + 2.0 ** (two - one))
