"""Elementary functions of f64: the contract's source, over named primitives only.

Branch-free, because f32 functions are computed through them and must vectorise. Where one rounding
to f64 would cost too much accuracy (``log2, log10, pow``, reduction by pi), values are pairs (high,
low) with |low| at most half an ulp of high; sums and products of pairs follow Dekker (1971) with an
fma for the product's error. Bounds are measured, in ``functions.BOUNDS``.
"""

# ruff: noqa: F821  (primitives are bound by ``functions.instantiate_functions``, per target)
from __future__ import annotations


def scale_f64(p, n):
    """Return p * 2**n rounded once, for p in [0.5, 2] and n in [-1077, 1026]."""
    h = shr_i64(n, i64(1))
    g = sub_i64(n, h)
    p = mul_f64(p, from_bits_f64(shl_i64(add_i64(h, i64(1023)), i64(52))))
    return mul_f64(p, from_bits_f64(shl_i64(add_i64(g, i64(1023)), i64(52))))


def exp_reduced_f64(x):
    """Return (r, n) with x = n ln 2 + r, |r| <= ln(2)/2."""
    shifted = fma_f64(x, f64(1.4426950408889634), f64(6755399441055744.0))
    n = sub_i64(bits_f64(shifted), bits_f64(f64(6755399441055744.0)))
    k = sub_f64(shifted, f64(6755399441055744.0))
    r = fma_f64(neg_f64(k), f64(0.6931471805598903), x)
    return fma_f64(neg_f64(k), f64(5.497923018708371e-14), r), n


def exp_polynomial_f64(r):
    """Return (e**r - 1 - r) / r**2 on |r| <= ln(2)/2."""
    p = f64(2.0920208944121127e-09)
    p = fma_f64(p, r, f64(2.510547656431288e-08))
    p = fma_f64(p, r, f64(2.755725745640425e-07))
    p = fma_f64(p, r, f64(2.7557254660874786e-06))
    p = fma_f64(p, r, f64(2.4801587341952267e-05))
    p = fma_f64(p, r, f64(0.0001984126987553779))
    p = fma_f64(p, r, f64(0.0013888888888877143))
    p = fma_f64(p, r, f64(0.008333333333325867))
    p = fma_f64(p, r, f64(0.04166666666666668))
    p = fma_f64(p, r, f64(0.1666666666666667))
    p = fma_f64(p, r, f64(0.5))
    return p


def exp_f64(x):
    """Return e**x: reduction by ln 2 in two constants, polynomial of degree 12."""
    x = select_f64(x < f64(-746.0), f64(-746.0), x)
    x = select_f64(x > f64(710.0), f64(710.0), x)
    r, n = exp_reduced_f64(x)
    p = fma_f64(mul_f64(r, r), exp_polynomial_f64(r), r)
    return scale_f64(add_f64(f64(1.0), p), n)


def exp2_pair_f64(high, low):
    """Return 2**(high + low), |low| small compared to high."""
    high = select_f64(high < f64(-1076.0), f64(-1076.0), high)
    high = select_f64(high > f64(1025.0), f64(1025.0), high)
    shifted = add_f64(high, f64(6755399441055744.0))
    n = sub_i64(bits_f64(shifted), bits_f64(f64(6755399441055744.0)))
    r = sub_f64(high, sub_f64(shifted, f64(6755399441055744.0)))
    p = f64(-2.8753299998647575e-11)
    p = fma_f64(p, r, f64(2.5347244109346834e-11))
    p = fma_f64(p, r, f64(4.690290000288443e-10))
    p = fma_f64(p, r, f64(7.055179674432073e-09))
    p = fma_f64(p, r, f64(1.017732117934902e-07))
    p = fma_f64(p, r, f64(1.3215486031729537e-06))
    p = fma_f64(p, r, f64(1.5252734951227627e-05))
    p = fma_f64(p, r, f64(0.00015403530394342515))
    p = fma_f64(p, r, f64(0.0013333558145592083))
    p = fma_f64(p, r, f64(0.009618129107627948))
    p = fma_f64(p, r, f64(0.05550410866482419))
    p = fma_f64(p, r, f64(0.24022650695910072))
    # 2**r = 1 + head = 1 + r (c0 + r p), c0 = ln 2; 2**low to first order.
    head = fma_f64(r, f64(0.6931471805599453), mul_f64(mul_f64(r, r), p))
    slope = mul_f64(low, f64(0.6931471805599453))
    head = add_f64(head, fma_f64(slope, head, slope))
    return scale_f64(add_f64(f64(1.0), head), n)


def exp2_f64(x):
    """Return 2**x."""
    return exp2_pair_f64(x, f64(0.0))


def expm1_f64(x):
    """Return e**x - 1 = 2 (2**(n-1) expm1(r) + (2**(n-1) - 1/2)), or expm1(r) if n is 0."""
    y = select_f64(x < f64(-40.0), f64(-40.0), x)
    y = select_f64(y > f64(710.0), f64(710.0), y)
    r, n = exp_reduced_f64(y)
    p = fma_f64(mul_f64(r, r), exp_polynomial_f64(r), r)
    t = from_bits_f64(shl_i64(add_i64(n, i64(1022)), i64(52)))  # 2**(n-1)
    far = mul_f64(f64(2.0), fma_f64(t, p, sub_f64(t, f64(0.5))))
    return copysign_f64(select_f64(eq_i64(n, i64(0)), p, far), x)


