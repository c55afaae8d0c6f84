"""Rows: Bessel functions of orders 0 and 1 and Airy's function, which only torch.special has.

The approximations are those of PyTorch's Math.h (Cephes, by S. Moshier; PyTorch leaves the leading 1 of some denominators
out, and so do these: it shows in the seventh digit of float64).
"""

from __future__ import annotations

import math
from typing import Any

from tabtorch.engine import special_functions as sf
from tabtorch.engine.expr import absolute, const, cos, define, exp, isinf, log, sin, sqrt, where
from tabtorch.engine.functions import infinity, kept, not_a_number, poly
from tabtorch.ops.machinery.registry import Row, elementwise
from tabtorch.ops.rows.row_helpers import rule

# order 0: both kinds far away, J near 0, Y near 0
_FAR0 = (
    (
        0.0007969367292973471, 0.08283523921074408, 1.239533716464143, 5.447250030587687, 8.74716500199817,
        5.303240382353949, 1.0,
    ),
    (
        0.0009244088105588637, 0.08562884743544745, 1.2535274390105895, 5.470977403304171, 8.761908832370695,
        5.306052882353947, 1.0,
    ),
    (
        -0.011366383889846916, -1.2825271867050931, -19.553954425773597, -93.20601521237683, -177.68116798048806,
        -147.07750515495118, -51.41053267665993, -6.050143506007285,
    ),
    (
        64.3178256118178, 856.4300259769806, 3882.4018360540163, 7240.467741956525, 5930.727011873169,
         2062.0933166032783, 242.0057402402914,
    ),
)  # fmt: skip
_J0 = (
    (-4794432209.782018, 1956174919465.5657, -249248344360967.72, 9708622510473064.0),
    (499.563147152651, 173785.4016763747, 48440965.83399621, 11185553704.535683, 2112775201154.892,
     310518229857422.56, 3.1812195594320496e+16, 1.7108629408104315e+18),
)  # fmt: skip
_Y0 = (
    (15592.436785523574, -14663929.59039716, 5435264770.518765, -982136065717.9115, 87590639439536.7,
     -3466283033847297.0, 4.4273326857256984e+16, -1.8495080043698668e+16),
    (1041.2835366425984, 626107.330137135, 268919633.39381415, 86400248710.3935, 20297961275010.555,
     3171577528429750.5, 2.5059625617265306e+17),
)  # fmt: skip
# order 1: both kinds far away, J near 0, Y near 0
_FAR1 = (
    (
        0.0007621256162081731, 0.07313970569409176, 1.1271960812968493, 5.112079511468076, 8.424045901417724,
        5.214515986823615, 1.0,
    ),
    (
        0.0005713231280725487, 0.06884559087544954, 1.105142326340617, 5.073863861286015, 8.399855543276042,
        5.209828486823619, 1.0,
    ),
    (
        0.05108625947501766, 4.982138729512334, 75.82382841325453, 366.7796093601508, 710.8563049989261,
         597.4896124006136,
        211.68875710057213, 25.207020585802372,
    ),
    (
        74.23732770356752, 1056.4488603826283, 4986.410583376536, 9562.318924047562, 7997.041604473507,
         2826.1927851763908,
        336.0936078106983,
    ),
)  # fmt: skip
_J1 = (
    (-899971225.7055594, 452228297998.19403, -72749424522181.83, 3682957328638529.0),
    (620.8364781180543, 256987.25675774884, 83514679.14319493, 22151159547.97925, 4749141220799.914,
     784369607876235.9, 8.952223361846274e+16, 5.322786203326801e+18),
)  # fmt: skip
_Y1 = (
    (1263204747.9017804, -647355876379.1603, 114509511541823.73, -8127702555013251.0, 2.024394757135949e+17,
     -7.788771962659501e+17),
    (594.3015923461282, 235564.09294306856, 73481194.44597217, 18760131610.870617, 3882312774962.3857,
     620557727146953.8, 6.871410873553005e+16, 3.9727060811656064e+18),
)  # fmt: skip
_K0_NEAR = (
    1.374465435613523e-16, 4.25981614279661e-14, 1.0349695257633842e-11, 1.904516377220209e-09,
     2.5347910790261494e-07,
    2.286212103119452e-05, 0.001264615411446926, 0.0359799365153615, 0.3442898999246285, -0.5353273932339028,
)  # fmt: skip
_K0_FAR = (
    5.300433772686263e-18, -1.6475804301524212e-17, 5.2103915050390274e-17, -1.678231096805412e-16,
    5.512055978524319e-16, -1.848593377343779e-15, 6.3400764774050706e-15, -2.2275133269916698e-14,
    8.032890775363575e-14, -2.9800969231727303e-13, 1.140340588208475e-12, -4.514597883373944e-12,
    1.8559491149547177e-11, -7.957489244477107e-11, 3.577397281400301e-10, -1.69753450938906e-09,
     8.574034017414225e-09,
    -4.660489897687948e-08, 2.766813639445015e-07, -1.8317555227191195e-06, 1.39498137188765e-05,
    -0.00012849549581627802, 0.0015698838857300533, -0.0314481013119645, 2.4403030820659555,
)  # fmt: skip
_K1_NEAR = (
    -7.023863479386288e-18, -2.427449850519366e-15, -6.666901694199329e-13, -1.4114883926335278e-10,
    -2.213387630734726e-08, -2.4334061415659684e-06, -0.0001730288957513052, -0.006975723859639864,
    -0.12261118082265715, -0.3531559607765449, 1.5253002273389478,
)  # fmt: skip
_K1_FAR = (
    -5.756744483665017e-18, 1.7940508731475592e-17, -5.689462558442859e-17, 1.838093544366639e-16,
    -6.057047248373319e-16, 2.038703165624334e-15, -7.019837090418314e-15, 2.4771544244813043e-14,
    -8.976705182324994e-14, 3.3484196660784293e-13, -1.2891739609510289e-12, 5.13963967348173e-12,
    -2.1299678384275683e-11, 9.218315187605006e-11, -4.1903547593418965e-10, 2.015049755197033e-09,
    -1.0345762465678097e-08, 5.7410841254500495e-08, -3.5019606030878126e-07, 2.406484947837217e-06,
    -1.936197974166083e-05, 0.00019521551847135162, -0.002857816859622779, 0.10392373657681724, 2.7206261904844427,
)  # fmt: skip
_AN = (
    0.346538101525629, 12.007595273964581, 76.27960536152345, 168.08922493463058, 159.75639135016442,
     70.53609068404442,
    14.026469116338967, 1.0,
)  # fmt: skip
_AD = (
    0.5675945326387702, 14.75625625848472, 84.51389701414746, 177.31808814540045, 164.2346928715297,
     71.47784008255756,
    14.095913560783403, 1.0,
)  # fmt: skip
_AFN = (
    -0.1316963234183318, -0.6264565444319123, -0.6931580360369335, -0.2797799815451191, -0.04919001326095003,
    -0.004062659235948854, -0.0001592764962392621, -2.776491081552329e-06, -1.6778769848911465e-08,
)  # fmt: skip
_AFD = (
    13.356042070655324, 32.682503279522464, 26.736704094149957, 9.187074029072596, 1.4752914677166642,
    0.11568717379518804, 0.004402916416152112, 7.547203482874142e-05, 4.5185009297058035e-07,
)  # fmt: skip
_AGN = (
    0.01973399320916857, 0.39110302961568827, 1.0657989759959559, 0.9391692298166502, 0.35146565610554764,
    0.06338889196289255, 0.005858041130483885, 0.000282851600836737, 6.98793669997261e-06, 8.117892395543892e-08,
    3.415517847659236e-10,
)  # fmt: skip
_AGD = (
    9.30892908077442, 19.835292871831214, 15.564662893286462, 5.476860694229755, 0.9542936116189619,
    0.08645808263523921, 0.004126565238242226, 0.00010125908511650914, 1.1716673321441352e-06, 4.9183457006293e-09,
)  # fmt: skip


