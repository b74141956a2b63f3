"""The verdict on values compared with another framework (docs/numerics.md, "Against a framework").

``equal``: every bit is the same.  ``within``: only rounding differs.  ``differs``: more than
rounding differs.  ``not_compared``: there is nothing to compare with, or rounding alone may change
the value completely (more than 1/64 of the largest value, and 8 ulps).

Rounding is decided in f64.  ``truth`` is the result of our ops in f64 on the same operands:

1. *Algebra*.  If the framework computes the same in f64, both agree to 1e-9 of the largest value,
   or to 16 times the change caused by an ulp of f64 on the operands and the rounding of the
   formula's own constants.  If it has no f64, its error against the truth is at most 16 times the
   larger of ours, an ulp, and the condition.  For values in f64, where ours is the truth, theirs is
   off by at most 16 times the larger of an ulp, those changes, and the condition times the root of
   the number of terms that one element adds up.
2. *Rounding*.  Our error against the truth is at most 4 times the larger of the framework's, an
   ulp, and the condition times the root of the number of terms that one element adds up; or, at
   each element, of the effect of rounding the intermediate results; or, if all terms round to one
   side, with the number of terms instead of its root (if not so on operands nearby).

An element that an ulp of the operands changes completely (the step of a threshold, a tie, a power
that is undefined beside integer exponents) excuses itself and no other: if more than a few ulps
differ, each element is compared with the typical error of all, or with its own condition.  If ours
is the framework's value an ulp to either side, and another one at the operands themselves, ours is
wrong.

The condition is the change of the truth when every operand moves by up to an ulp of its own dtype,
the maximum over 8 seeds: an ill-conditioned value may be far off without being wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from core_compiler.debug.bits import same_bits
from core_compiler.debug.check import ALGEBRA, SEEDS
from core_compiler.debug.metric import Distance, distance, epsilon, largest, masks

#: Maximum ratio of our error against f64 to the framework's.
GROWTH = 4.0
#: Maximum ratio of a difference to the condition or our error if the framework has no f64.
MARGIN = 16.0
#: Relative to the largest value, and in ulps: if rounding explains more than both, a comparison
#: says nothing, neither that a value is right nor that it is wrong.
VAGUE, VAGUE_ULPS = 2.0**-6, 8
#: A larger difference at one element, relative to the largest value, is more than an ulp of an
#: operand causes in a smooth function.
JUMP = 2.0**-10
#: A difference of more ulps, or one that a larger condition excuses, is checked element by element.
EACH_ULPS = 32
#: Maximum ratio of an element's change to the median of all elements to be considered typical.
TYPICAL = 16.0
#: Maximum factor between the ratio of two steps of a smooth function and that of its operands'
#: steps.
IN_PROPORTION = 2.0**9
#: The smaller of two sizes of intermediate rounding, in ulps.
FINER = 2.0**-20
#: Relative distance by which ``Evidence.nearby`` moves operands of f32 and f64.
FURTHER = 2.0**-10
#: Verdicts, the most important first.
VERDICTS = ("differs", "within", "equal", "not_compared")

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a value, with the ``distance`` of ours from theirs.

    ``allowed`` is the bound that it exceeds, relative to the largest value (0.0: none); ``note``
    says which rule was violated, or why nothing was compared.  ``kept``: the program has the bits
    of its import, if that was compared.
    """

    verdict: str
    distance: Distance = field(default_factory=Distance)
    allowed: float = 0.0
    note: str = ""
    kept: bool = False