def log_reduced_f64(x):
    """Return (m - 1, e) with x = m 2**e, m in [sqrt(1/2), sqrt(2)); e as f64.

    x must be positive and finite.
    """
    tiny = x < f64(2.2250738585072014e-308)
    x = select_f64(tiny, mul_f64(x, f64(18014398509481984.0)), x)
    b = sub_i64(bits_f64(x), i64(0x3FE6A09E667F3BCD))
    e = shr_i64(b, i64(52))
    m = from_bits_f64(add_i64(and_i64(b, i64(0xFFFFFFFFFFFFF)), i64(0x3FE6A09E667F3BCD)))
    e = sub_i64(e, select_i64(tiny, i64(54), i64(0)))
    return sub_f64(m, f64(1.0)), convert_i64_f64(e)


def log_special_f64(x, y):
    """Return the logarithms' special values, or ``y``, the value of the main path."""
    y = select_f64(x == f64(0.0), f64(-np_inf), y)
    y = select_f64(x == f64(np_inf), x, y)
    return select_f64((x < f64(0.0)) | (x != x), f64(np_nan), y)


def log_tail_f64(f):
    """Return (f*f/2, s*(f*f/2 + R)) with log(1+f) = f - (f*f/2 - the second).

    s = f/(2+f) (Ng, 1986).
    """
    s = div_f64(f, add_f64(f64(2.0), f))
    z = mul_f64(s, s)
    p = f64(0.13285907810253653)
    p = fma_f64(p, z, f64(0.13246770675481528))
    p = fma_f64(p, z, f64(0.15387211425515196))
    p = fma_f64(p, z, f64(0.18181773784667818))
    p = fma_f64(p, z, f64(0.22222222654967785))
    p = fma_f64(p, z, f64(0.28571428569175844))
    p = fma_f64(p, z, f64(0.40000000000005315))
    p = fma_f64(p, z, f64(0.6666666666666666))
    half_square = mul_f64(mul_f64(f64(0.5), f), f)
    return half_square, mul_f64(s, fma_f64(p, z, half_square))


def log_f64(x):
    """Return the natural logarithm."""
    f, e = log_reduced_f64(x)
    half_square, tail = log_tail_f64(f)
    tail = fma_f64(e, f64(5.497923018708371e-14), tail)
    y = fma_f64(e, f64(0.6931471805598903), sub_f64(f, sub_f64(half_square, tail)))
    return log_special_f64(x, y)


def log1p_f64(x):
    """Return log(1 + x): the logarithm of u = 1 + x, corrected by (x - (u - 1)) / u."""
    u = add_f64(f64(1.0), x)
    big = select_f64(x > f64(1.0), x, f64(1.0))
    small = select_f64(x > f64(1.0), f64(1.0), x)
    lost = sub_f64(small, sub_f64(u, big))
    f, e = log_reduced_f64(u)
    zero = e == f64(0.0)
    f = select_f64(zero & (abs_f64(x) < f64(0.5)), x, f)
    half_square, tail = log_tail_f64(f)
    correction = select_f64(f == x, f64(0.0), div_f64(lost, u))
    tail = fma_f64(e, f64(5.497923018708371e-14), add_f64(tail, correction))
    y = fma_f64(e, f64(0.6931471805598903), sub_f64(f, sub_f64(half_square, tail)))
    y = select_f64(x == f64(-1.0), f64(-np_inf), y)
    y = select_f64(x == f64(np_inf), x, y)
    y = select_f64(x == f64(0.0), x, y)
    return select_f64((x < f64(-1.0)) | (x != x), f64(np_nan), y)


def log_pair_f64(f):
    """Return (high, low) with log(1 + f) = high + low."""
    half_square, tail = log_tail_f64(f)
    high = sub_f64(f, half_square)
    return high, add_f64(sub_f64(sub_f64(f, high), half_square), tail)


def log2_f64(x):
    """Return the base-2 logarithm; exact at powers of two."""
    f, e = log_reduced_f64(x)
    high, low = log_pair_f64(f)
    y = mul_f64(high, f64(1.4426950408889634))
    error = fma_f64(high, f64(1.4426950408889634), neg_f64(y))
    error = fma_f64(high, f64(2.0355273740931033e-17), fma_f64(low, f64(1.4426950408889634), error))
    w = add_f64(e, y)
    error = add_f64(error, add_f64(sub_f64(e, w), y))
    return log_special_f64(x, add_f64(w, error))


def log10_f64(x):
    """Return the base-10 logarithm."""
    f, e = log_reduced_f64(x)
    high, low = log_pair_f64(f)
    y = mul_f64(high, f64(0.4342944819032518))
    error = fma_f64(high, f64(0.4342944819032518), neg_f64(y))
    error = fma_f64(high, f64(1.098319650216765e-17), fma_f64(low, f64(0.4342944819032518), error))
    error = fma_f64(e, f64(2.8363394551044964e-14), error)
    whole = mul_f64(e, f64(0.30102999566395283))  # exact: the constant has 42 bits
    w = add_f64(whole, y)
    error = add_f64(error, add_f64(sub_f64(whole, w), y))
    return log_special_f64(x, add_f64(w, error))


