"""Elementary functions of f32: the contract's source, over named primitives only.

Branch-free (selects), so that a loop around any of them is vectorised; the exceptions are ``fmod``
and ``remainder``, whose long division is a loop. Polynomials are least-squares fits reweighted
towards minimax (Lawson), with coefficients rounded to f32 one after another. ``sinh, cosh, asinh,
acosh, atanh, cbrt, atan2, pow`` are computed in f64 and rounded once at the end: far simpler than
pairs of f32, still vectorised on the CPU, slower on GPUs with few f64 units.

Bounds are measured, in ``functions.BOUNDS``. Special values follow C99's annex F.
"""

# ruff: noqa: F821  (primitives are bound by ``functions.instantiate_functions``, per target)
from __future__ import annotations


def scale_f32(p, n):
    """Return p * 2**n rounded once, for p in [0.5, 2] and n in [-151, 129].

    The first product is exact.
    """
    h = shr_i32(n, i32(1))
    g = sub_i32(n, h)
    p = mul_f32(p, from_bits_f32(shl_i32(add_i32(h, i32(127)), i32(23))))
    return mul_f32(p, from_bits_f32(shl_i32(add_i32(g, i32(127)), i32(23))))


def exp_f32(x):
    """Return e**x by the reduction x = n ln 2 + r and a polynomial of degree 6.

    The reduction uses two constants (Cody and Waite).
    """
    x = select_f32(x < f32(-104.0), f32(-104.0), x)
    x = select_f32(x > f32(89.0), f32(89.0), x)
    shifted = fma_f32(x, f32(1.44269504), f32(12582912.0))  # 1.5 * 2**23: rounds to an integer
    n = sub_i32(bits_f32(shifted), bits_f32(f32(12582912.0)))
    k = sub_f32(shifted, f32(12582912.0))
    r = fma_f32(neg_f32(k), f32(0.693145752), x)
    r = fma_f32(neg_f32(k), f32(1.42860677e-06), r)
    p = f32(0.00139352982)
    p = fma_f32(p, r, f32(0.00836325064))
    p = fma_f32(p, r, f32(0.041666463))
    p = fma_f32(p, r, f32(0.166665763))
    p = fma_f32(p, r, f32(0.5))
    p = fma_f32(p, r, f32(1.0))
    p = fma_f32(p, r, f32(1.0))
    return scale_f32(p, n)


def exp2_f32(x):
    """Return 2**x."""
    x = select_f32(x < f32(-151.0), f32(-151.0), x)
    x = select_f32(x > f32(129.0), f32(129.0), x)
    shifted = add_f32(x, f32(12582912.0))
    n = sub_i32(bits_f32(shifted), bits_f32(f32(12582912.0)))
    r = sub_f32(x, sub_f32(shifted, f32(12582912.0)))
    p = f32(1.41383416e-05)
    p = fma_f32(p, r, f32(0.000154538749))
    p = fma_f32(p, r, f32(0.00133385474))
    p = fma_f32(p, r, f32(0.00961808302))
    p = fma_f32(p, r, f32(0.0555040464))
    p = fma_f32(p, r, f32(0.240226507))
    p = fma_f32(p, r, f32(0.693147182))
    p = fma_f32(p, r, f32(1.0))
    return scale_f32(p, n)


def expm1_f32(x):
    """Return e**x - 1 = 2 (2**(n-1) expm1(r) + (2**(n-1) - 1/2)), or expm1(r) if n is 0."""
    y = select_f32(x < f32(-18.0), f32(-18.0), x)
    y = select_f32(y > f32(89.0), f32(89.0), y)
    shifted = fma_f32(y, f32(1.44269504), f32(12582912.0))
    n = sub_i32(bits_f32(shifted), bits_f32(f32(12582912.0)))
    k = sub_f32(shifted, f32(12582912.0))
    r = fma_f32(neg_f32(k), f32(0.693145752), y)
    r = fma_f32(neg_f32(k), f32(1.42860677e-06), r)
    p = f32(0.00139352982)
    p = fma_f32(p, r, f32(0.00836325064))
    p = fma_f32(p, r, f32(0.041666463))
    p = fma_f32(p, r, f32(0.166665763))
    p = fma_f32(p, r, f32(0.5))
    p = fma_f32(mul_f32(r, r), p, r)
    t = from_bits_f32(shl_i32(add_i32(n, i32(126)), i32(23)))  # 2**(n-1)
    far = mul_f32(f32(2.0), fma_f32(t, p, sub_f32(t, f32(0.5))))
    return copysign_f32(select_f32(eq_i32(n, i32(0)), p, far), x)