@dataclass(frozen=True)
class Evidence:
    """The evidence that a value is judged by; each item is computed on demand.

    ``truth()``: our ops in f64; None if they have no f64.  ``wide()``: the framework in f64; None
    if it has none.  ``moved(seed)``: our ops in f64 with operands moved by up to an ulp of their
    dtypes, zeros by a tiny amount (``moved(seed, False)``: not at all).  ``nudged(seed)``: with
    operands moved by up to an ulp of f64, and the formula's constants by their rounding error.
    ``others()``: the framework on inputs moved by an ulp.  ``stepped(up)``: with every operand
    moved by an ulp of its dtype up (1) or down (-1).  ``same_algebra``: both are known to compute
    the same formula (each of its ops was judged).  ``own()``: our ops by their references, in their
    own dtypes; None if that is ours itself. ``terms()``: the number of terms in the longest sum
    behind one element.  ``constants``: the error in f64 of constants in the framework's own
    kernels.  ``exact()``: nothing behind an element rounds, on the operands of the framework: they
    are moved, compared or selected.  ``unrounded()``: the elements for which nothing happens to
    round.  ``rounded(seed, size)``: with each intermediate result moved by up to ``size`` ulps of
    its dtype.  ``nearby(seed)``: our ops in their own dtypes, and in f64, on operands that are
    moved further, so that no two round alike.
    """

    truth: Callable[[], Array | None]
    moved: Callable[..., Array]
    nudged: Callable[[int], Array] | None = None
    wide: Callable[[], Array | None] | None = None
    others: Callable[[], Sequence[Array]] = lambda: ()
    same_algebra: bool = False
    own: Callable[[], Array | None] = lambda: None
    terms: Callable[[], int] = lambda: 1
    constants: float = 0.0
    stepped: Callable[[int], Array] | None = None
    exact: Callable[[], bool] = lambda: False
    unrounded: Callable[[], Array] | None = None
    rounded: Callable[[int, float], Array] | None = None
    nearby: Callable[[int], tuple[Array, Array]] | None = None


def worst(verdicts: Iterable[str]) -> str:
    """Return the verdict on several values together."""
    found = set(verdicts)
    return next((v for v in VERDICTS if v in found), "not_compared")


def judge(theirs: Array, ours: Array, evidence: Evidence) -> Judgement:
    """Return the verdict on one value."""
    if same_bits(theirs, ours):
        return Judgement("equal", distance(theirs, ours))
    off = distance(theirs, ours, theirs.dtype)
    if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
        note = f"{ours.dtype}{list(ours.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
        return Judgement("differs", off, note=note)
    if evidence.exact():
        return _judge_unrounded(theirs, ours, off)
    if theirs.dtype.kind in "biu":
        return _judge_integers(theirs, ours, off, evidence)
    return _Floats(theirs, ours, off, evidence).judged()


def by_tolerance(theirs: Array, ours: Array, tolerance: float) -> Judgement:
    """Return the verdict by a bound on the difference, relative to the largest value."""
    if same_bits(theirs, ours):
        return Judgement("equal", distance(theirs, ours))
    off = distance(theirs, ours, theirs.dtype, masks(theirs, ours))
    if off.relative <= tolerance:
        return Judgement("within", off, tolerance)
    return Judgement("differs", off, tolerance, f"more than the tolerance of {tolerance:g}")


# -- what does not round --------------------------------------------------------------------------


def _judge_unrounded(theirs: Array, ours: Array, off: Distance) -> Judgement:
    """Return the verdict on values that no op rounds.

    Zeros of either sign are equal, and so are NaNs; nothing else excuses an element.
    """
    with np.errstate(invalid="ignore"):
        same = np.asarray((theirs == ours) | ((theirs != theirs) & (ours != ours)))
    if same.all():
        return Judgement("within", off)
    index = tuple(map(int, np.unravel_index(int(np.argmin(same)), same.shape)))
    off = replace(off, index=index, want=float(theirs[index]), got=float(ours[index]))
    return Judgement("differs", off, note="the values differ, but its ops do not round")


# -- integers -------------------------------------------------------------------------------------


def _judge_integers(theirs: Array, ours: Array, off: Distance, evidence: Evidence) -> Judgement:
    """Return the verdict on integers and booleans.

    They must be equal, unless rounding decides between the two: moving the operands by an ulp turns
    ours into the framework's value, or theirs into one that our ops also return.
    """
    differ = np.asarray(theirs != ours)
    wanted, made = theirs[differ], ours[differ]
    theirs_moved = [a[differ] for a in evidence.others() if a.shape == ours.shape]
    explained = _occurs_among(made, theirs_moved)
    truth = evidence.truth()
    if truth is not None and not explained.all():
        ours_moved = [truth, *(evidence.moved(seed) for seed in range(2 * SEEDS))]
        ours_moved = [a[differ] for a in ours_moved if a.shape == ours.shape]
        own = evidence.own()
        by_us = (
            np.ones(made.shape, bool)
            if own is None
            else _occurs_among(made, [own[differ], *ours_moved])
        )
        explained |= by_us & _occurs_among(wanted, ours_moved)
    if explained.all():
        return Judgement(
            "within", off, note="within rounding: moving the operands by an ulp gives either value"
        )
    index = tuple(
        int(axis[int(np.argmin(explained))]) for axis in np.nonzero(np.atleast_1d(differ))
    )
    index = index if theirs.ndim else ()
    off = replace(off, index=index, want=float(theirs[index]), got=float(ours[index]))
    return Judgement("differs", off, note="integers differ, and rounding does not explain it")