def log2_pair_f64(x):
    """Return (high, low) with log2(x) = high + low to about 2**-64.

    x must be positive and finite. The atanh series is used, with s as a pair.
    """
    f, e = log_reduced_f64(x)
    d = add_f64(f64(2.0), f)
    dl = sub_f64(f, sub_f64(d, f64(2.0)))
    s = div_f64(f, d)
    sl = div_f64(fma_f64(neg_f64(s), dl, fma_f64(neg_f64(s), d, f)), d)
    z = mul_f64(s, s)
    zl = fma_f64(f64(2.0), mul_f64(s, sl), fma_f64(s, s, neg_f64(z)))
    # R(z) = 2/3 z + 2/5 z**2 + ...: the first term as a pair, the rest rounded.
    p = f64(0.26480274365445744)
    p = fma_f64(p, z, f64(0.08491970113592283))
    p = fma_f64(p, z, f64(0.11867856381207534))
    p = fma_f64(p, z, f64(0.13330540262128315))
    p = fma_f64(p, z, f64(0.15384658548558025))
    p = fma_f64(p, z, f64(0.18181817803265402))
    p = fma_f64(p, z, f64(0.2222222222398164))
    p = fma_f64(p, z, f64(0.28571428571424906))
    p = fma_f64(p, z, f64(0.4))
    rest = mul_f64(mul_f64(z, z), p)
    r = mul_f64(z, f64(0.6666666666666666))
    rl = fma_f64(z, f64(0.6666666666666666), neg_f64(r))
    rl = fma_f64(z, f64(3.700743415417188e-17), fma_f64(zl, f64(0.6666666666666666), rl))
    sum_ = add_f64(r, rest)
    rl = add_f64(rl, add_f64(sub_f64(r, sum_), rest))
    # log(1+f) = 2 s + s R(z)
    c = add_f64(f64(2.0), sum_)
    cl = add_f64(add_f64(sub_f64(f64(2.0), c), sum_), rl)
    high = mul_f64(s, c)
    low = fma_f64(s, c, neg_f64(high))
    low = fma_f64(s, cl, fma_f64(sl, c, low))
    y = mul_f64(high, f64(1.4426950408889634))
    yl = fma_f64(high, f64(1.4426950408889634), neg_f64(y))
    yl = fma_f64(high, f64(2.0355273740931033e-17), fma_f64(low, f64(1.4426950408889634), yl))
    w = add_f64(e, y)
    yl = add_f64(yl, add_f64(sub_f64(e, w), y))
    total = add_f64(w, yl)
    return total, add_f64(sub_f64(w, total), yl)


def pow_special_f64(x, y, magnitude):
    """Return signs and special values of x**y around |x|**y, after C99 F.9.4.4."""
    whole = trunc_f64(y)
    integral = (y == whole) & (abs_f64(y) < f64(np_inf))
    half = mul_f64(y, f64(0.5))
    odd = integral & (half != trunc_f64(half))
    negative = lt_i64(bits_f64(x), i64(0))
    finite = abs_f64(x) < f64(np_inf)
    magnitude = select_f64(negative & odd, neg_f64(magnitude), magnitude)
    bad = (x < f64(0.0)) & finite & (abs_f64(y) < f64(np_inf)) & (integral != boolean(1))
    magnitude = select_f64(bad | (x != x) | (y != y), f64(np_nan), magnitude)
    one = (y == f64(0.0)) | (x == f64(1.0)) | ((x == f64(-1.0)) & (abs_f64(y) == f64(np_inf)))
    return select_f64(one, f64(1.0), magnitude)


def pow_f64(x, y):
    """Return x**y by |x|**y = 2**(y log2|x|), the logarithm and the product as pairs."""
    a = abs_f64(x)
    high, low = log2_pair_f64(a)
    p = mul_f64(y, high)
    pl = fma_f64(y, low, fma_f64(y, high, neg_f64(p)))
    p = select_f64(a == f64(0.0), mul_f64(y, f64(-np_inf)), p)
    p = select_f64(a == f64(np_inf), mul_f64(y, f64(np_inf)), p)
    pl = select_f64(abs_f64(p) < f64(1100.0), pl, f64(0.0))
    return pow_special_f64(x, y, exp2_pair_f64(p, pl))


def tanh_f64(x):
    """Return tanh(x): an odd polynomial below 0.6, 1 - 2 / (exp(2|x|) + 1) above."""
    a = abs_f64(x)
    z = mul_f64(x, x)
    p = f64(-1.8416095916001962e-05)
    p = fma_f64(p, z, f64(8.169497551784613e-05))
    p = fma_f64(p, z, f64(-0.0002323671189189616))
    p = fma_f64(p, z, f64(0.0005881050121855832))
    p = fma_f64(p, z, f64(-0.001455478385105283))
    p = fma_f64(p, z, f64(0.003592085439778235))
    p = fma_f64(p, z, f64(-0.008863232349701105))
    p = fma_f64(p, z, f64(0.02186948839832226))
    p = fma_f64(p, z, f64(-0.053968253965239105))
    p = fma_f64(p, z, f64(0.133333333333309))
    p = fma_f64(p, z, f64(-0.3333333333333333))
    near = fma_f64(mul_f64(a, z), p, a)
    e = exp_f64(add_f64(a, a))
    far = sub_f64(f64(1.0), div_f64(f64(2.0), add_f64(e, f64(1.0))))
    return copysign_f64(select_f64(a < f64(0.6), near, far), x)


