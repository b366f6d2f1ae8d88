"""Inertias against closed forms and against sums over many points."""

from __future__ import annotations

import numpy as np
import pytest

import geomint as gm

inertia = gm.rigid.inertia
RANDOM = np.random.default_rng(3)
CUBE = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
# Two triangles for each face, seen from outside.
FACES = np.array([
    *([0, 1, 3], [0, 3, 2], [4, 7, 5], [4, 6, 7], [0, 5, 1], [0, 4, 5]),
    *([2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 7, 3], [1, 5, 7]),
])  # fmt: skip


def test_closed_forms():
    """The moments of textbooks."""
    expected = {
        "box": (inertia.box((1, 2, 3), mass=6.0), [6.5, 5.0, 2.5]),
        "sphere": (inertia.sphere(2.0, mass=5.0), [8.0] * 3),
        "ellipsoid": (inertia.ellipsoid((1, 2, 3), mass=5.0), [13.0, 10.0, 5.0]),
        "cylinder": (inertia.cylinder(2.0, 3.0, mass=4.0), [7.0, 7.0, 8.0]),
        "disc": (inertia.cylinder(2.0, 0.0, mass=4.0), [4.0, 4.0, 8.0]),
        "rod": (inertia.rod(2.0, mass=3.0), [1.0, 1.0, 0.0]),
    }
    for name, (found, moments) in expected.items():
        np.testing.assert_allclose(found.inertia, np.diag(moments), rtol=1e-14, atol=1e-14, err_msg=name)
        assert np.all(found.centre == 0)
    assert inertia.sphere(2.0, density=3.0).mass == pytest.approx(32 * np.pi, rel=1e-15)
    assert inertia.ellipsoid((1, 2, 3), density=1.0).mass == pytest.approx(8 * np.pi, rel=1e-15)
    assert inertia.cylinder(2.0, 3.0, density=1.0).mass == pytest.approx(12 * np.pi, rel=1e-15)


def test_a_capsule_is_a_cylinder_and_two_half_spheres():
    """By the integral over discs of radius r(z)."""
    r, l, density = 0.3, 1.1, 2.0
    nodes, weights = np.polynomial.legendre.leggauss(60)
    total = np.zeros(3)  # ∫ρ, ∫ρ x², ∫ρ z²
    for low, high, radius in ((-l / 2, l / 2, lambda z: r + 0 * z), (0, r, lambda z: np.sqrt(r**2 - z**2))):
        z = 0.5 * (high - low) * nodes + 0.5 * (high + low)
        area = 0.5 * (high - low) * weights * np.pi * radius(z) ** 2 * density
        height, twice = (z, 1) if high == l / 2 else (z + l / 2, 2)
        total += twice * np.array([area.sum(), (area * radius(z) ** 2 / 4).sum(), (area * height**2).sum()])
    found = inertia.capsule(r, l, density=density)
    assert found.mass == pytest.approx(total[0], rel=1e-13)
    np.testing.assert_allclose(np.diag(found.second_moments), total[[1, 1, 2]], rtol=1e-13)


def test_points_sums_and_motions():
    x, m = RANDOM.normal(size=(7, 3)), RANDOM.uniform(1, 2, 7)
    whole = inertia.points(x, m)
    about = lambda c: sum(mi * ((y @ y) * np.eye(3) - np.outer(y, y)) for mi, y in zip(m, x - c, strict=True))
    np.testing.assert_allclose(whole.centre, m @ x / m.sum(), rtol=1e-14)
    np.testing.assert_allclose(whole.inertia, about(whole.centre), rtol=1e-13)
    np.testing.assert_allclose(whole.about((1, 2, 3)), about(np.array([1, 2, 3])), rtol=1e-13)
    parts = inertia.points(x[:3], m[:3]) + inertia.points(x[3:], m[3:])
    np.testing.assert_allclose(parts.inertia, whole.inertia, rtol=1e-13)
    turn, shift = gm.rigid.rotation((1, 2, 3), 0.7), np.array([0.3, -1.0, 2.0])
    moved = inertia.points(x @ turn.T + shift, m)
    for rotation in (turn, gm.rigid.to_quaternion(turn)):
        at = whole.at(shift, rotation)
        np.testing.assert_allclose(at.centre, moved.centre, rtol=1e-13)
        np.testing.assert_allclose(at.inertia, moved.inertia, rtol=1e-13)


