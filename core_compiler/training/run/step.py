"""The compiled training step: state in, state out, the loss of every call."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ops.positions import Positions
from core_compiler.runtime.device import DeviceArray, Executable
from core_compiler.runtime.interrupts import deferred_interrupts
from core_compiler.runtime.program import Program, Ref
from core_compiler.runtime.shards import Join, ShardWatcher, join_locally
from core_compiler.runtime.team import aligned
from core_compiler.support.arrays import as_numpy, numbers
from core_compiler.support.errors import UserError
from core_compiler.training.audit.probes import (
    CombinedWatch,
    NamedValue,
    Probes,
    meaning_of,
)
from core_compiler.training.audit.probes import names as names_of
from core_compiler.training.graph.joint import names
from core_compiler.training.graph.losses import Classes
from core_compiler.training.graph.roles import ITERATION, STATE, Result, Roles
from core_compiler.training.run.bound import BoundStep, OtherBatches, Shapes, shapes_of
from core_compiler.training.run.reference import first_not_finite


def shard_of(batch: Sequence[np.ndarray], shard: int, shards: int) -> list[np.ndarray]:
    """Return the rows of a batch for a shard; raise UserError if they cannot be divided equally."""
    rows = batch[0].shape[0] if batch and batch[0].ndim else 0
    for place, array in enumerate(batch):
        if not array.ndim or array.shape[0] != rows:
            shape = "x".join(map(str, array.shape)) or "a number"
            raise UserError(
                f"expected {rows} rows in tensor {place} of the batch, got {shape}",
                "shards",
                "pass tensors whose first axis is the batch",
            )
    if not rows or rows % shards:
        raise UserError(
            f"cannot split a batch of {rows} into {shards} equal shards",
            "shards",
            f"pass a multiple of {shards}",
        )
    size = rows // shards
    return [array[shard * size : (shard + 1) * size] for array in batch]


def _read_tensor(place: int, given: Any) -> np.ndarray:
    try:
        return numbers(given)
    except ValueError as error:
        raise UserError(
            f"tensor {place} of the batch: {error}",
            "training step",
            "pass dense tensors of numbers",
        ) from None


def _kept(array: np.ndarray) -> np.ndarray:
    """Return a copy that kernels may write to."""
    made = aligned(array.nbytes).view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def _check_same_type(name: str, array: np.ndarray, old: Any) -> None:
    """Raise UserError if an array to load differs in type from the one it replaces."""
    if array.shape != old.shape or array.dtype != old.dtype:
        raise UserError(
            f"expected {name} to be {old.dtype}{list(old.shape)}, got "
            f"{array.dtype}{list(array.shape)}",
            "load_state_dict",
            "pass arrays with the model's shapes and dtypes",
        )


def _check_unchanged(name: str, array: np.ndarray, old: np.ndarray) -> None:
    """Raise UserError if a fixed array would change."""
    _check_same_type(name, array, old)
    if array.tobytes() != old.tobytes():
        raise UserError(
            f"{name} is not trained: it is compiled in with another value",
            "load_state_dict",
            "compile the step from a model with the value to load, or leave that name out",
        )


class NotFinite(UserError):
    """Raised if the ``loss`` of an ``iteration`` is NaN or infinite.

    ``op`` of the meaning module is the first that produces such values from finite ones (None:
    unknown), ``location`` is its user-visible location.
    """

    def __init__(self, loss: float, iteration: int, op: Op | None, location: str):
        self.loss, self.iteration, self.op, self.location = loss, iteration, op, location
        message = f"the loss of iteration {iteration} is {loss:g}"
        if op is not None:
            message += (
                f": {location} is the first op to produce a non-finite value from finite inputs"
            )
        super().__init__(
            message,
            "training step",
            "lower the learning rate, clip the gradients, or "
            "fix that op; the iteration did not change the state",
        )

    @override
    def __reduce__(self):
        return NotFinite, (self.loss, self.iteration, self.op, self.location)


class LossNotFinite(Exception):
    """Raised if the loss of an iteration is not finite; the state is still unchanged."""

    def __init__(self, loss: float):
        self.loss = loss
        super().__init__(loss)


def check(loss: float) -> None:
    """Raise LossNotFinite if the loss is not finite."""
    if not math.isfinite(loss):
        raise LossNotFinite(loss)


class LossCheck:
    """Watch the launch that computes the loss, and stop if it is not finite.

    Later launches may overwrite the state.
    """

    shard, writes = 0, False

    def __init__(self, program: Program, loss: int):
        self.ref = Ref("output", loss)
        self.dtype = program.outputs[loss].numpy
        accessing = [i for i, n in enumerate(program.launches) if self.ref in n.buffers]
        # A value that a loop carries is known with the first launch after the loop.
        loop_ends = [x.end for x in program.loops if any(x.start <= i < x.end for i in accessing)]
        self.launch = max([accessing[0], *loop_ends])

    def stops(self, first: int, last: int) -> list[int]:
        return [self.launch] if first <= self.launch < last else []

    def after_launch(self, launch: int, memory: Any) -> None:
        if launch == self.launch:
            check(float(memory(self.ref, self.dtype.itemsize).view(self.dtype)[0]))


class TrainingStep:
    """A compilation in training mode, as a callable that keeps its state.

    ``step(*batch)`` runs one iteration on a batch (the model's inputs, then the targets if the loss
    has some) and returns the loss, a Python float. With ``shards`` the batch is that of all of
    them; the program is that of one.
    """

    #: Called with the shard's number after launches.
    watch: ShardWatcher | None = None
    #: The range of the targets, if they are classes.
    classes: Classes | None = None
    #: The checks of a batch before an iteration, at the sizes of the example.
    positions: Positions | None = None
    #: The programs for batches of other sizes; None: they are refused.
    other_batches: OtherBatches | None = None
    #: Constants by name that the model stores beside its state and reads; a call returns the bits.
    fixed: Mapping[str, Callable[[], np.ndarray]] = MappingProxyType({})
    #: Parts of the state that the model does not store.
    transient: frozenset[str] = frozenset()
    #: Arrays that the model stores and does not read.
    unread: Mapping[str, np.ndarray] = MappingProxyType({})

    def __init__(
        self,
        roles: Roles,
        state: Sequence[np.ndarray],
        shards: int = 1,
        tied: Sequence[Sequence[str]] = (),
        compilation: Any = None,
        order: Sequence[str] = (),
    ):
        """Create a step from its initial state.

        ``tied`` are groups of names for one part of the state; ``compilation`` has all stages;
        ``order`` lists the model's parameters in the model's order.
        """
        self.roles, self.shards, self.compilation = roles, shards, compilation
        self.own: Sequence[int] = range(shards)
        self.join: Join = join_locally
        self.batch = len(roles.numbers("batch"))
        self.state: list[Any] = [_kept(a) for a in state]  # arrays, or Held by a device
        first = roles.numbers(*STATE)[0]
        #: State by name -> its position in ``state``.
        self._positions = {name: place - first for name, place in names(roles).items()}
        self._state_offset = first
        #: Other names of parts of the state -> their name here.
        self._aliases: dict[str, str] = {}
        for group in tied:
            here = [name for name in group if name in self._positions]
            if len(here) == 1:
                self._aliases |= {name: here[0] for name in group if name != here[0]}
        seen = {name: next((g[0] for g in tied if name in g), name) for name in order}
        own = [roles.arguments[i][1] for i in roles.numbers("parameter")]
        #: The parameters, including frozen ones, each once, in the order of a torch module's
        #: ``parameters()``; for models of other frameworks the trained ones.
        self.order: list[str] = list(dict.fromkeys(seen.values())) or own
        self._spare: dict[int, np.ndarray] = {}
        #: The gradients of the last iteration, by their positions among the results.
        self._kept: dict[int, np.ndarray] = {}
        #: The program for the sizes of the example.
        self._run: BoundStep | None = None

    def __call__(self, *batch: Any) -> float:
        if len(batch) != self.batch:
            wanted = ", ".join(self.roles.arguments[i][1] for i in self.roles.numbers("batch"))
            raise UserError(
                f"expected a batch of {wanted}, got {len(batch)} tensors",
                "training step",
                "pass the model's inputs, then the targets",
            )
        arrays = [_read_tensor(place, given) for place, given in enumerate(batch)]
        if self.classes is not None:
            self.classes.check(arrays[-1])
        bound = self.bound(arrays)
        if bound.positions is not None:
            self._check_positions(bound.positions, arrays)
        program = self._loaded(bound)  # finishes the compile if necessary
        rows = self.rows
        loss = rows.index(("loss", -1))
        nexts = {i: of - self._state_offset for i, (role, of) in enumerate(rows) if role == "next"}
        kept = [i for i, (role, _) in enumerate(rows) if role == "gradient"]
        own = {
            i: place
            for i, place in nexts.items()
            if program.outputs[i].alias >= 0 or isinstance(self.state[place], DeviceArray)
        }
        out = {i: self._spare[place] for i, place in nexts.items() if place in self._spare}
        out |= {i: self.state[place] for i, place in own.items()} | self._kept
        with deferred_interrupts():
            try:
                results = self._execute(bound.run, arrays, out, LossCheck(program, loss))
                check(float(results[loss]))  # no launches are observed
            except LossNotFinite as error:
                raise self.not_finite(error.loss, arrays) from None
            self._kept = {i: results[i] for i in kept}
            for i, place in nexts.items():
                held = self.state[place]
                if isinstance(held, DeviceArray) and results[i] is not held:
                    held.write(np.asarray(results[i]))  # from the program of another size
                    continue
                if i not in own:  # two alternating arrays
                    self._spare[place] = held
                self.state[place] = results[i]
        return float(results[loss])

    def bound(self, batch: Sequence[np.ndarray]) -> BoundStep:
        """Return the program for the sizes of a batch, compiling it if there is none yet.

        Raise UserError if the model does not permit them, or if they cannot be divided into shards.
        """
        own = self.own_bound()
        rows = batch if self.shards == 1 else shard_of(batch, 0, self.shards)
        if self.other_batches is None or shapes_of(rows) == self.batch_shapes:
            return own
        return self.other_batches.bound(rows)

    @property
    def batch_shapes(self) -> Shapes:
        """The shapes of the batch that it was compiled for (with shards: of a shard's)."""
        arguments = self.compilation.stages[0].module.main.arguments
        return tuple(arguments[i].type.shape for i in self.roles.numbers("batch"))

    def own_bound(self) -> BoundStep:
        """Return the program for the sizes of the example."""
        if self._run is None:
            self._run = BoundStep(self._load, self.positions, self.compilation)
        return self._run

    @property
    def executable(self) -> Executable:
        """The loaded program for the sizes of the example (with shards, that of the first)."""
        bound = self.own_bound()
        bound.loaded(self.shards, self.own, self.join)
        return bound.executables[0]

    def _check_positions(self, positions: Positions, batch: Sequence[np.ndarray]) -> None:
        """Check positions of all shards as the model does: every worker has the whole batch."""
        for shard in range(self.shards):
            rows = batch if self.shards == 1 else shard_of(batch, shard, self.shards)
            positions.check(rows, shard * len(rows[0]) if shard else 0)

    def _loaded(self, bound: BoundStep) -> Program:
        """Return a program, which is loaded on first use; the first one's device has the state."""
        own = self.own_bound()
        program = own.loaded(self.shards, self.own, self.join)
        if self.shards == 1:
            self.state = [
                a
                if isinstance(a, DeviceArray)
                else own.run.keep_on_device(self._state_offset + i, a)
                for i, a in enumerate(self.state)
            ]
        return program if bound is own else bound.loaded(self.shards, self.own, self.join)

    def _execute(
        self,
        run: Any,
        batch: Sequence[np.ndarray],
        out: Mapping[int, np.ndarray],
        check: ShardWatcher,
    ) -> Sequence[np.ndarray]:
        run.watch = CombinedWatch([check] if self.watch is None else [check, self.watch])
        if self.shards == 1:
            return run(*batch, *self.state, out=out)
        return run(self._arguments(batch, self.own), out)

    def assign_shards(self, own: Sequence[int], join: Join) -> None:
        """Run only the shards with these numbers; ``join`` sums over all shards, also elsewhere."""
        self.own, self.join = own, join

    def _arguments(
        self, batch: Sequence[np.ndarray], shards: Sequence[int]
    ) -> list[list[np.ndarray]]:
        """Return the arguments of each of the given shards."""
        state = [np.asarray(a) for a in self.state]
        if self.shards == 1:
            return [[*batch, *state]]
        return [[*shard_of(batch, i, self.shards), np.array(i, np.int64), *state] for i in shards]

    @property
    def rows(self) -> tuple[Result, ...]:
        """The roles of the program's results."""
        return Roles.of(self.compilation.module.main).results

    @property
    def identity(self) -> str:
        """The numerics identity of the computation."""
        return self.compilation.identity

    @property
    def seed(self) -> int:
        """The seed of the configuration."""
        return int(self.compilation.options.training.seed)

    def show(self, view: str | None = None, *, other: Any = None) -> Any:
        """Show live widgets of the compile; see `core_compiler.driver.show.show`."""
        return self.compilation.show(view, other=other)

    @override
    def __repr__(self) -> str:
        count = len(self.roles.numbers("parameter"))
        many = f"{count} parameter{'' if count == 1 else 's'}"
        return f"<training step of {many}, {self.iteration} iterations done>"

    def _load(self) -> Executable:
        return self.compilation.executable if self.shards == 1 else self.compilation.load()

    @property
    def peak_bytes(self) -> int:
        """The memory of the last iterations: state, next state and the program's own memory."""
        tensors = [*self.state, *self._spare.values()]
        others = () if self.other_batches is None else self.other_batches.loaded()
        programs = [*([] if self._run is None else [self._run]), *others]
        return sum(a.nbytes for a in tensors) + sum(bound.bytes for bound in programs)

    def not_finite(self, loss: float, batch: Sequence[np.ndarray]) -> Exception:
        """Return the error that names the first op with non-finite values from finite operands.

        It is found by the reference, on the state before this iteration, which is kept.
        """
        module = meaning_of(self.bound(batch).compilation)
        found = first_not_finite(module, self._arguments(batch, range(self.shards)))
        return NotFinite(loss, self.iteration + 1, *(found or (None, "")))

    @property
    def iteration(self) -> int:
        """The number of iterations done."""
        return int(np.asarray(self.state[self._positions[ITERATION]]))

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return copies of parameters and buffers by the model's names.

        A part with several names (tied embeddings) appears under each. Fixed parts (frozen
        parameters, those the loss does not depend on) are included: for a torch module this is the
        whole ``state_dict()``, without the parts that it omits (buffers with ``persistent=False``,
        which ``whole_state`` has).
        """
        made = {
            name: np.array(self.state[place])
            for name, place in self._positions.items()
            if self.roles.arguments[self._state_offset + place][0] in ("parameter", "buffer")
            and name not in self.transient
        }
        made |= {alias: made[name].copy() for alias, name in self._aliases.items()}
        made |= {name: np.array(held()) for name, held in self.fixed.items()}
        return made | {name: held.copy() for name, held in self.unread.items()}

    def canonical_name(self, name: str) -> str:
        """Return the name of a part of the state here, given any of its names."""
        return self._aliases.get(name, name)

    def optimizer_state_dict(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the optimiser's state in the layout of torch's optimiser.

        ``torch.optim.AdamW(model.parameters(), ...).load_state_dict(...)`` accepts it, for SGD,
        Adam, AdamW, Adagrad and RMSprop. ``names`` are the parameters of that optimiser in its
        order, if it is not that of ``model.parameters()`` (for a model that is not from torch the
        default is the step's own order). Raise UserError for an optimiser that torch does not have.
        """
        from core_compiler.training.optimisers.torch_state import state_of

        return state_of(self, names)

    def load_optimizer_state_dict(
        self,
        state_dict: Mapping[str, Any],
        names: Sequence[str] | None = None,
        iteration: int | None = None,
    ) -> None:
        """Set the optimiser's state and the number of iterations from a torch ``state_dict()``.

        ``load_state_dict`` sets parameters and buffers. ``names`` is as in
        :meth:`optimizer_state_dict`. ``iteration`` is the number of iterations done, if torch's
        state does not contain it (SGD) or a schedule is at another position. A state with
        ``param_names`` (of an optimiser created from ``named_parameters()``) determines its order
        itself. Raise UserError, and change nothing, if options, rates or tensors do not match those
        of the step.
        """
        from core_compiler.training.optimisers.torch_state import load

        load(self, state_dict, names, iteration)

    @property
    def gradients(self) -> dict[str, np.ndarray]:
        """Copies of the last iteration's gradients by the parameters' names.

        These are the gradients that the optimiser received (over all shards, clipped). A parameter
        with several names has that of ``named_parameters()``. Empty before the first iteration.
        Raise UserError if the step keeps none.
        """
        if not any(role == "gradient" for role, _ in self.rows):
            raise UserError(
                "the step does not keep its gradients",
                "gradients",
                "compile it with Training(keep_gradients=True)",
            )
        listed = {self.canonical_name(name): name for name in reversed(self.order)}
        return {listed.get(n, n): np.array(a) for n, a in self.named_gradients().items()}

    def number(self, name: str) -> Any:
        """Return a number of the state, such as the loss scale, or None if the name is unknown."""
        place = self._positions.get(name)
        return None if place is None else np.asarray(self.state[place]).item()

    def named_gradients(self) -> dict[str, np.ndarray]:
        """Return the contents of :attr:`gradients` without a copy; empty if the step keeps none."""
        return {
            self.roles.arguments[self.rows[i][1]][1]: np.asarray(a) for i, a in self._kept.items()
        }

    def named_state(self) -> dict[str, np.ndarray]:
        """Return everything that the next iteration depends on, by name, without copying.

        State that a device holds is copied.
        """
        return {n: np.asarray(self.state[p]) for n, p in self._positions.items()}

    @cached_property
    def probes(self) -> Probes:
        """The values of the step that are in memory, with their locations."""
        return self.own_bound().probes

    @cached_property
    def names(self) -> list[NamedValue]:
        """The values of the step by their user-visible names."""
        self.compilation.finish()
        return names_of(meaning_of(self.compilation))

    def whole_state(self) -> dict[str, np.ndarray]:
        """Return copies of everything that the next iteration depends on, by name."""
        return {n: np.array(a) for n, a in self.named_state().items()}

    def load_state_dict(self, held: Mapping[str, Any]) -> None:
        """Set parameters, buffers or any other state by any of its names.

        Compiled-in state (frozen weights) may be given if it is unchanged. Raise a UserError that
        names mismatches; then nothing is changed.
        """
        fresh: dict[int, np.ndarray] = {}
        unread = dict(self.unread)
        for name, given in held.items():
            own, array = self.canonical_name(name), as_numpy(given)
            if name in self.fixed:
                _check_unchanged(name, array, self.fixed[name]())
                continue
            if name in unread:
                _check_same_type(name, array, unread[name])
                unread[name] = np.array(array)
                continue
            if own not in self._positions:
                raise UserError(
                    f"unknown name {name!r}",
                    "load_state_dict",
                    "use the names of state_dict or whole_state",
                )
            place = self._positions[own]
            _check_same_type(name, array, self.state[place])
            if own == ITERATION and array < 0:
                raise UserError(
                    f"expected {name} to be 0 or more, got {array}",
                    "load_state_dict",
                    "pass 0 or more",
                )
            before = fresh.setdefault(place, array)
            if before is not array and before.tobytes() != array.tobytes():
                group = [own, *(n for n, tied in self._aliases.items() if tied == own)]
                raise UserError(
                    f"{' and '.join(group)} are one tensor, got two different values",
                    "load_state_dict",
                    "pass one value",
                )
        self.unread = unread
        for place, array in fresh.items():
            held = self.state[place]
            if isinstance(held, DeviceArray):
                held.write(_kept(array))
            else:
                self.state[place] = _kept(array)

    @property
    def digest(self) -> str:
        """The SHA-256 of all parameters, buffers and the optimiser's state, in order."""
        from core_compiler.numerics.reference.digest import digest

        parts = [digest([a]) for a in self.state]
        return hashlib.sha256("".join(parts).encode()).hexdigest()
