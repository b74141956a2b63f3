"""The merged op graph of two recordings after the same pass; common ops are drawn once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core_compiler.ir import Op
from core_compiler.ir.diff import GUESSED
from core_compiler.ir.target import ALLOC, LAUNCH
from core_compiler.ir.text import print_attribute
from workbench.queries import flat_graph, joint, matching
from workbench.queries.flat_graph import ADDED, CHANGED, MOVED, REMOVED, SAME, Node
from workbench.queries.op_facts import FOLDED
from workbench.queries.run import Run

#: The longest text of an attribute in a tooltip.
MAX_TEXT = 40


#: Attributes that count the launches before an op: they differ wherever the program does.
_PLACES = ("start", "end")


#: The key of a drawn op: its id in A; for an op only in B, the text "b" followed by its id there.
Key = int | str


@dataclass(slots=True)
class Drawn:
    """An op of the merged drawing.

    ``node`` is that of A, or that of B if only B has the op (``only_b``); ``twin`` is the node of
    B of a common op. ``inputs`` are those of both; ``note``: the differences.
    """

    key: Key
    node: Node
    inputs: list[Key | None]
    only_b: bool = False
    twin: Node | None = None
    guessed: bool = False
    status: int = SAME
    note: str = ""


@dataclass
class StagePair:
    """Two stages and the matching of their nodes.

    ``of_b``: the node of A by the key of B's node; ``twins``: the node of B (and whether the match
    is guessed) by the key of A's node.
    """

    run: Run
    other: Run
    stage: int
    there: int
    of_b: dict[int, Node] = field(default_factory=dict)
    twins: dict[int, tuple[Node, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        same = matching.same_in_stages(self.run, self.other, (self.stage, self.there))
        ones, twos = (_by_op(each.nodes) for each in (self.mine, self.theirs))
        for whole in (False, True):
            for each in same:
                first, second = (_last(op) if whole else op for op in (each.first, each.second))
                node, twin = ones.get(first), twos.get(second)
                if node is not None and twin is not None:
                    self._pair(node, twin, each.how == GUESSED)

    def _pair(self, node: Node, twin: Node, guessed: bool) -> None:
        if node.key not in self.twins and twin.key not in self.of_b:
            self.of_b[twin.key] = node
            self.twins[node.key] = twin, guessed

    @property
    def mine(self) -> flat_graph.Flat:
        return flat_graph.flat(self.run, self.stage)

    @property
    def theirs(self) -> flat_graph.Flat:
        return flat_graph.flat(self.other, self.there)

    def key_of(self, number: int | None) -> Key | None:
        """Return the key that a node of B (given by its key) has in the drawing."""
        if number is None:
            return None
        return self.of_b[number].key if number in self.of_b else f"b{number}"

    def groups(self) -> tuple[dict[int, int | None], dict[int, int | None], dict[int, int]]:
        """Return the group or launch of each node of A and of B by key, and their matching.

        The matching maps those of A to those of B.

        Two groups match if each has the most ops in common with the other.
        """
        ones = _groups(self.run, self.stage, self.mine)
        twos = _groups(self.other, self.there, self.theirs)
        votes: Counter[tuple[int, int]] = Counter()
        for number, (twin, _) in self.twins.items():
            a, b = ones[number], twos[twin.key]
            if a is not None and b is not None:
                votes[a, b] += 1
        best: tuple[dict[int, int], dict[int, int]] = {}, {}
        for (a, b), _ in votes.most_common():
            best[0].setdefault(a, b)
            best[1].setdefault(b, a)
        return ones, twos, {a: b for a, b in best[0].items() if best[1][b] == a}


def _core(node: Node) -> Op:
    """Return the op that a node computes: for a group or launch of one op, that op."""
    if node.op.kind in flat_graph.HOLDERS and node.op.regions:
        inside = [op for op in node.op.regions[0].ops if op.kind not in FOLDED]
        return inside[0] if len(inside) == 1 else node.op
    return node.op


def _by_op(nodes: Sequence[Node]) -> dict[Op, Node]:
    """Return the nodes by their ops, and by the ops that these compute."""
    return {op: node for node in nodes for op in (node.op, _core(node))}


def _last(op: Op) -> Op:
    """Return the op that makes the (first) result of a group or launch.

    A group is equivalent to a single op only if that op is the last one in it.
    """
    if op.kind in flat_graph.HOLDERS and op.regions and op.regions[0].outputs:
        wanted = op.regions[0].outputs[0]
        return next((o for o in op.regions[0].ops if wanted in o.results), op)
    return op


def _groups(run: Run, stage: int, flat: flat_graph.Flat) -> dict[int, int | None]:
    index = run.index(stage)
    found: dict[int, int | None] = {}
    for node in flat.nodes:
        at: int | None = node.key
        while at is not None and index.ops[at].kind not in flat_graph.HOLDERS:
            at = index.around.get(at)
        found[node.key] = at
    return found


def drawn_of(pair: StagePair) -> list[Drawn]:
    ones, twos, groups = pair.groups()
    kinds = {n.key: n.op.kind for n in pair.theirs.nodes}
    made: list[Drawn] = []
    for node in pair.mine.nodes:
        each = Drawn(node.key, node, list(node.inputs))
        twin, each.guessed = pair.twins.get(node.key, (None, False))
        each.twin = twin
        if twin is None:
            each.status = REMOVED
        else:
            reads = [pair.key_of(i) for i in twin.inputs if kinds.get(i or -1) != ALLOC]
            each.inputs += [i for i in dict.fromkeys(reads) if i not in each.inputs]
            one, two = ones[node.key], twos[twin.key]
            notes = _differences(pair, node, twin)
            if notes:
                each.status, each.note = CHANGED, "; ".join(notes)
            elif (one is None) != (two is None) or (one is not None and groups.get(one) != two):
                each.status = MOVED
        made.append(each)
    return _in_order(_insert_ops_of_b(made, pair, _scopes_of_b(pair, groups)))


def _differences(pair: StagePair, node: Node, twin: Node) -> list[str]:
    """Return the differences between an op of B and its match in A."""
    a, b = _core(node), _core(twin)
    found = []
    if a.kind != b.kind:
        found.append(f"{b.kind} in B")
    ones, twos = (", ".join(str(v.type) for v in op.results or joint.written(op)) for op in (a, b))
    if ones != twos:
        found.append(f"type in B: {twos}")
    if a.kind == b.kind != LAUNCH:  # whose attributes are the name of its kernel
        found += _other_attributes(a, b)
    if _reads(pair, node, twin, False) != _reads(pair, node, twin, True):
        found.append("different inputs in B")
    return found


def _other_attributes(a: Op, b: Op) -> list[str]:
    found = []
    for name in dict.fromkeys((*a.attributes, *b.attributes)):
        one, two = (_text(op, name) for op in (a, b))
        if one != two and name not in _PLACES:
            brief = max(len(one), len(two)) <= MAX_TEXT
            found.append(f"{name}: {one} in A, {two} in B" if brief else f"different {name} in B")
    return found


def _text(op: Op, name: str) -> str:
    """Return an attribute as the IR prints it, without the type of its numbers."""
    if name not in op.attributes:
        return "none"
    return print_attribute(op.attributes[name]).removesuffix(" : i64").removesuffix(" : f64")


def _reads(pair: StagePair, node: Node, twin: Node, second: bool) -> Any:
    """Return the operands of an op in the names of A, without the memory it writes to.

    For a group compared with a single op, the order is ignored, and so are operands defined in the
    group itself.
    """
    alone = (node.op.kind in flat_graph.HOLDERS) != (twin.op.kind in flat_graph.HOLDERS)
    index = pair.other.index(pair.there) if second else pair.run.index(pair.stage)
    own = twin if second else node
    found = []
    for maker, port in zip(own.inputs, own.ports, strict=True):
        kind = index.ops[maker].kind if maker is not None else ""
        if kind != ALLOC and not (alone and kind in FOLDED):
            found.append((pair.key_of(maker) if second else maker, port))
    return set(found) if alone else found


def _scopes_of_b(pair: StagePair, groups: Mapping[int, int]) -> dict[str, str]:
    """Return names for the scopes of B that only its own ids identify (groups, loops).

    A scope gets the name of the matching one of A, else a name that A does not use.
    """
    mine, theirs = _named(pair.mine), _named(pair.theirs)
    same = {theirs[b]: mine[a] for a, b in groups.items() if a in mine and b in theirs}
    for number, node in pair.of_b.items():
        if number in theirs and node.key in mine:
            same.setdefault(theirs[number], mine[node.key])
    made: dict[str, str] = {}
    for path in sorted(theirs.values(), key=len):
        parent, _, name = path.rpartition("/")
        around = _renamed_path(parent, made)
        made[path] = same.get(path) or "/".join(p for p in (around, f"B {name}") if p)
    return made


def _named(flat: flat_graph.Flat) -> dict[int, str]:
    """Return the scopes that ops represent, by op."""
    control = {
        n.key: n.scope for n in flat.nodes if n.op.regions and n.op.kind not in flat_graph.HOLDERS
    }
    return {**control, **flat.holders}


def _renamed_path(path: str, scopes: Mapping[str, str]) -> str:
    """Return the path of a scope of B in the drawing."""
    at = path
    while at and at not in scopes:
        at = at.rpartition("/")[0]
    return scopes[at] + path[len(at) :] if at else path


def _insert_ops_of_b(
    made: Sequence[Drawn], pair: StagePair, scopes: Mapping[str, str]
) -> list[Drawn]:
    """Insert the ops that only B has, each before its successor that both have."""
    users = _scopes_of_users(pair, scopes)
    index = {each.key: i for i, each in enumerate(made)}
    inserted_before: dict[int, list[Drawn]] = {}
    at = len(made)
    for node in reversed(pair.theirs.nodes):
        if node.key in pair.of_b:
            at = min(at, index[pair.of_b[node.key].key])
            continue
        scope = users.get(node.key) or _renamed_path(node.scope, scopes)
        renamed = replace(node, scope=scope)
        inputs = [pair.key_of(i) for i in node.inputs]
        inserted_before.setdefault(at, []).append(
            Drawn(f"b{node.key}", renamed, inputs, only_b=True, status=ADDED)
        )
    merged: list[Drawn] = []
    for i in range(len(made) + 1):
        merged += reversed(inserted_before.get(i, ()))
        merged += made[i : i + 1]
    return merged


def _scopes_of_users(pair: StagePair, scopes: Mapping[str, str]) -> dict[int, str]:
    """Return, for constants that only B has, the scope of their first reader.

    They are drawn as a label there.

    Their own scope may contain nothing else in A.
    """
    found: dict[int, str] = {}
    folded = {n.key for n in pair.theirs.nodes if n.op.kind in FOLDED and not n.inputs}
    for node in pair.theirs.nodes:
        both = pair.of_b.get(node.key)
        for number in node.inputs:
            if number in folded:
                scope = _renamed_path(node.scope, scopes) if both is None else both.scope
                found.setdefault(number, scope)
    return found


def _in_order(drawn: Sequence[Drawn]) -> list[Drawn]:
    """Sort the ops so that each follows its operands if possible.

    The two programs may differ in order.
    """
    by_key = {each.key: each for each in drawn}
    begun: set[Key] = set()
    found: list[Drawn] = []
    for each in drawn:
        if each.key in begun:
            continue
        begun.add(each.key)
        stack = [(each, iter(each.inputs))]
        while stack:
            top, inputs = stack[-1]
            following = next((i for i in inputs if i in by_key and i not in begun), None)
            if following is None:
                found.append(top)
                stack.pop()
            else:
                begun.add(following)
                stack.append((by_key[following], iter(by_key[following].inputs)))
    return found
