"""Space against time: which loops to fuse, which work to repeat and which tiles to keep, so that a limit is met.

    tree ─ fronts of fusions, with and without repeated work ─► forms ─ tile sizes within the limit ─► Schedule

A limit that cannot be met is one error that prints the least memory possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from trnqc.contraction.memory.fusion import fusion_front
from trnqc.contraction.memory.fusion_graph import Fusion, sliced
from trnqc.contraction.memory.loop_nest import Nest, inner_operand, nest_of
from trnqc.contraction.memory.tiled_form import Form, Goal
from trnqc.contraction.memory.tiles import Tiles, best_tiles
from trnqc.contraction.run.slices import LEAST_SCRATCH
from trnqc.contraction.time_limit import FUSION, out_of_time
from trnqc.contraction.tree import Tree
from trnqc.errors import InputError, MemoryLimit

# Uniform tiles at which fronts of fusions are made: what is best with scalars need not be with large tiles.
SEEDS = (1, 16, 128)
# Partial solutions followed for each array; the front of a small tree needs no more.
FOLLOWED = 100
# Elements: what a run may spend on copies at most, and what is enough to run at all.
LARGE_SCRATCH, SMALL_SCRATCH = 2**20, 64
# Elements: three buffers of 8192 elements that NumPy casts and copies through, and the objects of Python.
BUFFERS = 2**16
# How many fusions have their tiles searched, best guess first.
CANDIDATES = 4


@dataclass(frozen=True)
class Schedule:
    """How a tree is computed within a limit. scratch: elements for copies that products need, besides the arena."""

    nest: Nest
    scratch: int

    @property
    def fusion(self) -> Fusion:
        return self.nest.fusion

    @property
    def memory(self) -> int:
        """Elements that a run holds besides operands and result."""
        return self.nest.arena + self.scratch

    @property
    def work(self) -> int:
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


def schedule(tree: Tree, limit: int | None = None, scratch: int = 0, goal: Goal = "time") -> Schedule:
    """The schedule of least estimated time that holds at most `limit` elements, scratch included.

    goal: "work" for the fewest multiply-adds instead, which is what the paper's tables count. Where the time for
    planning is over before all ways to share loops were looked at, the whole tree in tiles is one more way.
    Errors: ElementLimit if no schedule needs that little.
    """
    plain = nest_of(Fusion(tree))
    if limit is None or plain.arena + scratch <= limit:
        return Schedule(plain, scratch)
    room = limit - scratch
    forms = _forms(tree, scratch)
    if out_of_time("loops that steps share", FUSION):
        forms.append(Form(sliced(tree)))
    fitting = [form for form in forms if form.arena(form.uniform(1))[0] <= room]
    if not fitting:
        raise ElementLimit(tree.root.name, min(int(form.arena(form.uniform(1))[0]) for form in forms) + scratch, limit)
    guessed = sorted(fitting, key=lambda form: form.guess(room, goal))[:CANDIDATES]
    best = _Search(tree, room, scratch, goal).best(guessed)
    return Schedule(best.form.tiled(best.tiles), scratch)


class ElementLimit(MemoryLimit):
    """A limit in elements that no schedule of the tree `name` meets.

    needed: the least limit that would do; taken: elements of it that other results hold meanwhile.
    """

    def __init__(self, name: str, needed: int, limit: int, taken: int = 0) -> None:
        self.name, self.needed, self.taken = name, needed, taken
        super().__init__(
            f"{self.what} need {needed} elements at least, but the limit is {limit}: raise it to {needed} or more"
        )

    @property
    def what(self) -> str:
        """What needs the memory."""
        return f"the temporaries of {self.name}" + (" and the results that are held meanwhile" if self.taken else "")


def schedule_within(tree: Tree, limit: int) -> Schedule:
    """`schedule` with parts of the limit set aside for the copies of products and for what NumPy itself holds."""
    free = limit - _reserved(limit)
    try:
        return schedule(tree, free, min(free // 5, LARGE_SCRATCH))
    except MemoryLimit:
        pass
    try:
        return schedule(tree, free, SMALL_SCRATCH)
    except ElementLimit as error:
        raise ElementLimit(error.name, _least_limit(error.needed - SMALL_SCRATCH), limit) from None


def _least_limit(arena: int) -> int:
    """The smallest limit within which `schedule_within` has room for an arena of so many elements."""
    free = min(arena + SMALL_SCRATCH, arena + max(arena - 1, 0) // 4)
    return free + min(max(free - 1, 0) // 3, BUFFERS)


def _reserved(limit: int) -> int:
    """Elements of the limit that are not for temporaries."""
    return min(limit // 4, BUFFERS)


def _forms(tree: Tree, scratch: int) -> list[Form]:
    forms = [Form(fusion) for fusion in _fusions(tree)]
    name = inner_operand(Fusion(tree))
    # A block that is exchanged in place is at least as long as the axis that is summed.
    if name and scratch >= LEAST_SCRATCH + max(index.extent for index in tree.indices.values()):
        # Towards the array that lies in the result's memory nothing is fused: it is the result of what comes before.
        top = next(node for node in tree.nodes if node.name == name)
        labels = {label for node in Tree(top, tree.indices).nodes for label in node.loops}
        before = Tree(top, {label: index for label, index in tree.indices.items() if label in labels})
        forms += [Form(Fusion(tree, fusion.fused), name, scratch) for fusion in _fusions(before)]
    return forms


def _fusions(tree: Tree) -> list[Fusion]:
    """Fusions worth trying, each once."""
    found: dict[tuple[tuple[str, frozenset[str]], ...], Fusion] = {}
    for recompute in (False, True):
        for tile in SEEDS:
            tiles = dict.fromkeys(tree.indices, tile)
            for fusion in fusion_front(tree, recompute=recompute, tiles=tiles, keep=FOLLOWED).fusions:
                found.setdefault(tuple(sorted(fusion.fused.items())), fusion)
    return list(found.values())


@dataclass(frozen=True)
class _Tiled:
    form: Form
    tiles: Tiles
    value: float


class _Search:
    """Forms with their best tiles. Forms of least memory share more loops than a limit asks for: from each of them the
    search goes on to forms that share one loop less between an array and its consumer, as long as that helps."""

    def __init__(self, tree: Tree, room: int, scratch: int, goal: Goal) -> None:
        self.tree, self.room, self.scratch, self.goal = tree, room, scratch, goal
        self.known: dict[tuple[str | None, frozenset[tuple[str, frozenset[str]]]], _Tiled | None] = {}

    def best(self, forms: Iterable[Form]) -> _Tiled:
        return min((self.loosened(form) for form in forms), key=lambda found: found.value)

    def loosened(self, form: Form) -> _Tiled:
        inside = form.nest.inside
        best = self.tiled(form.fusion.fused, inside)
        assert best is not None
        while not out_of_time("loops that fewer steps share"):
            fused = {name: self.looped(best, labels) for name, labels in best.form.fusion.fused.items()}
            around = [
                self.tiled({**fused, name: labels - {label}}, inside)
                for name, labels in fused.items()
                for label in labels
            ]
            next_best = min((found for found in around if found), key=lambda found: found.value, default=best)
            if next_best.value >= best.value:
                return best
            best = next_best
        return best

    @staticmethod
    def looped(found: _Tiled, labels: frozenset[str]) -> frozenset[str]:
        """Those with several turns; the others might as well not be fused."""
        return frozenset(label for label in labels if found.tiles[label] < found.form.extents[label])

    def tiled(self, fused: Mapping[str, frozenset[str]], inside: str | None) -> _Tiled | None:
        """None if this is no loop nest, or does not fit."""
        shared = {name: labels for name, labels in fused.items() if labels}
        key = inside, frozenset(shared.items())
        if key not in self.known:
            self.known[key] = None
            with suppress(InputError):
                form = Form(Fusion(self.tree, shared), inside, self.scratch)
                if found := best_tiles(form.extents, form.within(self.room, self.goal)):
                    self.known[key] = _Tiled(form, *found)
        return self.known[key]