def log_reduced_f32(x):
    """Return (m - 1, e) with x = m 2**e, m in [sqrt(1/2), sqrt(2)); e as f32.

    x must be positive and finite.
    """
    tiny = x < f32(1.17549435e-38)
    x = select_f32(tiny, mul_f32(x, f32(8388608.0)), x)
    b = sub_i32(bits_f32(x), i32(0x3F3504F3))
    e = shr_i32(b, i32(23))
    m = from_bits_f32(add_i32(and_i32(b, i32(0x7FFFFF)), i32(0x3F3504F3)))
    e = sub_i32(e, select_i32(tiny, i32(23), i32(0)))
    return sub_f32(m, f32(1.0)), convert_i32_f32(e)


def log_special_f32(x, y):
    """Return the logarithms' special values, or ``y``, the value of the main path."""
    y = select_f32(x == f32(0.0), f32(-np_inf), y)
    y = select_f32(x == f32(np_inf), x, y)
    return select_f32((x < f32(0.0)) | (x != x), f32(np_nan), y)


def log_f32(x):
    """Return the natural logarithm."""
    f, e = log_reduced_f32(x)
    p = f32(-0.0832419693)
    p = fma_f32(p, f, f32(0.128062665))
    p = fma_f32(p, f, f32(-0.129396051))
    p = fma_f32(p, f, f32(0.141887918))
    p = fma_f32(p, f, f32(-0.166437179))
    p = fma_f32(p, f, f32(0.200019613))
    p = fma_f32(p, f, f32(-0.250002772))
    p = fma_f32(p, f, f32(0.333333254))
    square = mul_f32(f, f)
    tail = fma_f32(mul_f32(p, f), square, mul_f32(f32(-0.5), square))
    tail = fma_f32(e, f32(-2.12194442e-04), tail)
    y = fma_f32(e, f32(0.693359375), add_f32(f, tail))
    return log_special_f32(x, y)


def log2_f32(x):
    """Return the base-2 logarithm; exact at powers of two."""
    f, e = log_reduced_f32(x)
    p = f32(-0.117391132)
    p = fma_f32(p, f, f32(0.186365917))
    p = fma_f32(p, f, f32(-0.188177601))
    p = fma_f32(p, f, f32(0.204462573))
    p = fma_f32(p, f, f32(-0.239953756))
    p = fma_f32(p, f, f32(0.288579583))
    p = fma_f32(p, f, f32(-0.360682547))
    p = fma_f32(p, f, f32(0.480898023))
    p = fma_f32(p, f, f32(-0.721347511))
    tail = fma_f32(f, f32(1.92596299e-08), mul_f32(p, mul_f32(f, f)))
    y = add_f32(e, fma_f32(f, f32(1.44269502), tail))
    return log_special_f32(x, y)


def log10_f32(x):
    """Return the base-10 logarithm."""
    f, e = log_reduced_f32(x)
    p = f32(-0.0350629725)
    p = fma_f32(p, f, f32(0.0561193302))
    p = fma_f32(p, f, f32(-0.0567661226))
    p = fma_f32(p, f, f32(0.0615510233))
    p = fma_f32(p, f, f32(-0.0722188577))
    p = fma_f32(p, f, f32(0.086870797))
    p = fma_f32(p, f, f32(-0.108576879))
    p = fma_f32(p, f, f32(0.144764736))
    p = fma_f32(p, f, f32(-0.217147231))
    tail = fma_f32(f, f32(-1.010305e-08), mul_f32(p, mul_f32(f, f)))
    tail = fma_f32(e, f32(4.60503907e-06), tail)
    y = fma_f32(e, f32(0.301025391), fma_f32(f, f32(0.434294492), tail))
    return log_special_f32(x, y)


