"""Schedules: which loops to fuse, which work to repeat and which tiles to keep, so that a memory limit is met.

tree ─ fusion_front ─► fusions, with and without repeated work ─ best_tiles ─► tiles within the limit ─► TreeSchedule

A limit that no schedule meets is an error that states the least memory possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from trnqc.contraction.memory.fusion import fusion_front
from trnqc.contraction.memory.fusion_graph import FusedTree, sliced
from trnqc.contraction.memory.loop_nest import FusedNest, inner_operand, nest_of
from trnqc.contraction.memory.slicer import sliced_within
from trnqc.contraction.memory.tiled_loops import Goal, TiledLoops
from trnqc.contraction.memory.tiles import Tiles, best_tiles
from trnqc.contraction.products.slices import LEAST_SCRATCH
from trnqc.contraction.time_limit import FUSION, out_of_time
from trnqc.contraction.tree import Tree
from trnqc.errors import InputError, MemoryLimit

# Uniform tile sizes for which fusions are searched: the best fusion for single elements need not be the best for large
# tiles.
SEEDS = (1, 16, 128)
# Partial solutions that are followed for each array; enough for the exact front of a small tree.
FOLLOWED = 100
# Elements for copies of operands: the most that a run uses, and the least with which it runs.
LARGE_SCRATCH, SMALL_SCRATCH = 2**20, 64
# Elements set aside for three buffers of 8192 elements, through which NumPy casts, and for Python objects.
BUFFERS = 2**16
# Number of steps above which slices are searched for in place of fusions, whose number grows too fast.
MANY = 16
# Number of fusions whose tiles are searched, the best guess first.
CANDIDATES = 4


@dataclass(frozen=True)
class TreeSchedule:
    """How a tree is computed within a limit.

    Attributes
    ----------
    nest : FusedNest
        The fused loops with their tiles and the arena of temporaries.
    scratch : int
        Elements for copies of operands, beside the arena.
    reordered : Tree or None
        The tree in the order that the loops follow, if this is not the order of the tree that was given.
    """

    nest: FusedNest
    scratch: int
    reordered: Tree | None = None

    @property
    def fusion(self) -> FusedTree:
        """The fused loops with their tiles."""
        return self.nest.fusion

    @property
    def memory(self) -> int:
        """Elements that a run holds beside operands and result."""
        return self.nest.arena + self.scratch

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return self.fusion.work

    def __str__(self) -> str:
        fusion = self.fusion
        split = [label for label in sorted(fusion.tiles) if fusion.turns(label) > 1]
        tiles = ", ".join(f"{label}: {fusion.tile(label)}" for label in split) or "none"
        return (
            f"{self.fusion}\ntiles: {tiles}\n"
            f"memory: {self.nest.arena:.4g} elements in one arena, {self.scratch:.4g} of scratch\n"
            f"{self.nest}"
        )


def schedule(tree: Tree, limit: int | None = None, scratch: int = 0, goal: Goal = "time") -> TreeSchedule:
    """Return the schedule of least estimated time that holds at most `limit` elements, scratch included.

    Parameters
    ----------
    tree : Tree
        The operations.
    limit : int, optional
        Elements that a run may hold; None for no limit.
    scratch : int
        Elements for copies of operands.
    goal : {"time", "work"}
        "work" minimises the multiply-adds instead, as the tables of the literature do.

    Raises
    ------
    ElementLimit
        If no schedule fits.

    Notes
    -----
    If the time limit is reached before all fusions are examined, the whole tree in tiles is one more candidate.
    """
    plain = nest_of(FusedTree(tree))
    if limit is None or plain.arena + scratch <= limit:
        return TreeSchedule(plain, scratch)
    room = limit - scratch
    if len(tree.nodes) > MANY and not any(leaf.cost for leaf in tree.leaves):
        found = sliced_within(tree, room)
        if found is not None:
            followed, nest = found
            return TreeSchedule(nest, scratch, None if followed is tree else followed)
    forms = _forms(tree, scratch)
    if out_of_time("loops that steps share", FUSION):
        forms.append(TiledLoops(sliced(tree)))
    fitting = [form for form in forms if form.arena(form.uniform(1))[0] <= room]
    if not fitting:
        raise ElementLimit(tree.root.name, min(int(form.arena(form.uniform(1))[0]) for form in forms) + scratch, limit)
    guessed = sorted(fitting, key=lambda form: form.guess(room, goal))[:CANDIDATES]
    best = _Search(tree, room, scratch, goal).best(guessed)
    return TreeSchedule(best.form.tiled(best.tiles), scratch)


class ElementLimit(MemoryLimit):
    """No schedule of the tree `name` meets a limit in elements.

    The least sufficient limit is `needed`; other results hold `taken` elements of the limit meanwhile.
    """

    def __init__(self, name: str, needed: int, limit: int, taken: int = 0) -> None:
        self.name, self.needed, self.taken = name, needed, taken
        super().__init__(
            f"{self.what} need {needed} elements at least, but the limit is {limit}: raise it to {needed} or more"
        )

    @property
    def what(self) -> str:
        """Description, for the message, of the arrays that need the memory."""
        return f"the temporaries of {self.name}" + (" and the results that are held meanwhile" if self.taken else "")


def schedule_within(tree: Tree, limit: int) -> TreeSchedule:
    """Return `schedule` with parts of the limit set aside for copies of operands and for NumPy's buffers."""
    free = limit - _reserved(limit)
    scratch = min(free // 5, LARGE_SCRATCH)
    try:
        return schedule(tree, free, scratch)
    except ElementLimit as error:
        arena = error.needed - scratch
    try:
        return schedule(tree, free, SMALL_SCRATCH)
    except ElementLimit as error:
        # Some loops exist only with scratch, so that the least arena may differ between both attempts.
        least = min(error.needed, arena + max(arena - 1, 0) // 4)
        raise ElementLimit(error.name, least + min(max(least - 1, 0) // 3, BUFFERS), limit) from None


def with_scratch(schedule: TreeSchedule, limit: int) -> TreeSchedule | None:
    """Return the schedule with as much room for copies as the limit leaves, None if its temporaries do not fit."""
    room = limit - _reserved(limit) - schedule.nest.arena
    return None if room < SMALL_SCRATCH else replace(schedule, scratch=min(schedule.scratch, room))


def _reserved(limit: int) -> int:
    """Return the elements of a limit that are set aside for NumPy."""
    return min(limit // 4, BUFFERS)


def _forms(tree: Tree, scratch: int) -> list[TiledLoops]:
    """Return the candidates: every fusion, also with a temporary in the memory of the result."""
    forms = [TiledLoops(fusion) for fusion in _fusions(tree)]
    name = inner_operand(FusedTree(tree))
    # A block that is exchanged in place is at least as long as the axis that is summed.
    if name and scratch >= LEAST_SCRATCH + max(index.extent for index in tree.indices.values()):
        # Nothing is fused with the array in the result's memory: it is the result of the steps before it.
        top = next(node for node in tree.nodes if node.name == name)
        labels = {label for node in Tree(top, tree.indices).nodes for label in node.loops}
        before = Tree(top, {label: index for label, index in tree.indices.items() if label in labels})
        forms += [TiledLoops(FusedTree(tree, fusion.fused), name, scratch) for fusion in _fusions(before)]
    return forms


def _fusions(tree: Tree) -> list[FusedTree]:
    """Return the fusions worth trying, each once."""
    fusions: dict[tuple[tuple[str, frozenset[str]], ...], FusedTree] = {}
    for recompute in (False, True):
        for tile in SEEDS:
            tiles = dict.fromkeys(tree.indices, tile)
            for fusion in fusion_front(tree, recompute=recompute, tiles=tiles, keep=FOLLOWED).fusions:
                fusions.setdefault(tuple(sorted(fusion.fused.items())), fusion)
    return list(fusions.values())


@dataclass(frozen=True)
class _Tiled:
    """Fused loops with their best tiles and the cost."""

    form: TiledLoops
    tiles: Tiles
    value: float


class _Search:
    """The search for fused loops with their best tiles.

    Fusions of least memory share more loops than a limit requires. From each of them the search moves to fusions that
    share one loop less between an array and its consumer, as long as that helps.
    """

    def __init__(self, tree: Tree, room: int, scratch: int, goal: Goal) -> None:
        self.tree, self.room, self.scratch, self.goal = tree, room, scratch, goal
        self.known: dict[tuple[str | None, frozenset[tuple[str, frozenset[str]]]], _Tiled | None] = {}

    def best(self, forms: Iterable[TiledLoops]) -> _Tiled:
        """Return the best loops reached from any candidate."""
        return min((self.loosened(form) for form in forms), key=lambda tiled: tiled.value)

    def loosened(self, form: TiledLoops) -> _Tiled:
        """Return the best loops reached from one candidate.

        Each step leaves out loops of one turn, and then shares one loop less. The second part alone may make loops
        worse, so that a step is compared with the loops before it as a whole.
        """
        inside = form.nest.inside
        here = self.tiled(form.fusion.fused, inside)
        assert here is not None
        best = here
        while not out_of_time("loops that fewer steps share"):
            before = here.value
            here, fused = self.without_single_turns(here)
            around = [
                trial
                for name, labels in fused.items()
                for label in labels
                if (trial := self.tiled({**fused, name: labels - {label}}, inside))
            ]
            best = min([best, here, *around], key=lambda tiled: tiled.value)
            here = min(around, key=lambda tiled: tiled.value, default=here)
            if not around or here.value >= before:
                break
        return best

    def without_single_turns(self, tiled: _Tiled) -> tuple[_Tiled, Mapping[str, frozenset[str]]]:
        """Return loops that are no worse without those of one turn, and the fused indices without all of these."""
        fused = {name: self.looped(tiled, labels) for name, labels in tiled.form.fusion.fused.items()}
        fewer = self.tiled(fused, tiled.form.nest.inside)
        if fewer is None or fewer is tiled or fewer.value > tiled.value:
            return tiled, fused
        return self.without_single_turns(fewer)

    @staticmethod
    def looped(tiled: _Tiled, labels: frozenset[str]) -> frozenset[str]:
        """Return the labels with several turns; the others might as well not be fused."""
        return frozenset(label for label in labels if tiled.tiles[label] < tiled.form.extents[label])

    def tiled(self, fused: Mapping[str, frozenset[str]], inside: str | None) -> _Tiled | None:
        """Return fused loops with their best tiles; None if they are no loop nest or do not fit."""
        shared = {name: labels for name, labels in fused.items() if labels}
        key = inside, frozenset(shared.items())
        if key not in self.known:
            self.known[key] = None
            with suppress(InputError):
                form = TiledLoops(FusedTree(self.tree, shared), inside, self.scratch)
                if best := best_tiles(form.extents, form.within(self.room, self.goal)):
                    self.known[key] = _Tiled(form, *best)
        return self.known[key]