def _chebyshev(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Clenshaw's sum of Chebyshev polynomials of x / 2, highest first; f32 cannot tell the smallest terms."""
    if x.type == "f32":
        coefficients = tuple(c for c in coefficients if abs(c) > 1e-9)
    q, a = const(0, x.type), const(coefficients[0], x.type)
    p = q
    for c in coefficients[1:]:
        p, q, a = q, a, x * a - q + c
    return (a - p) * 0.5


def _ratio(x: Any, tables: tuple[tuple[float, ...], ...]) -> Any:
    return poly(x, tables[0]) / poly(x, tables[1])


def _far(x: Any, order: int, second: bool) -> Any:
    """J and Y for x > 5: amplitude, and phase x - pi/4 or x - 3 pi/4 by the sine and cosine of x itself."""
    tables = _FAR1 if order else _FAR0
    w = 5.0 / x
    p, q = _ratio(w * w, tables[:2]), w * _ratio(w * w, tables[2:])
    s, c = sin(x), cos(x)
    s, c = (-s - c, s - c) if order else (s - c, s + c)
    return ((p * s + q * c) if second else (p * c - q * s)) / sqrt(x * math.pi)


@define("j0")
def _j0(x: Any) -> Any:
    a = absolute(x)
    z = a * a
    near = (z - 5.783185962946785) * (z - 30.471262343662087) * _ratio(z, _J0)
    near = where(a < 0.00001, 1.0 - z * 0.25, near)
    return where(a <= 5.0, near, _far(a, 0, False))


@define("j1")
def _j1(x: Any) -> Any:
    a = absolute(x)
    z = a * a
    near = _ratio(z, _J1) * x * (z - 14.681970642123893) * (z - 49.2184563216946)
    far = _far(a, 1, False)
    return where(a <= 5.0, near, where(x < 0.0, -far, far))


def _second_kind(x: Any, near: Any, order: int) -> Any:
    return where(x > 5.0, _far(x, order, True), _from_zero(x, -infinity(x), near))


def _from_zero(x: Any, pole: Any, value: Any) -> Any:
    """`value`, `pole` at 0, NaN below."""
    return where(x == 0.0, pole, where(x < 0.0, not_a_number(x), value))


@define("y0")
def _y0(x: Any) -> Any:
    return _second_kind(x, _ratio(x * x, _Y0) + log(x) * _j0(x) * (2 / math.pi), 0)


@define("y1")
def _y1(x: Any) -> Any:
    return _second_kind(x, x * _ratio(x * x, _Y1) + (_j1(x) * log(x) - 1.0 / x) * (2 / math.pi), 1)


def _k(x: Any, order: int, scaled: bool) -> Any:
    z = x * x - 2.0
    if order:
        near = log(x * 0.5) * sf.i1(x) + _chebyshev(z, _K1_NEAR) / x
    else:
        near = _chebyshev(z, _K0_NEAR) - log(x * 0.5) * sf.i0(x)
    far = _chebyshev(8.0 / x - 2.0, _K1_FAR if order else _K0_FAR) / sqrt(x)
    near, far = (near * exp(x), far) if scaled else (near, exp(-x) * far)
    return _from_zero(x, infinity(x), where(x <= 2.0, near, far))


#: the two power series of Airy's function, in x^3
_AIRY_F, _AIRY_G = (
    tuple(1 / math.prod((3 * j + k - 1) * (3 * j + k) for j in range(1, n + 1)) for n in range(13, -1, -1))
    for k in (0, 1)
)


@define("airy_ai")
def _airy_ai(x: Any) -> Any:
    a = absolute(x)
    root = sqrt(a)
    zeta = kept(a * root * (2 / 3))
    z = 1.0 / zeta
    zz = z * z
    t = zeta + math.pi / 4
    amplitude = (1 / math.sqrt(math.pi)) / sqrt(root)
    waves = (sin(t) * (1.0 + zz * _ratio(zz, (_AFN, _AFD))) - cos(t) * (z * _ratio(zz, (_AGN, _AGD)))) * amplitude
    decay = amplitude * 0.5 * _ratio(z, (_AN, _AD)) * exp(-zeta)
    cube = x * x * x
    near = poly(cube, _AIRY_F) * 0.3550280538878172 - x * poly(cube, _AIRY_G) * 0.2588194037928068
    value = where(x < -2.09, waves, where(x >= 2.09, decay, near))
    return where(isinf(x), not_a_number(x), where(x > 103.892, 0.0, value))


@define("spherical_bessel_j0")
def _spherical_j0(x: Any) -> Any:
    near = poly(x * x, tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)))
    return where(isinf(x), 0.0, where(absolute(x) < 0.5, near, sin(x) / x))