def log1p_f32(x):
    """Return log(1 + x).

    e comes from the bits of 1 + x; m - 1 = x 2**-e + (2**-e - 1), rounded once.
    """
    u = add_f32(f32(1.0), x)
    shift = and_i32(sub_i32(bits_f32(u), i32(0x3F400000)), i32(-8388608))  # e * 2**23
    scaled = from_bits_f32(sub_i32(bits_f32(x), shift))
    four_t = from_bits_f32(sub_i32(i32(0x40800000), shift))  # 4 * 2**-e stays normal
    scaled = select_f32(eq_i32(shift, i32(0)), x, scaled)
    f = add_f32(scaled, fma_f32(f32(0.25), four_t, f32(-1.0)))
    e = convert_i32_f32(shr_i32(shift, i32(23)))
    p = f32(0.0458606631)
    p = fma_f32(p, f, f32(-0.0987475812))
    p = fma_f32(p, f, f32(0.117387936))
    p = fma_f32(p, f, f32(-0.126085922))
    p = fma_f32(p, f, f32(0.142594427))
    p = fma_f32(p, f, f32(-0.166616559))
    p = fma_f32(p, f, f32(0.200004265))
    p = fma_f32(p, f, f32(-0.250000507))
    p = fma_f32(p, f, f32(0.333333313))
    square = mul_f32(f, f)
    tail = fma_f32(mul_f32(p, f), square, mul_f32(f32(-0.5), square))
    tail = fma_f32(e, f32(-2.12194442e-04), tail)
    y = fma_f32(e, f32(0.693359375), add_f32(f, tail))
    y = select_f32(x == f32(-1.0), f32(-np_inf), y)
    y = select_f32(x == f32(np_inf), x, y)
    y = select_f32(x == f32(0.0), x, y)
    return select_f32((x < f32(-1.0)) | (x != x), f32(np_nan), y)


def tanh_f32(x):
    """Return 1 - 2 / (exp(2|x|) + 1); an odd polynomial below 0.6."""
    a = abs_f32(x)
    z = mul_f32(x, x)
    p = f32(-0.00629876088)
    p = fma_f32(p, z, f32(0.0211335961))
    p = fma_f32(p, z, f32(-0.0538795665))
    p = fma_f32(p, z, f32(0.133329645))
    p = fma_f32(p, z, f32(-0.333333313))
    near = fma_f32(mul_f32(a, z), p, a)
    e = exp_f32(add_f32(a, a))
    far = sub_f32(f32(1.0), div_f32(f32(2.0), add_f32(e, f32(1.0))))
    return copysign_f32(select_f32(a < f32(0.6), near, far), x)


def sigmoid_f32(x):
    """Return 1 / (1 + exp(-x)) without overflow: exp(-|x|) or 1 over 1 + exp(-|x|)."""
    e = exp_f32(neg_f32(abs_f32(x)))
    top = select_f32(x < f32(0.0), e, f32(1.0))
    return div_f32(top, add_f32(f32(1.0), e))


def erf_f32(x):
    """Return erf(x): an odd polynomial below 1, 1 - exp(a P(a)) above."""
    a = abs_f32(x)
    z = mul_f32(x, x)
    p = f32(7.92460924e-05)
    p = fma_f32(p, z, f32(-0.000803194416))
    p = fma_f32(p, z, f32(0.00519085256))
    p = fma_f32(p, z, f32(-0.0268551763))
    p = fma_f32(p, z, f32(0.11283619))
    p = fma_f32(p, z, f32(-0.376126289))
    p = fma_f32(p, z, f32(0.128379166))
    near = fma_f32(a, p, a)
    b = select_f32(a > f32(4.0), f32(4.0), a)
    q = f32(1.95090433e-06)
    q = fma_f32(q, b, f32(-3.15525867e-05))
    q = fma_f32(q, b, f32(0.000200524766))
    q = fma_f32(q, b, f32(-0.000453279179))
    q = fma_f32(q, b, f32(-0.00193480053))
    q = fma_f32(q, b, f32(0.0214432739))
    q = fma_f32(q, b, f32(-0.104333632))
    q = fma_f32(q, b, f32(-0.636016846))
    q = fma_f32(q, b, f32(-1.12848115))
    far = sub_f32(f32(1.0), exp_f32(mul_f32(q, b)))
    return copysign_f32(select_f32(a < f32(1.0), near, far), x)