def sigmoid_f64(x):
    """Return 1 / (1 + exp(-x)), without overflow."""
    e = exp_f64(neg_f64(abs_f64(x)))
    top = select_f64(x < f64(0.0), e, f64(1.0))
    return div_f64(top, add_f64(f64(1.0), e))


def erfc_positive_f64(a):
    """Return erfc(a) for a >= 0 (Shepherd and Laframboise, 1981)."""
    a = select_f64(a > f64(28.0), f64(28.0), a)
    t = div_f64(sub_f64(a, f64(4.0)), add_f64(a, f64(4.0)))
    p = f64(1.3297040779068466e-09)
    p = fma_f64(p, t, f64(2.2149879136969345e-09))
    p = fma_f64(p, t, f64(-1.3681557864163061e-08))
    p = fma_f64(p, t, f64(-1.863422505204034e-08))
    p = fma_f64(p, t, f64(1.0854290304857186e-07))
    p = fma_f64(p, t, f64(7.48317065667023e-08))
    p = fma_f64(p, t, f64(-8.234522633972194e-07))
    p = fma_f64(p, t, f64(2.944119468966864e-07))
    p = fma_f64(p, t, f64(5.708344821720602e-06))
    p = fma_f64(p, t, f64(-1.1222791967286465e-05))
    p = fma_f64(p, t, f64(-2.43986279411464e-05))
    p = fma_f64(p, t, f64(0.0001506221085354564))
    p = fma_f64(p, t, f64(-0.00019925684792937654))
    p = fma_f64(p, t, f64(-0.0007577734293268728))
    p = fma_f64(p, t, f64(0.005031970002452575))
    p = fma_f64(p, t, f64(-0.016197734030369077))
    p = fma_f64(p, t, f64(0.037167515535212206))
    p = fma_f64(p, t, f64(-0.0663303658153551))
    p = fma_f64(p, t, f64(0.09373283499846097))
    p = fma_f64(p, t, f64(-0.10103906603610965))
    p = fma_f64(p, t, f64(0.06809705425469027))
    p = fma_f64(p, t, f64(0.015379652102614244))
    p = fma_f64(p, t, f64(-0.1396211168405625))
    p = fma_f64(p, t, f64(1.2329951186255526))
    square = mul_f64(a, a)
    low = fma_f64(a, a, neg_f64(square))
    quotient = div_f64(p, fma_f64(f64(2.0), a, f64(1.0)))
    return mul_f64(exp_f64(neg_f64(square)), fma_f64(neg_f64(quotient), low, quotient))


def erf_f64(x):
    """Return erf(x): an odd polynomial below 1, 1 - erfc above."""
    a = abs_f64(x)
    z = mul_f64(x, x)
    p = f64(6.83880790712583e-11)
    p = fma_f64(p, z, f64(-1.1923361296660709e-09))
    p = fma_f64(p, z, f64(1.4811012178334226e-08))
    p = fma_f64(p, z, f64(-1.6374345899526915e-07))
    p = fma_f64(p, z, f64(1.6463443619625957e-06))
    p = fma_f64(p, z, f64(-1.4925761161876765e-05))
    p = fma_f64(p, z, f64(0.00012055338739013602))
    p = fma_f64(p, z, f64(-0.0008548327216469135))
    p = fma_f64(p, z, f64(0.005223977629571926))
    p = fma_f64(p, z, f64(-0.026866170645669388))
    p = fma_f64(p, z, f64(0.11283791670959012))
    p = fma_f64(p, z, f64(-0.3761263890318388))
    p = fma_f64(p, z, f64(0.1283791670955126))
    near = fma_f64(a, p, a)
    far = sub_f64(f64(1.0), erfc_positive_f64(a))
    return copysign_f64(select_f64(a < f64(1.0), near, far), x)


def erfc_f64(x):
    """Return erfc(x): exp(-x*x) P((a-4)/(a+4)) / (1 + 2a), a = |x|; 1 - erf below 0.47."""
    a = abs_f64(x)
    y = erfc_positive_f64(a)
    far = select_f64(x < f64(0.0), sub_f64(f64(2.0), y), y)
    z = mul_f64(x, x)
    p = f64(6.83880790712583e-11)
    p = fma_f64(p, z, f64(-1.1923361296660709e-09))
    p = fma_f64(p, z, f64(1.4811012178334226e-08))
    p = fma_f64(p, z, f64(-1.6374345899526915e-07))
    p = fma_f64(p, z, f64(1.6463443619625957e-06))
    p = fma_f64(p, z, f64(-1.4925761161876765e-05))
    p = fma_f64(p, z, f64(0.00012055338739013602))
    p = fma_f64(p, z, f64(-0.0008548327216469135))
    p = fma_f64(p, z, f64(0.005223977629571926))
    p = fma_f64(p, z, f64(-0.026866170645669388))
    p = fma_f64(p, z, f64(0.11283791670959012))
    p = fma_f64(p, z, f64(-0.3761263890318388))
    p = fma_f64(p, z, f64(0.1283791670955126))
    near = sub_f64(f64(1.0), fma_f64(x, p, x))
    return select_f64(a < f64(0.47), near, far)


def two_over_pi_word(j):
    """Return 64 bits of 2/pi after 64 (j - 1) others; word 0 is the integer part, 0."""
    return two_over_pi_table[j]