def test_meshes_and_tetrahedra_are_the_solids_they_bound():
    """An affine image of the cube: ∫x xᵀ is that of the cube in other coordinates. Far from the origin no digits are
    lost."""
    matrix, shift = RANDOM.normal(size=(3, 3)), np.array([10.0, -20.0, 5.0])
    vertices = CUBE @ matrix.T + shift
    volume = abs(np.linalg.det(matrix))
    centre, second = matrix @ np.full(3, 0.5) + shift, matrix @ (np.eye(3) / 12) @ matrix.T * volume * 3.0
    tets = [[0, 1, 3, 7], [0, 1, 5, 7], [0, 2, 3, 7], [0, 2, 6, 7], [0, 4, 5, 7], [0, 4, 6, 7]]
    for found in (
        inertia.mesh(vertices, FACES, density=3.0),
        inertia.mesh(vertices, FACES[:, ::-1], mass=3.0 * volume),
        inertia.tetrahedra(vertices, tets, density=3.0),
    ):
        assert found.mass == pytest.approx(3.0 * volume, rel=1e-12)
        np.testing.assert_allclose(found.centre, centre, rtol=1e-13)
        np.testing.assert_allclose(found.second_moments, second, rtol=0, atol=1e-11 * np.abs(second).max())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: inertia.box((1, 1, 1)), "give mass or density, one of them"),
        (lambda: inertia.box((1, 1, 1), mass=1, density=1), "give mass or density, one of them"),
        (lambda: inertia.box((1, 0, 1), mass=1), r"sizes must be positive"),
        (lambda: inertia.cylinder(1, 0, density=1), "its volume is 0; give mass"),
        (lambda: inertia.sphere(-1, mass=1), "radius must be positive"),
        (lambda: inertia.mesh(CUBE, FACES[1:], density=1), "do not close a surface"),
        (lambda: inertia.mesh(CUBE, [FACES[0][::-1], *FACES[1:]], density=1), "not all ordered alike"),
        (lambda: inertia.mesh(CUBE, [[0, 1, 8]], density=1), "whole numbers from 0 to 7"),
        (lambda: inertia.points([[1, 2]]), r"must have the shape \(n, 3\)"),
        (lambda: inertia.points([[1, 2, 3]], -1.0), "masses must be positive"),
        (lambda: gm.rigid.MassProperties(1, (0, 0, 0), (1, 1, 2.1)), "no body has the principal moments 1, 1, 2.1"),
        (lambda: gm.rigid.MassProperties(1, (0, 0, 0), (1, -1, 1)), "no body has the principal moments"),
        (lambda: gm.rigid.MassProperties(1, (0, 0, 0), [[1, 1, 0], [0, 1, 0], [0, 0, 1]]), "must be symmetric"),
        (lambda: gm.rigid.MassProperties(0, (0, 0, 0), (1, 1, 1)), "mass must be positive"),
        (lambda: inertia.sphere(1, mass=1).at(rotation=np.eye(3)[::-1]), "is a reflection"),
        (lambda: inertia.sphere(1, mass=1).at(rotation=[1, 1, 0, 0]), "quaternions must have length 1"),
        (lambda: inertia.sphere(1, mass=1).at(rotation=[1, 2]), r"must be matrices \(…, 3, 3\) or unit quaternions"),
    ],
)
def test_wrong_input(call, message):
    with pytest.raises(gm.InputError, match=message):
        call()


def test_a_sum_with_anything_else():
    with pytest.raises(TypeError, match="unsupported operand"):
        inertia.sphere(1, mass=1) + 1  # type: ignore[operator]