def erfc_f32(x):
    """Return erfc(x): exp(-a*a) P((a-2)/(a+2)) / (1 + 2a), a = |x|; 1 - erf below 0.47.

    Shepherd and Laframboise (1981).
    """
    a = abs_f32(x)
    a = select_f32(a > f32(11.0), f32(11.0), a)
    t = div_f32(sub_f32(a, f32(2.0)), add_f32(a, f32(2.0)))
    p = f32(3.61973725e-05)
    p = fma_f32(p, t, f32(-0.000350450253))
    p = fma_f32(p, t, f32(-0.00125909527))
    p = fma_f32(p, t, f32(0.00126156665))
    p = fma_f32(p, t, f32(0.00864080898))
    p = fma_f32(p, t, f32(-0.00804133154))
    p = fma_f32(p, t, f32(-0.054206524))
    p = fma_f32(p, t, f32(0.164052814))
    p = fma_f32(p, t, f32(-0.166031033))
    p = fma_f32(p, t, f32(-0.0927638859))
    p = fma_f32(p, t, f32(1.27697837))
    square = mul_f32(a, a)
    low = fma_f32(a, a, neg_f32(square))
    quotient = div_f32(p, fma_f32(f32(2.0), a, f32(1.0)))
    y = mul_f32(exp_f32(neg_f32(square)), fma_f32(neg_f32(quotient), low, quotient))
    far = select_f32(x < f32(0.0), sub_f32(f32(2.0), y), y)
    z = mul_f32(x, x)
    q = f32(7.92460924e-05)
    q = fma_f32(q, z, f32(-0.000803194416))
    q = fma_f32(q, z, f32(0.00519085256))
    q = fma_f32(q, z, f32(-0.0268551763))
    q = fma_f32(q, z, f32(0.11283619))
    q = fma_f32(q, z, f32(-0.376126289))
    q = fma_f32(q, z, f32(0.128379166))
    near = sub_f32(f32(1.0), fma_f32(x, q, x))
    return select_f32(a < f32(0.47), near, far)


def trig_reduced_f32(x):
    """Return (r, rl, n mod 4) with |x| = n pi/2 + r + rl, |r| <= pi/4 (Payne and Hanek, 1983).

    One integer path for all inputs: the 24-bit significand times the 128 bits of 2/pi that matter
    at the input's exponent; what is dropped above is a multiple of 4 quadrants.
    """
    a = abs_f32(x)
    b = bits_f32(a)
    field = maximum_i32(shr_i32(b, i32(23)), i32(126))
    m = convert_i32_u64(or_i32(and_i32(b, i32(0x7FFFFF)), i32(0x800000)))
    q = convert_i32_u64(minimum_i32(sub_i32(field, i32(88)), i32(166)))
    j1 = le_u64(u64(64), q)
    j2 = le_u64(u64(128), q)
    w0 = select_u64(j2, u64(0xFC2757D1F534DDC0), select_u64(j1, u64(0xA2F9836E4E441529), u64(0)))
    w1 = select_u64(j1, u64(0xFC2757D1F534DDC0), u64(0xA2F9836E4E441529))
    w1 = select_u64(j2, u64(0xDB6295993C439041), w1)
    w2 = select_u64(j1, u64(0xDB6295993C439041), u64(0xFC2757D1F534DDC0))
    w2 = select_u64(j2, u64(0xFE5163ABDEBBC561), w2)
    s = and_u64(q, u64(63))
    c = sub_u64(u64(64), s)
    high = or_u64(shl_u64(w0, s), shr_u64(w1, c))
    low = or_u64(shl_u64(w1, s), shr_u64(w2, c))
    carry = shr_u64(mul_u64(m, and_u64(low, u64(0xFFFFFFFF))), u64(32))
    carry = shr_u64(add_u64(mul_u64(m, shr_u64(low, u64(32))), carry), u64(32))
    product = add_u64(mul_u64(m, high), carry)  # in quadrants, scaled by 2**62
    n = shr_u64(add_u64(product, u64(0x2000000000000000)), u64(62))
    part = convert_u64_i64(sub_u64(product, shl_u64(n, u64(62))))
    r64 = mul_f64(convert_i64_f64(part), f64(3.4061215800304e-19))  # pi/2 / 2**62
    small = a < f32(0.5)
    r = select_f32(small, a, convert_f64_f32(r64))
    rl = select_f32(small, f32(0.0), convert_f64_f32(sub_f64(r64, convert_f32_f64(r))))
    r = select_f32(a < f32(np_inf), r, f32(np_nan))
    return r, rl, select_i32(small, i32(0), convert_u64_i32(n))