def trig_reduced_f64(x):
    """Return (r, rl, n mod 4) with |x| = n pi/2 + r + rl, |r| <= pi/4 (Payne and Hanek, 1983).

    The 53-bit significand times the 192 bits of 2/pi that matter at the input's exponent.
    """
    a = abs_f64(x)
    b = bits_f64(a)
    field = minimum_i64(maximum_i64(shr_i64(b, i64(52)), i64(1022)), i64(2046))
    m = convert_i64_u64(or_i64(and_i64(b, i64(0xFFFFFFFFFFFFF)), i64(0x10000000000000)))
    q = sub_i64(field, i64(1013))
    j = shr_i64(q, i64(6))
    s = convert_i64_u64(and_i64(q, i64(63)))
    c = sub_u64(u64(64), s)
    t0 = two_over_pi_word(j)
    t1 = two_over_pi_word(add_i64(j, i64(1)))
    t2 = two_over_pi_word(add_i64(j, i64(2)))
    t3 = two_over_pi_word(add_i64(j, i64(3)))
    w2 = or_u64(shl_u64(t0, s), shr_u64(t1, c))
    w1 = or_u64(shl_u64(t1, s), shr_u64(t2, c))
    w0 = or_u64(shl_u64(t2, s), shr_u64(t3, c))
    middle = mul_u64(m, w1)
    low = add_u64(middle, mulhi_u64(m, w0))
    carry = select_u64(lt_u64(low, middle), u64(1), u64(0))
    high = add_u64(add_u64(mul_u64(m, w2), mulhi_u64(m, w1)), carry)
    n = shr_u64(add_u64(high, u64(0x2000000000000000)), u64(62))
    part = convert_u64_i64(sub_u64(high, shl_u64(n, u64(62))))
    # (part : low) is a signed fraction of a quadrant, scaled by 2**126; sum it as a pair.
    top = mul_f64(convert_i64_f64(shr_i64(part, i64(32))), f64(4294967296.0))
    below = convert_i64_f64(and_i64(part, i64(0xFFFFFFFF)))
    h = add_f64(top, below)
    hl = add_f64(sub_f64(top, h), below)
    fraction = mul_f64(convert_u64_f64(shr_u64(low, u64(11))), f64(1.1102230246251565e-16))
    tail = add_f64(hl, fraction)
    g = add_f64(h, tail)
    gl = add_f64(sub_f64(h, g), tail)
    r = mul_f64(g, f64(1.5707963267948966))
    rl = fma_f64(g, f64(1.5707963267948966), neg_f64(r))
    rl = fma_f64(g, f64(6.123233995736766e-17), fma_f64(gl, f64(1.5707963267948966), rl))
    r = mul_f64(r, f64(2.168404344971009e-19))  # 2**-62
    rl = mul_f64(rl, f64(2.168404344971009e-19))
    small = a < f64(0.5)
    r = select_f64(small, a, r)
    rl = select_f64(small, f64(0.0), rl)
    r = select_f64(a < f64(np_inf), r, f64(np_nan))
    return r, rl, select_i64(small, i64(0), convert_u64_i64(n))


def sin_kernel_f64(r, rl):
    """Return sin(r + rl), |r| <= pi/4."""
    z = mul_f64(r, r)
    p = f64(-7.070398540585293e-13)
    p = fma_f64(p, z, f64(1.6048157321603778e-10))
    p = fma_f64(p, z, f64(-2.505202603898327e-08))
    p = fma_f64(p, z, f64(2.7557318921680134e-06))
    p = fma_f64(p, z, f64(-0.00019841269840727648))
    p = fma_f64(p, z, f64(0.008333333333332915))
    p = fma_f64(p, z, f64(-0.16666666666666666))
    low = fma_f64(mul_f64(f64(-0.5), z), rl, rl)
    return add_f64(r, fma_f64(mul_f64(r, z), p, low))


def cos_kernel_f64(r, rl):
    """Return cos(r + rl), |r| <= pi/4."""
    z = mul_f64(r, r)
    p = f64(3.4496718500363714e-14)
    p = fma_f64(p, z, f64(-1.1444418285872863e-11))
    p = fma_f64(p, z, f64(2.087655451203804e-09))
    p = fma_f64(p, z, f64(-2.7557318474475783e-07))
    p = fma_f64(p, z, f64(2.4801587300236596e-05))
    p = fma_f64(p, z, f64(-0.0013888888888887844))
    p = fma_f64(p, z, f64(0.041666666666666664))
    tail = fma_f64(neg_f64(r), rl, mul_f64(mul_f64(z, z), p))
    head = fma_f64(f64(-0.5), z, f64(1.0))
    lost = fma_f64(f64(-0.5), z, sub_f64(f64(1.0), head))
    return add_f64(head, add_f64(lost, tail))


def sin_f64(x):
    """Return the sine of any finite argument."""
    r, rl, n = trig_reduced_f64(x)
    odd = eq_i64(and_i64(n, i64(1)), i64(1))
    y = select_f64(odd, cos_kernel_f64(r, rl), sin_kernel_f64(r, rl))
    flip = shl_i64(and_i64(n, i64(2)), i64(62))
    sign = xor_i64(flip, shl_i64(shr_i64(bits_f64(x), i64(63)), i64(63)))
    return from_bits_f64(xor_i64(bits_f64(y), sign))


