"""StableHLO programs with loops: counted ones, loops in branches, in loops, that end by data."""

from __future__ import annotations

import re

#: Loops whose counter follows from constants: values that nobody reads, that stay as they are,
#: that change places; what is the same each time; no iteration; a counter of several numbers;
#: loops in loops; rows that are written over a tensor that is read later, with or without what is
#: written, over one that they are a part of, and over one of a loop.
_COUNTED = """
    %c0 = @constant dense<0> : I
    %c1 = @constant dense<1> : I
    %c2 = @constant dense<2> : I
    %c3 = @constant dense<3> : I
    %c5 = @constant dense<5> : I
    %c20 = @constant dense<20> : I
    %f0 = @constant dense<0.0> : S
    %v = @constant dense<[0, 1, 4]> : V
    %w = @constant dense<[1, 2, 0]> : V
    %h = @constant dense<0.5> : F
    %k:4 = @while(%i = %c0, %p = %x, %q = %b, %r = %h) : I, F, F, F
    cond {
      %t = @compare LT, %i, %c5 : (I, I) -> T
      @return %t : T
    } do {
      %i2 = @add %i, %c2 : I
      %s = @sine %y : G
      %st = @transpose %s, dims = [1, 0] : (G) -> F
      %e = @exponential %st : F
      %eq = @multiply %e, %q : F
      %ph = @multiply %p, %h : F
      %p2 = @add %ph, %eq : F
      %r2 = @add %r, %p : F
      @return %i2, %p2, %q, %r2 : I, F, F, F
    }
    %xb = @add %x, %b : F
    %l:4 = @while(%i = %c0, %p = %x, %q = %b, %r = %xb) : I, F, F, F
    cond {
      %t = @compare GT, %c3, %i : (I, I) -> T
      @return %t : T
    } do {
      %i2 = @add %c1, %i : I
      %rh = @multiply %r, %h : F
      %q2 = @subtract %p, %rh : F
      @return %i2, %q, %q2, %p : I, F, F, F
    }
    %z:2 = @while(%i = %c0, %p = %x) : I, F
    cond {
      %t = @compare GT, %i, %c5 : (I, I) -> T
      @return %t : T
    } do {
      %i2 = @add %i, %c1 : I
      %p2 = @add %p, %h : F
      @return %i2, %p2 : I, F
    }
    %d:2 = @while(%i = %v, %p = %x) : V, F
    cond {
      %m = @reduce(%i init: %c0) applies @add across dimensions = [0] : (V, I) -> I
      %t = @compare LT, %m, %c20 : (I, I) -> T
      @return %t : T
    } do {
      %i2 = @add %i, %w : V
      %j = @convert %i : (V) -> tensor<3xf32>
      %jb = @broadcast_in_dim %j, dims = [1] : (tensor<3xf32>) -> F
      %p2 = @add %p, %jb : F
      @return %i2, %p2 : V, F
    }
    %e:2 = @while(%i = %c0, %p = %x) : I, F
    cond {
      %t = @compare NE, %i, %c2 : (I, I) -> T
      @return %t : T
    } do {
      %i2 = @add %i, %c1 : I
      %in:2 = @while(%j = %i, %u = %p) : I, F
      cond {
        %t = @compare LT, %j, %c3 : (I, I) -> T
        @return %t : T
      } do {
        %j2 = @add %j, %c1 : I
        %uh = @multiply %u, %h : F
        %u2 = @add %uh, %b : F
        @return %j2, %u2 : I, F
      }
      @return %i2, %in#1 : I, F
    }
    %g:2 = @while(%i = %c0, %p = %x) : I, F
    cond {
      %t = @compare LT, %i, %n : (I, I) -> T
      @return %t : T
    } do {
      %i2 = @add %i, %c1 : I
      %p2 = @sine %p : F
      @return %i2, %p2 : I, F
    }
    %a:3 = @while(%i = %c0, %o = %b, %s = %x) : I, F, F
    cond {
      %t = @compare LT, %i, %c3 : (I, I) -> T
      @return %t : T
    } do {
      %i2 = @add %i, %c1 : I
      %row = @dynamic_slice %s, %i, %c0, sizes = [1, 3] : (F, I, I) -> tensor<1x3xf32>
      %o2 = @dynamic_update_slice %o, %row, %i2, %c0 : (F, tensor<1x3xf32>, I, I) -> F
      %s2 = @multiply %s, %o : F
      @return %i2, %o2, %s2 : I, F, F
    }
    %ex = @exponential %x : F
    %sl = @slice %y [1:2, 0:3] : (G) -> tensor<1x3xf32>
    %up = @dynamic_update_slice %ex, %sl, %n, %c0 : (F, tensor<1x3xf32>, I, I) -> F
    %sum = @reduce(%ex init: %f0) applies @add across dimensions = [0] : (F, S) -> R
    %sorted = "@sort"(%x) ({
    ^bb0(%lhs: S, %rhs: S):
      %less = @compare LT, %lhs, %rhs : (S, S) -> T
      @return %less : T
    }) {dimension = 0 : i64} : (F) -> F
    %column = @slice %b [0:2, 1:2] : (F) -> X
    %over = @dynamic_update_slice %sorted, %column, %c1, %n : (F, X, I, I) -> F
    %left = @reduce(%sorted init: %f0) applies @add across dimensions = [0] : (F, S) -> R
    %rows = "@sort"(%b) ({
    ^bb0(%lhs: S, %rhs: S):
      %less = @compare LT, %lhs, %rhs : (S, S) -> T
      @return %less : T
    }) {dimension = 0 : i64} : (F) -> F
    %flat = @reshape %rows : (F) -> H
    %cut = @slice %flat [4:10:2] : (H) -> R
    %own = @reshape %cut : (R) -> tensor<1x3xf32>
    %itself = @dynamic_update_slice %rows, %own, %n, %c0 : (F, tensor<1x3xf32>, I, I) -> F
    %columns = "@sort"(%x) ({
    ^bb0(%lhs: S, %rhs: S):
      %less = @compare LT, %lhs, %rhs : (S, S) -> T
      @return %less : T
    }) {dimension = 1 : i64} : (F) -> F
    %put = @dynamic_update_slice %columns, %sl, %n, %c0 : (F, tensor<1x3xf32>, I, I) -> F
    %both = @dot_general %put, %columns, contracting_dims = [1] x [1] : (F, F) -> B
"""
#: Loops in either branch, nested, and of a count that depends on data.
_BRANCHES = """
    %c0 = @constant dense<0> : I
    %c1 = @constant dense<1> : I
    %c2 = @constant dense<2> : I
    %h = @constant dense<0.5> : M
    %m = @and %n, %c1 : I
    %odd = @compare EQ, %m, %c1 : (I, I) -> T
    %even = @not %odd : T
    %k = @add %m, %c2 : I
    %a:2 = "@if"(%odd) ({
      %w:2 = @while(%i = %c0, %p = %x) : I, M
      cond {
        %t = @compare LT, %i, %k : (I, I) -> T
        @return %t : T
      } do {
        %i2 = @add %i, %c1 : I
        %ph = @multiply %p, %h : M
        %p2 = @add %ph, %y : M
        @return %i2, %p2 : I, M
      }
      %g = @multiply %y, %h : M
      @return %g, %w#1 : M, M
    }, {
      %e = @exponential %x : M
      %g = @negate %y : M
      @return %g, %e : M, M
    }) : (T) -> (M, M)
    %b:2 = "@if"(%odd) ({
      %e = @exponential %x : M
      %g = @negate %y : M
      @return %g, %e : M, M
    }, {
      %w:2 = @while(%i = %c0, %p = %x) : I, M
      cond {
        %t = @compare LT, %i, %k : (I, I) -> T
        @return %t : T
      } do {
        %i2 = @add %i, %c1 : I
        %ph = @multiply %p, %h : M
        %p2 = @add %ph, %y : M
        @return %i2, %p2 : I, M
      }
      %g = @multiply %y, %h : M
      @return %w#1, %g : M, M
    }) : (T) -> (M, M)
    %c:2 = "@if"(%even) ({
      %w:2 = @while(%i = %c0, %p = %x) : I, M
      cond {
        %t = @compare LT, %i, %c2 : (I, I) -> T
        @return %t : T
      } do {
        %i2 = @add %i, %c1 : I
        %in:2 = @while(%j = %i, %u = %p) : I, M
        cond {
          %t = @compare LT, %j, %k : (I, I) -> T
          @return %t : T
        } do {
          %j2 = @add %j, %c1 : I
          %u2 = @sine %u : M
          @return %j2, %u2 : I, M
        }
        @return %i2, %in#1 : I, M
      }
      %g = @multiply %y, %h : M
      @return %g, %w#1 : M, M
    }, {
      %e = @exponential %x : M
      %g = @negate %y : M
      @return %g, %e : M, M
    }) : (T) -> (M, M)
    %d:2 = "@if"(%even) ({
      %w:2 = @while(%i = %c0, %p = %x) : I, M
      cond {
        %t = @compare LT, %i, %k : (I, I) -> T
        @return %t : T
      } do {
        %i2 = @add %i, %c1 : I
        %ph = @multiply %p, %h : M
        %p2 = @add %ph, %y : M
        @return %i2, %p2 : I, M
      }
      %g = @multiply %y, %h : M
      @return %w#1, %g : M, M
    }, {
      %w:2 = @while(%i = %c0, %p = %x) : I, M
      cond {
        %t = @compare LT, %i, %c2 : (I, I) -> T
        @return %t : T
      } do {
        %i2 = @add %i, %c1 : I
        %in:2 = @while(%j = %i, %u = %p) : I, M
        cond {
          %t = @compare LT, %j, %k : (I, I) -> T
          @return %t : T
        } do {
          %j2 = @add %j, %c1 : I
          %u2 = @sine %u : M
          @return %j2, %u2 : I, M
        }
        @return %i2, %in#1 : I, M
      }
      %g = @multiply %y, %h : M
      @return %w#1, %g : M, M
    }) : (T) -> (M, M)
"""
#: What single capitals in the text stand for.
_TYPES = {
    "F": "4x3xf32",
    "G": "3x4xf32",
    "I": "i32",
    "T": "i1",
    "V": "3xi32",
    "S": "f32",
    "R": "3xf32",
    "X": "2x1xf32",
    "H": "12xf32",
    "B": "4x4xf32",
    "M": "2x5xf32",
}


def _program(given: str, body: str, told: str, made: str) -> str:
    text = (
        f"module {{\n  func.func public @main({given}) -> ({made}) {{\n{body}"
        f"    return {told} : {made}\n  }}\n}}\n"
    )
    text = re.sub(r"@(?!main)", "stablehlo.", text)
    return re.sub(r"(?<!\w)[FGITVSRXHBM]\b", lambda m: f"tensor<{_TYPES[m[0]]}>", text)


_COUNTED_RESULTS = (
    "%k#1, %k#2, %l#1, %l#3, %z#1, %d#1, %e#1, %g#1, %a#1, %up, %sum, %over, %left, %itself, %both"
)
#: Name -> text of the module.
PROGRAMS = {
    "stablehlo_counted_loops": _program(
        "%x: F, %y: G, %b: F, %n: I",
        _COUNTED,
        _COUNTED_RESULTS,
        f"{', '.join('F' * 10)}, R, F, R, F, B",
    ),
    "stablehlo_loops_in_branches": _program(
        "%x: M, %y: M, %n: I", _BRANCHES, "%a#1, %b#0, %c#1, %d#0", "M, M, M, M"
    ),
}
