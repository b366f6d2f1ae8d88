"""The coefficients of the splittings, each checked against its order conditions on import."""

from __future__ import annotations

from typing import NamedTuple

from .order_conditions import splitting_defect

Stages = tuple[tuple[str, float], ...]  # ("kick" or "drift", its share of the step)


class Scheme(NamedTuple):
    """One splitting."""

    stages: Stages
    order: int
    nystrom: bool  # whether the order needs a quadratic kinetic energy and a potential of q alone
    source: str


def palindrome(first: str, half: tuple[float, ...]) -> Stages:
    """A symmetric sequence from its first half; the middle and the neighbour of the middle are fixed by consistency.

    `first` is the kind of the first stage, "kick" or "drift"; `half` lists the free coefficients, alternately for this
    kind and for the other.
    """
    second = "drift" if first == "kick" else "kick"
    names = (first, second)
    outer = [(names[i % 2], c) for i, c in enumerate(half)]
    n = len(half)
    left = {first: 1.0, second: 1.0}
    for kind, c in outer:
        left[kind] -= 2 * c
    middle = names[(n + 1) % 2]
    neighbour = names[n % 2]
    outer.append((neighbour, left[neighbour] / 2))
    return (*outer, (middle, left[middle]), *reversed(outer))


def _min_error_two_stage() -> float:
    """b = ½ − z/12 + 1/(6z), z = (2√326 + 36)^⅓: the two-stage splitting of smallest error (Omelyan, Mryglod, Folk
    2002)."""
    z = (2 * 326**0.5 + 36) ** (1 / 3)
    return 0.5 - z / 12 + 1 / (6 * z)


def three_stage(a: float) -> tuple[float, float]:
    """(b, a) on the curve 6ab − 2a − b + ½ = 0, where the three-stage family has no [A,[A,B]]-type error at leading
    order in the linear problem (Blanes, Casas, Sanz-Serna 2014)."""
    return (2 * a - 0.5) / (6 * a - 1), a


def _forest_ruth() -> tuple[float, float]:
    theta = 1 / (2 - 2 ** (1 / 3))
    return theta / 2, theta


def _in_turn(first: str, coefficients: tuple[float, ...]) -> Stages:
    """Kicks and drifts alternately, beginning with `first`."""
    second = "drift" if first == "kick" else "kick"
    return tuple(((first, second)[i % 2], c) for i, c in enumerate(coefficients))


_MCLACHLAN_ATELA = (
    0.1344961992774310892, 0.5153528374311229364, -0.2248198030794208058, -0.085782019412973646,
    0.7563200005156682911, 0.4415830236164665242, 0.3340036032863214255, 0.1288461583653841854,
)  # fmt: skip
_CALVO_SANZ_SERNA = (
    0.0617588581356263250, 0.2051776615422863900, 0.3389780265536433550, 0.4030212816042145870, 0.6147913071755775662,
    -0.1209208763389140700, -0.1405480146593733802, 0.5127219331924130930, 0.1250198227945261338,
)  # fmt: skip


def _two(b: float, kind: str = "kick") -> Stages:
    return palindrome(kind, (b,))


TABLES: dict[str, Scheme] = {
    "two-stage": Scheme(
        _two(0.211781),
        2,
        False,
        "b = .211781, best expected energy error for steps up to the limit: Blanes, Casas, Sanz-Serna, SIAM "
        "J. Sci. Comput. 36 (2014)",
    ),
    "two-stage-minimum-error": Scheme(
        _two(_min_error_two_stage()),
        2,
        False,
        "b = .193183…: McLachlan 1995; Omelyan, Mryglod, Folk 2002",
    ),
    "two-stage-linear": Scheme(
        _two((3 - 3**0.5) / 6),
        2,
        False,
        "b = (3−√3)/6 = .211325, fourth order on linear problems up to a processor: Predescu et al. 2012",
    ),
    "two-stage-drift": Scheme(_two(_min_error_two_stage(), "drift"), 2, False, "the drift form with .193183…"),
    "three-stage": Scheme(
        palindrome("kick", three_stage(0.29619504261126)),
        2,
        False,
        "a = .296195…, b = .118880…: Blanes, Casas, Sanz-Serna 2014",
    ),
    "three-stage-minimum-error": Scheme(
        palindrome("kick", three_stage(0.290485609075128726)),
        2,
        False,
        "a = .290486…, b = .108991…: Fernández-Pendás, Akhmatskaya, Sanz-Serna 2016",
    ),
    "forest-ruth": Scheme(palindrome("drift", _forest_ruth()), 4, False, "Forest, Ruth 1990: three Verlet steps"),
    "pefrl": Scheme(
        palindrome("drift", (0.1786178958448091, 0.5 * (1 - 2 * -0.2123418310626054), -0.06626458266981849)),
        4,
        False,
        "Omelyan, Mryglod, Folk, Comput. Phys. Commun. 146 (2002)",
    ),
    "blanes-moan": Scheme(
        palindrome(
            "drift",
            (0.0792036964311957, 0.209515106613362, 0.353172906049774, -0.143851773179818, -0.0420650803577195),
        ),
        4,
        False,
        "6 stages: Blanes, Moan, J. Comput. Appl. Math. 142 (2002), S6",
    ),
    "blanes-moan-nystrom": Scheme(
        palindrome(
            "kick",
            (0.0829844064174052, 0.245298957184271, 0.396309801498368, 0.604872665711080, -0.0390563049223486),
        ),
        4,
        True,
        "6 stages: the same paper, RKN6b",
    ),
    "mclachlan-atela": Scheme(
        _in_turn("kick", _MCLACHLAN_ATELA),
        4,
        True,
        "4 stages: McLachlan, Atela, Nonlinearity 5 (1992)",
    ),
    "calvo-sanz-serna": Scheme(
        _in_turn("kick", _CALVO_SANZ_SERNA),
        4,
        True,
        "5 kicks, the last one kept for the next step: Calvo, Sanz-Serna, SIAM J. Sci. Comput. 14 (1993)",
    ),
}

for _name, (_stages, _order, _nystrom, _source) in TABLES.items():
    _defect = splitting_defect(_stages, _order, _nystrom)
    assert _defect < 5e-14, f"splitting {_name} violates an order condition by {_defect:.1e}"