def cos_f64(x):
    """Return the cosine of any finite argument."""
    r, rl, n = trig_reduced_f64(x)
    odd = eq_i64(and_i64(n, i64(1)), i64(1))
    y = select_f64(odd, sin_kernel_f64(r, rl), cos_kernel_f64(r, rl))
    flip = shl_i64(and_i64(add_i64(n, i64(1)), i64(2)), i64(62))
    return from_bits_f64(xor_i64(bits_f64(y), flip))


def tan_f64(x):
    """Return sin / cos of the reduced argument, or -cos / sin in odd quadrants."""
    r, rl, n = trig_reduced_f64(x)
    s = sin_kernel_f64(r, rl)
    c = cos_kernel_f64(r, rl)
    odd = eq_i64(and_i64(n, i64(1)), i64(1))
    y = div_f64(select_f64(odd, neg_f64(c), s), select_f64(odd, s, c))
    sign = shl_i64(shr_i64(bits_f64(x), i64(63)), i64(63))
    return from_bits_f64(xor_i64(bits_f64(y), sign))


def asin_f64(x):
    """Return asin(x): an odd polynomial below 1/2, pi/2 - 2 asin(sqrt((1 - |x|)/2)) above."""
    a = abs_f64(x)
    near = a <= f64(0.5)
    half = fma_f64(f64(-0.5), a, f64(0.5))
    z = select_f64(near, mul_f64(a, a), half)
    s = select_f64(near, a, sqrt_f64(half))
    p = f64(0.0290522251403747)
    p = fma_f64(p, z, f64(-0.01529653337758346))
    p = fma_f64(p, z, f64(0.01769512254644219))
    p = fma_f64(p, z, f64(0.005345450642872072))
    p = fma_f64(p, z, f64(0.010349941615359027))
    p = fma_f64(p, z, f64(0.01147482539385495))
    p = fma_f64(p, z, f64(0.01397168095858999))
    p = fma_f64(p, z, f64(0.017352359354249502))
    p = fma_f64(p, z, f64(0.022372174467874515))
    p = fma_f64(p, z, f64(0.03038194409651627))
    p = fma_f64(p, z, f64(0.04464285714697869))
    p = fma_f64(p, z, f64(0.07499999999998029))
    p = fma_f64(p, z, f64(0.16666666666666669))
    tail = mul_f64(mul_f64(s, z), p)
    head = fma_f64(f64(-2.0), s, f64(1.5707963267948966))
    far = sub_f64(head, fma_f64(f64(2.0), tail, f64(-6.123233995736766e-17)))
    return copysign_f64(select_f64(near, add_f64(s, tail), far), x)


def acos_f64(x):
    """Return acos(x): pi/2 - asin(x) below 1/2, 2 asin(sqrt((1 - |x|)/2)) or pi minus it above."""
    a = abs_f64(x)
    near = a <= f64(0.5)
    half = fma_f64(f64(-0.5), a, f64(0.5))
    z = select_f64(near, mul_f64(a, a), half)
    s = select_f64(near, x, sqrt_f64(half))
    p = f64(0.0290522251403747)
    p = fma_f64(p, z, f64(-0.01529653337758346))
    p = fma_f64(p, z, f64(0.01769512254644219))
    p = fma_f64(p, z, f64(0.005345450642872072))
    p = fma_f64(p, z, f64(0.010349941615359027))
    p = fma_f64(p, z, f64(0.01147482539385495))
    p = fma_f64(p, z, f64(0.01397168095858999))
    p = fma_f64(p, z, f64(0.017352359354249502))
    p = fma_f64(p, z, f64(0.022372174467874515))
    p = fma_f64(p, z, f64(0.03038194409651627))
    p = fma_f64(p, z, f64(0.04464285714697869))
    p = fma_f64(p, z, f64(0.07499999999998029))
    p = fma_f64(p, z, f64(0.16666666666666669))
    tail = mul_f64(mul_f64(s, z), p)
    middle = sub_f64(f64(1.5707963267948966), sub_f64(s, sub_f64(f64(6.123233995736766e-17), tail)))
    twice = mul_f64(f64(2.0), add_f64(s, tail))
    other = sub_f64(f64(3.141592653589793), sub_f64(twice, f64(1.2246467991473532e-16)))
    return select_f64(near, middle, select_f64(x < f64(0.0), other, twice))


def atan_f64(x):
    """Return atan(x): an odd polynomial on [0, 1], pi/2 - atan(1/|x|) above."""
    a = abs_f64(x)
    inverted = a > f64(1.0)
    s = select_f64(inverted, div_f64(f64(1.0), a), a)
    z = mul_f64(s, s)
    p = f64(1.910650928839303e-05)
    p = fma_f64(p, z, f64(-0.00020991395736443054))
    p = fma_f64(p, z, f64(0.0010932799235783082))
    p = fma_f64(p, z, f64(-0.0036129588673153314))
    p = fma_f64(p, z, f64(0.008583200525075354))
    p = fma_f64(p, z, f64(-0.015818728657037887))
    p = fma_f64(p, z, f64(0.023977101093724234))
    p = fma_f64(p, z, f64(-0.03148815837783493))
    p = fma_f64(p, z, f64(0.037616826771133))
    p = fma_f64(p, z, f64(-0.04265786103104099))
    p = fma_f64(p, z, f64(0.047396042556241774))
    p = fma_f64(p, z, f64(-0.05258454781065417))
    p = fma_f64(p, z, f64(0.058816003061950575))
    p = fma_f64(p, z, f64(-0.06666577921262438))
    p = fma_f64(p, z, f64(0.0769230028697631))
    p = fma_f64(p, z, f64(-0.09090908678192308))
    p = fma_f64(p, z, f64(0.11111111097045533))
    p = fma_f64(p, z, f64(-0.14285714285461543))
    p = fma_f64(p, z, f64(0.19999999999998222))
    p = fma_f64(p, z, f64(-0.3333333333333333))
    tail = mul_f64(mul_f64(s, z), p)
    far = sub_f64(f64(1.5707963267948966), sub_f64(s, sub_f64(f64(6.123233995736766e-17), tail)))
    return copysign_f64(select_f64(inverted, far, add_f64(s, tail)), x)