def sin_kernel_f32(r, rl):
    """Return sin(r + rl), |r| <= pi/4, |rl| at most half an ulp of r."""
    z = mul_f32(r, r)
    p = f32(2.91661422e-06)
    p = fma_f32(p, z, f32(-0.00019860841))
    p = fma_f32(p, z, f32(0.00833339617))
    p = fma_f32(p, z, f32(-0.166666672))
    return add_f32(r, fma_f32(mul_f32(r, z), p, rl))


def cos_kernel_f32(r, rl):
    """Return cos(r + rl), |r| <= pi/4."""
    z = mul_f32(r, r)
    p = f32(2.45436295e-05)
    p = fma_f32(p, z, f32(-0.00138882711))
    p = fma_f32(p, z, f32(0.0416666642))
    tail = fma_f32(neg_f32(r), rl, mul_f32(mul_f32(z, z), p))
    head = fma_f32(f32(-0.5), z, f32(1.0))
    lost = fma_f32(f32(-0.5), z, sub_f32(f32(1.0), head))
    return add_f32(head, add_f32(lost, tail))


def sin_f32(x):
    """Return the sine of any finite argument."""
    r, rl, n = trig_reduced_f32(x)
    odd = eq_i32(and_i32(n, i32(1)), i32(1))
    y = select_f32(odd, cos_kernel_f32(r, rl), sin_kernel_f32(r, rl))
    flip = shl_i32(and_i32(n, i32(2)), i32(30))
    sign = xor_i32(flip, and_i32(bits_f32(x), i32(-2147483648)))
    return from_bits_f32(xor_i32(bits_f32(y), sign))


def cos_f32(x):
    """Return the cosine of any finite argument."""
    r, rl, n = trig_reduced_f32(x)
    odd = eq_i32(and_i32(n, i32(1)), i32(1))
    y = select_f32(odd, sin_kernel_f32(r, rl), cos_kernel_f32(r, rl))
    flip = shl_i32(and_i32(add_i32(n, i32(1)), i32(2)), i32(30))
    return from_bits_f32(xor_i32(bits_f32(y), flip))


def tan_f32(x):
    """Return sin / cos of the reduced argument, or -cos / sin in odd quadrants."""
    r, rl, n = trig_reduced_f32(x)
    s = sin_kernel_f32(r, rl)
    c = cos_kernel_f32(r, rl)
    odd = eq_i32(and_i32(n, i32(1)), i32(1))
    y = div_f32(select_f32(odd, neg_f32(c), s), select_f32(odd, s, c))
    sign = and_i32(bits_f32(x), i32(-2147483648))
    return from_bits_f32(xor_i32(bits_f32(y), sign))


def asin_f32(x):
    """Return asin(x): an odd polynomial below 1/2, pi/2 - 2 asin(sqrt((1 - |x|)/2)) above."""
    a = abs_f32(x)
    near = a <= f32(0.5)
    half = fma_f32(f32(-0.5), a, f32(0.5))
    z = select_f32(near, mul_f32(a, a), half)
    s = select_f32(near, a, sqrt_f32(half))
    p = f32(0.0383233689)
    p = fma_f32(p, z, f32(0.0264359415))
    p = fma_f32(p, z, f32(0.045019798))
    p = fma_f32(p, z, f32(0.074987635))
    p = fma_f32(p, z, f32(0.166666731))
    tail = mul_f32(mul_f32(s, z), p)
    head = fma_f32(f32(-2.0), s, f32(1.57079637))
    far = sub_f32(head, fma_f32(f32(2.0), tail, f32(4.37113883e-08)))
    return copysign_f32(select_f32(near, add_f32(s, tail), far), x)


def acos_f32(x):
    """Return acos(x): pi/2 - asin(x) below 1/2, 2 asin(sqrt((1 - |x|)/2)) or pi minus it above."""
    a = abs_f32(x)
    near = a <= f32(0.5)
    half = fma_f32(f32(-0.5), a, f32(0.5))
    z = select_f32(near, mul_f32(a, a), half)
    s = select_f32(near, x, sqrt_f32(half))
    p = f32(0.0383233689)
    p = fma_f32(p, z, f32(0.0264359415))
    p = fma_f32(p, z, f32(0.045019798))
    p = fma_f32(p, z, f32(0.074987635))
    p = fma_f32(p, z, f32(0.166666731))
    tail = mul_f32(mul_f32(s, z), p)
    middle = sub_f32(f32(1.57079637), sub_f32(s, sub_f32(f32(-4.37113883e-08), tail)))
    twice = mul_f32(f32(2.0), add_f32(s, tail))
    other = sub_f32(f32(3.14159274), add_f32(twice, f32(8.74227766e-08)))
    far = select_f32(x < f32(0.0), other, twice)
    return select_f32(near, middle, far)