def _occurs_among(wanted: Array, found: Sequence[Array]) -> Array:
    among = np.zeros(wanted.shape, bool)
    for each in found:
        among |= each == wanted
    return among


# -- floats ---------------------------------------------------------------------------------------


class _Floats:
    """The verdict on a tensor of floats."""

    def __init__(self, theirs: Array, ours: Array, off: Distance, evidence: Evidence):
        self.theirs, self.ours, self.off, self.evidence = theirs, ours, off, evidence
        self.dtype = theirs.dtype
        self.ulp = epsilon(self.dtype)
        self._condition: float | None = None
        #: Elements that are not informative; the ops in f64.
        self.ignored, self.truth = masks(theirs, ours), np.zeros(theirs.shape)
        if self.ignored.any():
            self.off = self._off(self.ignored)

    def judged(self) -> Judgement:
        if self.evidence.wide is None and self.off.relative <= (GROWTH - 1) * self.ulp:
            return self._within()  # if theirs is off, ours is off by as much plus this at most
        truth = self.evidence.truth()
        if truth is None:  # ops without f64: only the framework's own spread
            allowed = MARGIN * max(self.ulp, self._spread())
            if self.off.relative <= allowed:
                return self._within(self.off.relative)
            return self._differs(allowed, "more than the spread of the framework itself")
        self.truth = truth
        ignored = self._uninformative()
        if ignored is None:
            return self._differs(0.0, "NaN or infinity, where the framework has another value")
        self.ignored = ignored
        found = self._by_f64()
        if found.verdict == "differs" or (
            max(self.off.relative, self._condition or 0.0) <= EACH_ULPS * self.ulp
        ):
            return found
        return self._judge_each_element(found)

    def _by_f64(self) -> Judgement:
        broken = None if self.evidence.same_algebra else self._algebra()
        return self._rounding() if broken is None else broken

    # -- each element ----------------------------------------------------------------------------

    def _judge_each_element(self, found: Judgement) -> Judgement:
        """Return ``found``, or that an element differs beyond its own rounding."""
        top = float(np.max(np.abs(self.truth), where=np.isfinite(self.truth), initial=0.0))
        isolated = self._isolated_errors(JUMP * top)
        if isolated.any():
            self.off = self._off(~isolated)
            note = (
                "ours matches the framework if the operands move by an ulp to either side, but "
                "not here, or nothing rounds there"
            )
            return self._differs(JUMP, note)
        ignored, whole, judged = self.ignored, self.off, found
        for seeds in (SEEDS, 4 * SEEDS):  # a step that few seeds miss, many hit
            self.ignored, self.off, self._condition = ignored, whole, None
            moves = self._moves(seeds)
            counted = np.sort(moves[self._informative()])
            usual = TYPICAL * counted[(counted.size - 1) // 2] if counted.size else 0.0
            jumps = self._informative() & (moves > max(usual, EACH_ULPS * self.ulp))
            if not jumps.any():
                return found
            judged = self._judge_jumps(jumps, moves) or self._judge_without(jumps)
            if judged.verdict != "differs":
                break
        return judged

    def _judge_without(self, jumps: Array) -> Judgement:
        """Return the verdict on all elements except ``jumps``."""
        self.ignored, self._condition = self.ignored | jumps, None
        self.off = self._off(self.ignored)
        return self._by_f64()

    def _judge_jumps(self, jumps: Array, moves: Array) -> Judgement | None:
        """Return the verdict that an element which an ulp moves far is off by more, or None."""
        ours, theirs = (self._errors(a) for a in (self.ours, self.theirs))
        sums = self.evidence.terms() ** 0.5
        allowed = GROWTH * np.maximum(moves * sums, theirs)
        bad = jumps & (ours > allowed)
        if bad.any():
            allowed = np.maximum(allowed, GROWTH * self._spreads())
            bad &= ours > allowed
        if not bad.any():
            return None
        self.off = self._off(~bad)
        return self._differs(
            float(allowed[self.off.index]),
            "off from f64 by more than an ulp of the operands moves this element",
        )

    def _errors(self, array: Array) -> Array:
        """Return the error of each element against the truth, relative to the largest value."""
        top = float(np.max(np.abs(self.truth), where=self._informative(), initial=0.0)) or 1.0
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(array.astype(np.float64) - self.truth) / top
        return np.where(self._informative() & np.isfinite(error), error, 0.0)

    def _informative(self) -> Array:
        return ~self.ignored & np.isfinite(self.truth)

    def _moves(self, seeds: int) -> Array:
        """Return the effect of an ulp of the operands, or of f64, on each element.

        Relative to the largest value; unbounded if the element changes between finite and not
        finite.
        """
        measures = [self.evidence.moved, *filter(None, [self.evidence.nudged])]
        moved = [measure(seed) for measure in measures for seed in range(seeds)]
        if self.evidence.stepped is not None:
            moved += [self.evidence.stepped(up) for up in (1, -1)]
        found = np.zeros(self.truth.shape)
        for other in moved:
            found = np.maximum(found, np.where(np.isfinite(other), self._errors(other), np.inf))
        return found

    def _spreads(self) -> Array:
        """Return the change of the framework's results when its inputs move by an ulp."""
        others = [a for a in self.evidence.others() if a.shape == self.theirs.shape]
        top = float(np.max(np.abs(self.truth), where=self._informative(), initial=0.0)) or 1.0
        found = np.zeros(self.truth.shape)
        for other in others:
            with np.errstate(invalid="ignore", over="ignore"):
                change = np.abs(other.astype(np.float64) - self.theirs.astype(np.float64)) / top
            found = np.maximum(found, np.where(np.isfinite(change), change, 0.0))
        return found

    def _isolated_errors(self, threshold: float) -> Array:
        """Return elements where ours is wrong although it is right an ulp above or below.

        Ours is neither its value an ulp above nor an ulp below, and theirs is one of the two: not a
        step but a wrong value of ours.  If nothing rounds on either side for some of the elements,
        only those are returned.
        """
        found = np.zeros(self.truth.shape, bool)
        if self.evidence.stepped is None:
            return found
        ours, theirs = (a.astype(np.float64) for a in (self.ours, self.theirs))
        with np.errstate(invalid="ignore"):
            difference = np.abs(ours - theirs)
            found |= ~self.ignored & (difference > threshold)
            if found.any():
                found &= ~self._cancellations(difference)
            plain = self._unrounded(theirs)
            if (found & plain).any():
                return found & plain
            sides = [self.evidence.stepped(up) for up in (1, -1)]
            found &= np.logical_and.reduce([np.abs(side - ours) > threshold for side in sides])
            return found & np.logical_or.reduce(
                [np.abs(side - theirs) <= threshold for side in sides]
            )

    def _cancellations(self, difference: Array) -> Array:
        """Return elements of a smooth function that differ only by rounding of the operands.

        All else cancels there.  A smaller step of the operands (in f64 a larger one) moves such
        elements in proportion; at a step of the function either moves them alike, or the smaller
        one not at all.
        """
        fine, near = self.evidence.nudged, self.evidence.nearby
        if fine is None or near is None:
            return np.zeros(difference.shape, bool)

        def other(seed: int) -> Array:
            return near(seed)[1] if self.dtype == np.float64 else fine(seed)

        step = FURTHER if self.dtype == np.float64 else epsilon(np.dtype(np.float64))
        with np.errstate(invalid="ignore"):
            by_ulp, by_other_step = (
                np.maximum.reduce([np.abs(move(seed) - self.truth) for seed in range(SEEDS)])
                for move in (self.evidence.moved, other)
            )
            proportional = by_ulp * (step / self.ulp)
            smooth = (by_other_step <= proportional * IN_PROPORTION) & (
                by_other_step >= proportional / IN_PROPORTION
            )
            return (difference <= MARGIN * by_ulp) & smooth & (by_ulp > 0)

    def _unrounded(self, theirs: Array) -> Array:
        """Return the elements for which nothing rounds, in ours or theirs."""
        wide = None if self.evidence.wide is None else self.evidence.wide()
        if self.evidence.unrounded is None or wide is None or wide.shape != theirs.shape:
            return np.zeros(theirs.shape, bool)
        return (wide == theirs) & self.evidence.unrounded()

    def _off(self, ignored: Array) -> Distance:
        """Return the distance of ours from theirs, ignoring some elements."""
        return distance(self.theirs, self.ours, self.dtype, ignored)

    # -- 1: the same formula ---------------------------------------------------------------------

    def _algebra(self) -> Judgement | None:
        if self.dtype == np.float64:
            return self._algebra_of_f64()
        wide = None if self.evidence.wide is None else self.evidence.wide()
        if wide is not None and wide.shape == self.truth.shape and wide.dtype == np.float64:
            difference = self._relative_distance(wide, self.truth)
            allowed_difference = max(ALGEBRA, self.evidence.constants)
            if difference <= allowed_difference:
                return None
            sensitive = MARGIN * self._sensitivity(difference / MARGIN)
            if difference <= sensitive:
                return None
            # Its f64 is only trusted if it computes the same as in its own dtype.
            if not self._is_rounded(wide) and self._is_near(
                self._relative_distance(wide, self.theirs)
            ):
                note = (
                    f"off by {difference:.3g} of the largest value in f64 too: "
                    "rounding does not explain the difference"
                )
                return self._differs(max(allowed_difference, sensitive), note)
        error = self._relative_distance(self.truth, self.theirs)
        if self._is_near(error) or self._rounds_on_the_way(self.theirs, MARGIN):
            return None
        note = (
            f"the framework is off by {error:.3g} of the largest value from our ops in f64, "
            "more than rounding explains"
        )
        return self._differs(MARGIN * self._error_scale(), note)

    def _algebra_of_f64(self) -> Judgement | None:
        """Return the verdict if ours is the truth: the framework may be off by rounding alone."""
        error = self._relative_distance(self.truth, self.theirs)
        if self._is_near(error):
            return None
        sums = self._conditioned() * self.evidence.terms() ** 0.5
        allowed = MARGIN * max(self._error_scale(), sums, self._sensitivity(error / MARGIN))
        if error <= allowed:
            return None
        note = f"off by {error:.3g} of the largest value, more than rounding in f64 explains"
        return self._differs(allowed, note)

    def _is_rounded(self, wide: Array) -> bool:
        """Return whether the framework's f64 is nominal: rounded to the dtype on the way."""
        with np.errstate(over="ignore", invalid="ignore"):
            is_truth_exact, is_wide_exact = (
                (a.astype(self.dtype).astype(np.float64) == a).all() for a in (self.truth, wide)
            )
        return bool(is_wide_exact) and not bool(is_truth_exact)

    def _is_near(self, error: float) -> bool:
        own = max(self._relative_distance(self.truth, self.ours), self.ulp)
        return error <= MARGIN * own or error <= MARGIN * self._error_scale()

    def _error_scale(self) -> float:
        """Return the largest of our error, an ulp, the condition and the framework's spread."""
        own = self._relative_distance(self.truth, self.ours)
        return max(own, self.ulp, self._conditioned(), self._spread())

    def _sensitivity(self, limit: float) -> float:
        """Return the change of the truth by rounding in f64, of formula constants too."""
        largest = 0.0
        if self.evidence.nudged is None:
            return largest
        for seed in range(SEEDS):
            largest = max(largest, self._relative_distance(self.truth, self.evidence.nudged(seed)))
            if largest >= limit:
                break
        return largest

    # -- 2: rounding -----------------------------------------------------------------------------

    def _rounding(self) -> Judgement:
        ours = self._relative_distance(self.truth, self.ours)
        theirs = self._relative_distance(self.truth, self.theirs)
        if ours <= GROWTH * max(theirs, self.ulp):
            return self._within(ours)
        # Adding n terms one by one loses the root of n more than the condition, which moves each
        # term alone (Higham and Mary, "A new approach to probabilistic rounding error analysis",
        # SIAM J. Sci. Comput. 41, 2019); frameworks add in many lanes, and lose less.
        sums = self._conditioned() * self.evidence.terms() ** 0.5
        allowed = GROWTH * max(theirs, self.ulp, sums, self._spread())
        if (
            ours <= allowed
            or self._rounds_on_the_way(self.ours, GROWTH, allowed)
            or self._rounds_alike(ours, allowed)
        ):
            return self._within(ours)
        note = (
            f"off by {ours:.3g} of the largest value from f64, the framework by {theirs:.3g}: "
            f"more than {GROWTH:g} times"
        )
        return self._differs(allowed, note)

    def _rounds_on_the_way(self, array: Array, factor: float, allowed: float = 0.0) -> bool:
        """Return whether the rounding of intermediate results explains the error of each element.

        Or of most elements: at a minimum (the divergence of equal distributions), or where all else
        cancels, an ulp of the operands does not show this error.
        """
        rounded = self.evidence.rounded
        if rounded is None:
            return False
        counts = self._informative()
        with np.errstate(invalid="ignore", over="ignore"):
            moves, less = (
                np.maximum.reduce(
                    [
                        np.nan_to_num(np.abs(rounded(seed, size) - self.truth), posinf=0.0)
                        for seed in range(SEEDS)
                    ]
                )
                for size in (1.0, FINER)
            )
            # An intermediate step function is not rounding: there a smaller move has the same
            # effect or none.
            moves = np.where(less <= moves * (FINER * IN_PROPORTION), moves, 0.0)
            moves = np.where(less >= moves * (FINER / IN_PROPORTION), moves, 0.0)
            off = np.abs(array.astype(np.float64) - self.truth)
        if not counts.any():
            return False
        top = float(np.max(np.abs(self.truth), where=counts, initial=0.0))
        usual = float(np.median(moves[counts]))
        bound = np.maximum(allowed * top, factor * np.maximum(moves, usual))
        return bool((off <= bound)[counts].all())

    def _rounds_alike(self, ours: float, allowed: float) -> bool:
        """Return whether our error exceeds the root of the number of terms because all round alike.

        Many equal terms round to one side: the error does not exceed their number, nor the root on
        operands nearby.
        """
        near, most = self.evidence.nearby, GROWTH * self.evidence.terms() * self._conditioned()
        if near is None or ours > min(JUMP, most):
            return False  # (more is a step, which rounding does not add up to)
        own = self.evidence.own()
        if own is not None and not same_bits(own, self.ours):
            return False
        pairs = (near(seed) for seed in range(SEEDS))
        return all(self._relative_distance(true, found) <= allowed for found, true in pairs)

    # -- measures --------------------------------------------------------------------------------

    def _conditioned(self) -> float:
        if self._condition is None:
            found = (
                self._relative_distance(self.truth, self.evidence.moved(seed))
                for seed in range(SEEDS)
            )
            self._condition = max(found)
        return self._condition

    def _spread(self) -> float:
        """Return the change of the framework's own results when its inputs move by an ulp."""
        others = [a for a in self.evidence.others() if a.shape == self.theirs.shape]
        return max((self._relative_distance(self.theirs, a) for a in others), default=0.0)

    def _relative_distance(self, want: Array, got: Array) -> float:
        found = distance(want, got, self.dtype, self.ignored)
        if math.isinf(found.relative):  # perhaps of a tensor that is 0 everywhere in f64
            fallback_scale = largest((self.theirs, self.ours), self.ignored)
            found = distance(want, got, self.dtype, self.ignored, fallback_scale)
        return found.relative

    def _uninformative(self) -> Array | None:
        """Return elements that say nothing about rounding, or None if others are not finite.

        These are infinities, NaN and the huge values of masks that are equal on both sides,
        overflows, and elements that an ulp of the operands makes finite or not finite.
        """
        a, b, true = (x.astype(np.float64) for x in (self.theirs, self.ours, self.truth))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        top = float(_largest(self.dtype))
        with np.errstate(invalid="ignore"):
            huge = self.ignored | (same & ~(np.abs(a) < max(top * 2.0**-64, 2.0**14)))
            near_limit = [np.abs(x) >= top * (1 - 8 * self.ulp) for x in (a, b)]
        overflows = (
            near_limit[0] & near_limit[1] & (np.sign(a) == np.sign(b))
        )  # one of them to infinity
        differ = ~np.isfinite(a) ^ ~np.isfinite(b)
        differ |= ~np.isfinite(a) & ~np.isfinite(b) & ~same
        unexplained = differ & ~overflows & ~self._overflowed(a, b)
        if unexplained.any() and (unexplained & (~self._poles() | self._gaps(a, b))).any():
            return None
        return huge | differ | (~np.isfinite(true) & same)

    def _overflowed(self, theirs: Array, ours: Array) -> Array:
        """Return elements that overflowed in the framework: its f64 has our value."""
        wide = None if self.evidence.wide is None else self.evidence.wide()
        case = ~np.isfinite(theirs) & np.isfinite(ours)
        if wide is None or wide.shape != ours.shape or not case.any():
            return np.zeros(ours.shape, bool)
        near = GROWTH * max(self.ulp, ALGEBRA) * self.evidence.terms() ** 0.5
        with np.errstate(invalid="ignore", over="ignore"):
            return case & np.isfinite(wide) & (np.abs(ours - wide) <= near * np.abs(wide))

    def _poles(self) -> Array:
        """Return elements that an ulp of the operands makes finite or not finite.

        Examples: the logarithm of a difference that is 0, a quotient by one.  An operand that is 0
        is 0 on both sides.
        """
        found = np.zeros(self.truth.shape, bool)
        for other in (self.evidence.moved(seed, False) for seed in range(4 * SEEDS)):
            found |= np.isfinite(other) != np.isfinite(self.truth)
        return found

    def _gaps(self, theirs: Array, ours: Array) -> Array:
        """Return elements where a case is missing in ours.

        The framework has a finite value or an infinity and ours is NaN or another infinity, in f64
        too, and no rounding of f64 changes that, or it is theirs an ulp to either side.  A case
        missing in a formula (0 / 0 where a curve continues, or has its pole) is not a pole.
        """
        case = np.isfinite(theirs) & ~np.isfinite(ours) & ~np.isfinite(self.truth)
        gaps = np.zeros(case.shape, bool)
        evidence = self.evidence
        pole = np.isinf(theirs) & ~np.isfinite(ours) & (ours != theirs) & (self.truth != theirs)
        pole &= ~np.isfinite(self.truth)
        if evidence.nudged is not None and (case | pole).any():
            wide = None if evidence.wide is None else evidence.wide()
            if wide is not None and wide.shape == case.shape:
                gaps |= (case & np.isfinite(wide)) | (pole & (wide == theirs))
                for seed in range(SEEDS):
                    other = evidence.nudged(seed)
                    gaps &= ~np.isfinite(other) & (other != theirs)
        if evidence.stepped is not None and (case & ~gaps).any():
            threshold = JUMP * float(np.max(np.abs(theirs), where=np.isfinite(theirs), initial=0.0))
            with np.errstate(invalid="ignore"):
                sides = [np.abs(evidence.stepped(up) - theirs) <= threshold for up in (1, -1)]
            gaps |= case & sides[0] & sides[1]
        return gaps

    # -- outcomes --------------------------------------------------------------------------------

    def _within(self, error: float = 0.0) -> Judgement:
        """Return the verdict ``within``; ``error`` is our error against f64, if known."""
        if error > max(VAGUE, VAGUE_ULPS * self.ulp):
            note = (
                f"ill-conditioned: ours is off by {error:.2g} of the largest value from f64, "
                "which rounding alone may explain"
            )
            return Judgement("not_compared", self.off, note=note)
        return Judgement("within", self.off)

    def _differs(self, allowed: float, note: str) -> Judgement:
        return Judgement("differs", self.off, allowed, note)


def _largest(dtype: np.dtype) -> float:
    """Return the largest finite value of a float dtype."""
    if dtype.kind == "f":
        return float(np.finfo(dtype).max)
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)