def atan2_f64(y, x):
    """Return the angle of (x, y) in (-pi, pi]: atan of the smaller over the larger.

    Octants are folded.
    """
    ax = abs_f64(x)
    ay = abs_f64(y)
    steep = ay > ax
    small = select_f64(steep, ax, ay)
    large = select_f64(steep, ay, ax)
    s = div_f64(small, large)
    s = select_f64(large == f64(0.0), f64(0.0), s)
    s = select_f64(small == f64(np_inf), f64(1.0), s)
    z = mul_f64(s, s)
    p = f64(1.910650928839303e-05)
    p = fma_f64(p, z, f64(-0.00020991395736443054))
    p = fma_f64(p, z, f64(0.0010932799235783082))
    p = fma_f64(p, z, f64(-0.0036129588673153314))
    p = fma_f64(p, z, f64(0.008583200525075354))
    p = fma_f64(p, z, f64(-0.015818728657037887))
    p = fma_f64(p, z, f64(0.023977101093724234))
    p = fma_f64(p, z, f64(-0.03148815837783493))
    p = fma_f64(p, z, f64(0.037616826771133))
    p = fma_f64(p, z, f64(-0.04265786103104099))
    p = fma_f64(p, z, f64(0.047396042556241774))
    p = fma_f64(p, z, f64(-0.05258454781065417))
    p = fma_f64(p, z, f64(0.058816003061950575))
    p = fma_f64(p, z, f64(-0.06666577921262438))
    p = fma_f64(p, z, f64(0.0769230028697631))
    p = fma_f64(p, z, f64(-0.09090908678192308))
    p = fma_f64(p, z, f64(0.11111111097045533))
    p = fma_f64(p, z, f64(-0.14285714285461543))
    p = fma_f64(p, z, f64(0.19999999999998222))
    p = fma_f64(p, z, f64(-0.3333333333333333))
    tail = mul_f64(mul_f64(s, z), p)
    first = add_f64(s, tail)
    folded = sub_f64(f64(1.5707963267948966), sub_f64(s, sub_f64(f64(6.123233995736766e-17), tail)))
    left = lt_i64(bits_f64(x), i64(0))
    behind = sub_f64(f64(3.141592653589793), sub_f64(s, sub_f64(f64(1.2246467991473532e-16), tail)))
    beyond = add_f64(f64(1.5707963267948966), add_f64(s, add_f64(f64(6.123233995736766e-17), tail)))
    angle = select_f64(left, select_f64(steep, beyond, behind), select_f64(steep, folded, first))
    return select_f64((x != x) | (y != y), f64(np_nan), copysign_f64(angle, y))


def sinh_f64(x):
    """Return sinh(x): (t + t/(t+1)) / 2 with t = expm1(|x|).

    For large x, exp(|x|/2) is squared and halved.
    """
    a = abs_f64(x)
    t = expm1_f64(a)
    y = mul_f64(f64(0.5), add_f64(t, div_f64(t, add_f64(t, f64(1.0)))))
    e = exp_f64(mul_f64(f64(0.5), a))
    huge = mul_f64(mul_f64(f64(0.5), e), e)
    y = select_f64(a > f64(40.0), huge, y)
    return copysign_f64(select_f64(a < f64(3e-9), a, y), x)


def cosh_f64(x):
    """Return cosh(x): (e + 1/e) / 2 with e = exp(|x|).

    For large x, exp(|x|/2) is squared and halved.
    """
    a = abs_f64(x)
    e = exp_f64(a)
    y = mul_f64(f64(0.5), add_f64(e, div_f64(f64(1.0), e)))
    h = exp_f64(mul_f64(f64(0.5), a))
    huge = mul_f64(mul_f64(f64(0.5), h), h)
    return select_f64(a > f64(40.0), huge, y)


def asinh_f64(x):
    """Return log1p(a + a*a / (1 + sqrt(a*a + 1))), a = |x|, or log(a) + log(2) for large a."""
    a = abs_f64(x)
    b = select_f64(a > f64(1e9), f64(1e9), a)
    square = mul_f64(b, b)
    root = sqrt_f64(add_f64(square, f64(1.0)))
    y = log1p_f64(add_f64(b, div_f64(square, add_f64(f64(1.0), root))))
    far = add_f64(log_f64(a), f64(0.6931471805599453))
    y = select_f64(a > f64(1e9), far, y)
    y = select_f64(a < f64(1e-9), a, y)
    return copysign_f64(select_f64(x != x, x, y), x)