def atan_f32(x):
    """Return atan(x): an odd polynomial on [0, 1], pi/2 - atan(1/|x|) above."""
    a = abs_f32(x)
    inverted = a > f32(1.0)
    s = select_f32(inverted, div_f32(f32(1.0), a), a)
    z = mul_f32(s, s)
    p = f32(-0.00247787382)
    p = fma_f32(p, z, f32(0.0138663882))
    p = fma_f32(p, z, f32(-0.036443159))
    p = fma_f32(p, z, f32(0.062971577))
    p = fma_f32(p, z, f32(-0.0867790133))
    p = fma_f32(p, z, f32(0.110386826))
    p = fma_f32(p, z, f32(-0.142790794))
    p = fma_f32(p, z, f32(0.199997514))
    p = fma_f32(p, z, f32(-0.333333313))
    tail = mul_f32(mul_f32(s, z), p)
    y = add_f32(s, tail)
    far = sub_f32(f32(1.57079637), sub_f32(s, sub_f32(f32(-4.37113883e-08), tail)))
    return copysign_f32(select_f32(inverted, far, y), x)


def rsqrt_f32(x):
    """Return 1 / sqrt(x): two correctly rounded operations."""
    return div_f32(f32(1.0), sqrt_f32(x))


def sign_f32(x):
    """Return -1, 1, the zero itself, or NaN."""
    return select_f32((x == f32(0.0)) | (x != x), x, copysign_f32(f32(1.0), x))


def fmod_f32(x, y):
    """Return x - y trunc(x / y), exactly (C's fmod), by long division.

    Each step yields 40 bits of the quotient.
    """
    ax = bits_f32(abs_f32(x))
    ay = bits_f32(abs_f32(y))
    ex = maximum_i32(shr_i32(ax, i32(23)), i32(1))
    ey = maximum_i32(shr_i32(ay, i32(23)), i32(1))
    mx = sub_i32(ax, shl_i32(sub_i32(ex, i32(1)), i32(23)))  # with its implicit bit
    my = sub_i32(ay, shl_i32(sub_i32(ey, i32(1)), i32(23)))
    r = convert_i32_u64(mx)
    d = convert_i32_u64(my)
    left = sub_i32(ex, ey)
    if lt_i32(ax, i32(0x7F800000)) & lt_i32(ay, i32(0x7F800000)) & lt_i32(i32(0), ay):
        r = select_u64(lt_i32(left, i32(0)), r, rem_u64(r, d))
        while lt_i32(i32(0), left):
            step = minimum_i32(left, i32(40))
            r = rem_u64(shl_u64(r, convert_i32_u64(step)), d)
            left = sub_i32(left, step)
    k = sub_i32(ey, i32(150))
    h = shr_i32(k, i32(1))
    y1 = from_bits_f32(shl_i32(add_i32(h, i32(127)), i32(23)))
    y2 = from_bits_f32(shl_i32(add_i32(sub_i32(k, h), i32(127)), i32(23)))
    value = mul_f32(mul_f32(convert_u64_f32(r), y1), y2)
    value = select_f32(lt_i32(ax, ay), abs_f32(x), value)
    bad = (x != x) | (y != y) | (abs_f32(x) == f32(np_inf)) | (y == f32(0.0))
    return select_f32(bad, f32(np_nan), copysign_f32(value, x))


def remainder_f32(x, y):
    """Return the remainder with the divisor's sign (% of Python and NumPy).

    This is fmod, plus y if the signs differ.
    """
    r = fmod_f32(x, y)
    differ = (r != f32(0.0)) & ((r < f32(0.0)) != (y < f32(0.0)))
    r = select_f32(differ, add_f32(r, y), r)
    return select_f32(r == f32(0.0), copysign_f32(r, y), r)