def _row(name: str, expr: Any, doc: str, domain: tuple[float, float]) -> None:
    kernel = rule(name + "_cpu", to_float=True, half=False)
    elementwise(
        Row("special_" + name, expr, None, kernel, doc=doc, domain=domain, cost=80, method=False, inplace=False)
    )


for _n in (0, 1):
    _k_plain, _k_scaled = (
        define(f"k{_n}{'e' * scaled}")(lambda x, n=_n, scaled=scaled: _k(x, n, scaled)) for scaled in (False, True)
    )
    for _name, _function, _doc, _low in (
        ("bessel_j", (_j0, _j1)[_n], "Bessel function of the first kind", -12.0),
        ("bessel_y", (_y0, _y1)[_n], "Bessel function of the second kind (NaN below 0)", 0.1),
        ("modified_bessel_i", (sf.i0, sf.i1)[_n], "Modified Bessel function of the first kind", -12.0),
        ("modified_bessel_k", _k_plain, "Modified Bessel function of the second kind (NaN below 0)", 0.1),
        ("scaled_modified_bessel_k", _k_scaled, "exp(input) * modified_bessel_k(input)", 0.1),
    ):
        _row(f"{_name}{_n}", lambda x, f=_function: f(x), f"{_doc}, of order {_n}.", (_low, 12.0))
_row("airy_ai", lambda x: _airy_ai(x), "Airy's function Ai.", (-8.0, 8.0))
_row("spherical_bessel_j0", lambda x: _spherical_j0(x), "sin(input) / input, 1 at 0.", (-12.0, 12.0))