def acosh_f64(x):
    """Return log1p(t + sqrt(2t + t*t)), t = x - 1, or log(x) + log(2) for large x."""
    t = sub_f64(x, f64(1.0))
    t = select_f64(t > f64(1e9), f64(1e9), t)
    y = log1p_f64(add_f64(t, sqrt_f64(fma_f64(t, t, mul_f64(f64(2.0), t)))))
    far = add_f64(log_f64(x), f64(0.6931471805599453))
    y = select_f64(x > f64(1e9), far, y)
    return select_f64((x < f64(1.0)) | (x != x), f64(np_nan), y)


def atanh_f64(x):
    """Return atanh(x) by log1p(2a / (1 - a)) / 2, a = |x|."""
    a = abs_f64(x)
    y = mul_f64(f64(0.5), log1p_f64(div_f64(mul_f64(f64(2.0), a), sub_f64(f64(1.0), a))))
    y = select_f64(a < f64(1e-9), a, y)
    y = select_f64((a > f64(1.0)) | (x != x), f64(np_nan), y)
    return copysign_f64(y, x)


def cbrt_f64(x):
    """Return the cube root.

    The exponent is divided by 3, followed by two steps of Halley and one of Newton on the residual.
    """
    a = abs_f64(x)
    tiny = a < f64(2.2250738585072014e-308)
    huge = a > f64(1e300)
    v = select_f64(tiny, mul_f64(a, f64(18014398509481984.0)), a)
    v = select_f64(huge, mul_f64(a, f64(5.551115123125783e-17)), v)
    third = div_i64(bits_f64(v), i64(3))
    t = from_bits_f64(add_i64(third, i64(0x2A9F7893782DA1CE)))
    third_of = f64(0.3333333333333333)
    for _ in range(2):
        cube = mul_f64(mul_f64(t, t), t)
        up = fma_f64(f64(2.0), v, cube)
        down = fma_f64(f64(2.0), cube, v)
        t = mul_f64(t, div_f64(up, down))
    square = mul_f64(t, t)
    low = fma_f64(t, t, neg_f64(square))
    residual = fma_f64(neg_f64(square), t, v)
    residual = fma_f64(neg_f64(low), t, residual)
    t = fma_f64(div_f64(residual, square), third_of, t)
    t = select_f64(tiny, mul_f64(t, f64(3.814697265625e-06)), t)
    t = select_f64(huge, mul_f64(t, f64(262144.0)), t)
    odd = (a == f64(0.0)) | (a == f64(np_inf)) | (x != x)
    return copysign_f64(select_f64(odd, a, t), x)


def rsqrt_f64(x):
    """Return 1 / sqrt(x): two correctly rounded operations."""
    return div_f64(f64(1.0), sqrt_f64(x))


def sign_f64(x):
    """Return -1, 1, the zero itself, or NaN."""
    return select_f64((x == f64(0.0)) | (x != x), x, copysign_f64(f64(1.0), x))


def fmod_f64(x, y):
    """Return x - y trunc(x / y), exactly (C's fmod), by long division.

    Each step yields 11 bits of the quotient.
    """
    ax = bits_f64(abs_f64(x))
    ay = bits_f64(abs_f64(y))
    ex = maximum_i64(shr_i64(ax, i64(52)), i64(1))
    ey = maximum_i64(shr_i64(ay, i64(52)), i64(1))
    r = convert_i64_u64(sub_i64(ax, shl_i64(sub_i64(ex, i64(1)), i64(52))))
    d = convert_i64_u64(sub_i64(ay, shl_i64(sub_i64(ey, i64(1)), i64(52))))
    left = sub_i64(ex, ey)
    top = i64(0x7FF0000000000000)
    if lt_i64(ax, top) & lt_i64(ay, top) & lt_i64(i64(0), ay):
        r = select_u64(lt_i64(left, i64(0)), r, rem_u64(r, d))
        while lt_i64(i64(0), left):
            step = minimum_i64(left, i64(11))
            r = rem_u64(shl_u64(r, convert_i64_u64(step)), d)
            left = sub_i64(left, step)
    k = sub_i64(ey, i64(1075))
    h = shr_i64(k, i64(1))
    y1 = from_bits_f64(shl_i64(add_i64(h, i64(1023)), i64(52)))
    y2 = from_bits_f64(shl_i64(add_i64(sub_i64(k, h), i64(1023)), i64(52)))
    value = mul_f64(mul_f64(convert_u64_f64(r), y1), y2)
    value = select_f64(lt_i64(ax, ay), abs_f64(x), value)
    bad = (x != x) | (y != y) | (abs_f64(x) == f64(np_inf)) | (y == f64(0.0))
    return select_f64(bad, f64(np_nan), copysign_f64(value, x))


def remainder_f64(x, y):
    """Return the remainder with the divisor's sign (% of Python and NumPy).

    This is fmod, plus y if the signs differ.
    """
    r = fmod_f64(x, y)
    differ = (r != f64(0.0)) & ((r < f64(0.0)) != (y < f64(0.0)))
    r = select_f64(differ, add_f64(r, y), r)
    return select_f64(r == f64(0.0), copysign_f64(r, y), r)


def through_f64(x):
    """Return an f32 function as one f64 function rounded once; ``wide`` is bound for each."""
    return convert_f64_f32(wide(convert_f32_f64(x)))


def through_f64_binary(x, y):
    """Return a binary f32 function as one f64 function rounded once."""
    return convert_f64_f32(wide(convert_f32_f64(x), convert_f32_f64(y)))
